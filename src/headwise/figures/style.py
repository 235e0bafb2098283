"""What every figure shares: colour-blind-safe colours, one heat map of heads, and saving for print and screen."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's eight colours, distinct under every common kind of colour blindness; black comes last.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
SEQUENTIAL = "cividis"  # for magnitudes
DIVERGING = "RdBu_r"  # for signed values, centred on zero

_RC: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 120,
    "savefig.bbox": "tight",
    "pdf.fonttype": 42,  # text stays text in the PDF, as publishers ask
}


def panels(rows: int = 1, columns: int = 1, *, size: tuple[float, float] = (4.0, 3.0)) -> "tuple[Figure, np.ndarray[Any, Any]]":
    """A new figure and its axes as a (rows, columns) array; `size` is one panel's width and height in inches.

    The figure belongs to no window and to no global list, so many can be made without leaking.
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
        limits: colour range; shared between panels that are to be compared. Taken from the values if None.
        signed: colours centred on zero.
        layer_labels: one per layer; numbers if None.
        marked: (layers, heads) bool; these cells get a frame (a chosen head set, say).

    Returns:
        the image, for a colour bar.
    """
    array = np.asarray(values, dtype=float)  # (layers, heads)
    if limits is None:
        finite = array[np.isfinite(array)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        limits = (-max(abs(low), abs(high)), max(abs(low), abs(high))) if signed else (low, high)
    image = axes.imshow(
        array,
        origin="lower",
        aspect="auto",
        cmap=DIVERGING if signed else SEQUENTIAL,
        vmin=limits[0],
        vmax=limits[1],
        interpolation="nearest",
    )
    axes.set_title(title)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    step_x, step_y = (max(1, -(-n // 12)) for n in (array.shape[1], array.shape[0]))
    axes.set_xticks(range(0, array.shape[1], step_x))
    axes.set_yticks(range(0, array.shape[0], step_y))
    if layer_labels is not None:
        axes.set_yticklabels([layer_labels[i] for i in range(0, array.shape[0], step_y)])
    if marked is not None:
        from matplotlib.patches import Rectangle

        for layer, head in zip(*np.nonzero(np.asarray(marked)), strict=True):
            # inside the cell: a cell between four framed ones would look framed itself
            axes.add_patch(Rectangle((head - 0.42, layer - 0.42), 0.84, 0.84, fill=False, edgecolor=COLOURS[3], linewidth=1.4))
    return image


def save(figure: "Figure", path: str | Path) -> list[Path]:
    """Saves a figure; without a suffix both as PDF (for papers) and PNG (for screens). Gives the files written."""
    path = Path(path)
    files = [path] if path.suffix else [path.with_suffix(".pdf"), path.with_suffix(".png")]
    path.parent.mkdir(parents=True, exist_ok=True)
    from matplotlib import rc_context

    with rc_context(_RC):
        for file in files:
            # no creation date in the PDF: the same figure gives the same bytes
            figure.savefig(file, dpi=200, metadata={"CreationDate": None} if file.suffix == ".pdf" else None)
    return files
