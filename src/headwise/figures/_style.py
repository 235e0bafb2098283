"""What every figure shares: colour-blind-safe colours, maps of heads and of tables, and the figure as a file
or as part of a page."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headwise._base.writing import make_folder, write_bytes
from headwise.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's eight colours, distinct under every common kind of colour blindness; black comes last.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
SEQUENTIAL = "cividis"  # for magnitudes
DIVERGING = "RdBu_r"  # for signed values, centred on zero
# text on a light cell, which stays dark where the page is dark: pure black becomes the page's own colour
DARK = "#111111"

_SAID = "said:"  # marks an identifier that is a sentence
_RC: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 120,
    "savefig.bbox": "tight",
    "pdf.fonttype": 42,  # text stays text in the PDF, as publishers ask
    "svg.fonttype": "none",  # and on the page
    "svg.hashsalt": "headwise",  # the same figure gives the same bytes
    "text.parse_math": False,  # a name with dollar signs is a name
}


def panels(
    rows: int = 1, columns: int = 1, *, size: tuple[float, float] = (4.0, 3.0)
) -> "tuple[Figure, np.ndarray[Any, Any]]":
    """A new figure and its axes as a (rows, columns) array; `size` is one panel's width and height in inches.

    The figure belongs to no window and to no global list, so figures do not leak.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", "figures") from error
    with rc_context(_RC):
        figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, axes


def cells(
    axes: "Axes", values: Any, *, limits: Sequence[float | None] = (None, None), colours: str = SEQUENTIAL
) -> Any:
    """(rows, columns) values as coloured cells around whole numbers, row 0 at the bottom; NaN stays blank."""
    array = np.asarray(values, dtype=float)
    edges = (np.arange(n + 1) - 0.5 for n in array.shape[::-1])
    # edges in the colour of the cell: without them, hairlines of the background show between cells
    return axes.pcolormesh(
        *edges, array, cmap=colours, vmin=limits[0], vmax=limits[1], edgecolors="face", linewidth=0.3
    )


def named_cells(
    axes: "Axes",
    values: Any,
    rows: Sequence[Any],
    columns: Sequence[Any],
    *,
    digits: int = 1,
    limits: Sequence[float | None] = (None, None),
) -> Any:
    """A table as coloured cells, first row at the top, each value written in, dark on light and light on
    dark."""
    array = np.asarray(values, dtype=float)
    image = cells(axes, array, limits=limits)
    axes.invert_yaxis()
    axes.set_xticks(range(len(columns)), [str(name) for name in columns], rotation=30, ha="right")
    axes.set_yticks(range(len(rows)), [str(name) for name in rows])
    for (row, column), value in np.ndenumerate(array):
        if np.isfinite(value):
            colour = "white" if image.norm(value) < 0.55 else DARK
            axes.text(column, row, f"{value:.{digits}f}", ha="center", va="center", fontsize=8, color=colour)
    return image


def grouped_bars(table: pd.DataFrame, what: str, *, slanted: bool = True) -> "Figure":
    """A group of bars for every row, one bar a column; `what` the values are stands at the axis.

    The k-th bar of K stands at row + (k − (K − 1) / 2) · 0.8 / K.
    """
    figure, axes = panels(size=(max(3.4, 1.5 + 0.75 * len(table)), 3.0))
    positions, width = np.arange(len(table)), 0.8 / table.shape[1]
    for number, name in enumerate(table.columns):
        x = positions + (number - (table.shape[1] - 1) / 2) * width
        bars = axes[0, 0].bar(x, table[name], width, color=COLOURS[number % 8], label=str(name))
        for bar, (row, value) in zip(bars, table[name].items(), strict=True):
            say(bar, f"{row}, {name}: {value:.4g}")
    slant = {"rotation": 30, "ha": "right"} if slanted else {}
    axes[0, 0].set_xticks(positions, [str(row) for row in table.index], **slant)
    axes[0, 0].set_ylabel(what)
    return figure


def colour_bar(figure: "Figure", image: Any, axes: Any, label: str = "", **how: Any) -> None:
    """A colour bar beside `axes`, in the sizes of the other text."""
    from matplotlib import rc_context

    with rc_context(_RC):
        figure.colorbar(image, ax=axes, label=label, **how)


def legend_above(figure: "Figure", columns: int = 3) -> "Figure":
    """The figure with its legend above the axes, where it covers nothing."""
    figure.legend(loc="outside upper center", frameon=False, ncols=columns, fontsize=8)
    return figure


def over_powers(axes: "Axes", values: Any) -> None:
    """Makes the x axis logarithmic with a tick at each of `values`."""
    ticks = sorted({float(value) for value in values})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def heads_heatmap(
    axes: "Axes",
    values: Any,
    *,
    title: str = "",
    limits: tuple[float, float] | None = None,
    signed: bool = False,
    layer_labels: Sequence[str] | None = None,
    marked: Any = None,
) -> Any:
    """Draws (layers, heads) values, layer 0 at the bottom; missing heads (NaN) stay blank.

    Args:
        axes: where to draw.
        values: (layers, heads) array; NaN where a layer has no such head.
        title: shown above.
        limits: colour range; shared between panels to compare. Taken from the values if None.
        signed: colours centred on zero.
        layer_labels: one per layer; numbers if None.
        marked: (layers, heads) bool; these cells get a frame (a chosen head set, say).

    Returns:
        the image, for a colour bar.
    """
    array = np.asarray(values, dtype=float)  # (layers, heads)
    if limits is None:
        finite = array[np.isfinite(array)]
        if not finite.size:
            finite = np.array([0.0, 1.0])
        limits = (float(finite.min()), float(finite.max()))
        if signed:
            bound = max(map(abs, limits))
            limits = (-bound, bound)
    image = cells(axes, array, limits=limits, colours=DIVERGING if signed else SEQUENTIAL)
    axes.set_title(title)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    step_y, step_x = (max(1, -(-size // 8)) for size in array.shape)  # more numbers would run together
    axes.set_xticks(range(0, array.shape[1], step_x))
    axes.set_yticks(range(0, array.shape[0], step_y))
    if layer_labels is not None:
        axes.set_yticklabels([layer_labels[i] for i in range(0, array.shape[0], step_y)])
    if marked is not None:
        from matplotlib.patches import Rectangle

        for layer, head in zip(*np.nonzero(np.asarray(marked)), strict=True):
            # inside the cell: a cell between four framed ones would look framed itself
            axes.add_patch(
                Rectangle(
                    (head - 0.42, layer - 0.42), 0.84, 0.84, fill=False, edgecolor=COLOURS[3], linewidth=1.4
                )
            )
    return image


def save_figure(figure: "Figure", path: str | Path, *, dpi: int = 200) -> list[Path]:
    """Saves a figure; without a suffix both as PDF (for papers) and PNG (for screens, `dpi` pixels an inch).
    Gives the files written."""
    path = Path(path)
    files = [path]
    if not path.suffix:
        files = [path.with_suffix(".pdf"), path.with_suffix(".png")]
    make_folder(path.parent)
    for file in files:
        drawn = io.BytesIO()
        options: dict[str, Any] = {"dpi": dpi, "format": file.suffix[1:]}
        if file.suffix == ".pdf":  # no creation date: the same figure gives the same bytes
            options["metadata"] = {"CreationDate": None}
        write_figure(figure, drawn, **options)
        write_bytes(file, drawn.getvalue())
    return files


def say(artist: Any, text: str) -> None:
    """What the page says when the mouse is over a part of the figure."""
    artist.set_gid(f"{_SAID}{text}")


def svg(figure: "Figure", name: str) -> str:
    """The figure as an SVG element for a page: text stays text, black is the page's own colour, the
    background is the page's.

    Args:
        figure: what to draw.
        name: its identifiers begin with this, so that several figures can be on one page.
    """
    from xml.etree import ElementTree

    file = io.BytesIO()
    write_figure(
        figure,
        file,
        format="svg",
        transparent=True,
        metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
    )
    root = ElementTree.fromstring(file.getvalue())
    for element in list(root.iter()):
        element.tag = element.tag.partition("}")[2]  # within HTML, svg needs no name space
        if not (element.text or "").strip():
            element.text = None
        if not (element.tail or "").strip():
            element.tail = None
        sentence = element.get("id", "").partition(_SAID)[2]
        for key, value in list(element.attrib.items()):
            del element.attrib[key]
            if key == "id" and (element.tag == "g" or sentence):  # nothing refers to groups
                continue
            element.set(*_attribute(key.rpartition("}")[2], value, name))
        if sentence:
            ElementTree.SubElement(element, "title").text = sentence
        for style in element.findall("{*}style"):  # would hold for the whole page
            element.remove(style)
    root.set(
        "style", f"min-width: {0.65 * float(root.get('width', '0').removesuffix('pt')):.0f}pt"
    )  # smaller cannot be read
    return ElementTree.tostring(root, encoding="unicode")


def _attribute(key: str, value: str, name: str) -> tuple[str, str]:
    if key == "id":
        return key, f"{name}-{value}"
    if key == "href" and value.startswith("#"):
        return key, f"#{name}-{value[1:]}"
    if key in ("d", "points", "x", "y", "transform"):
        return key, re.sub(r"(\.\d\d)\d+", r"\1", " ".join(value.split()))
    value = re.sub(r"url\(#(.*?)\)", rf"url(#{name}-\1)", value)
    return key, re.sub(r"font-family: [^;]*;? ?", "", value).replace("#000000", "currentColor")


def write_figure(figure: "Figure", file: Any, **how: Any) -> None:
    from matplotlib import rc_context
    from matplotlib.text import Text

    with rc_context(_RC):
        for text in figure.findobj(Text):
            text.set_parse_math(False)
        figure.savefig(file, **how)
