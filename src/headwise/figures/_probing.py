"""Figures of probing: heat maps of many tasks on one page, the syntactic–semantic scatter, the sweep over n,
and shifts."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise.figures._style import (
    COLOURS,
    SEQUENTIAL,
    colour_bar,
    grouped_bars,
    heads_heatmap,
    legend_above,
    over_powers,
    panels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 5  # panels side by side


def heatmaps(
    values: xr.DataArray,
    *,
    sort: bool = False,
    shared: bool = False,
    limits: tuple[float, float] | None = None,
    signed: bool = False,
    chosen: Mapping[str, Any] | None = None,
    legend: str = "",
    effects: Mapping[str, Any] | None = None,
    effect: str = "",
) -> "Figure":
    """One heat map per task on one page, layer 0 at the bottom (Figs. 3, 6, 7); colours are each task's own
    unless `shared`.

    Args:
        values: (task, layer, head).
        sort: heads of each layer from best to worst, so that position no longer names a head (Figs. 3, 6).
        shared: one colour range for all panels.
        limits: that range; default: from the values.
        signed: colours centred on zero.
        chosen: by task, the (layer, head) pairs that get a frame.
        legend: what the values are; given, each task's colours run from its lowest to its highest head and
            all maps share one legend.
        effects: by task, what lesions leave of it (`Effect`), drawn below its map; left out where there are
            more tasks than one row holds.
        effect: what those are percent of.
    """
    tasks = [str(name) for name in values["task"].values]
    columns = min(WIDE, len(tasks))
    below = effects if len(tasks) <= WIDE else None
    if below and len(tasks) == 1:  # one map with its lesions beside it
        figure, axes = panels(1, 2, size=(2.9, 3.0))
        axes = axes.T
    else:
        figure, axes = panels(2 if below else -(-len(tasks) // columns), columns, size=(2.9, 2.4))
    array = within_layers(values.values) if sort else values.values
    if legend:
        low, high = (bound(array, axis=(1, 2), keepdims=True) for bound in (np.nanmin, np.nanmax))
        array, limits = (array - low) / np.where(high > low, high - low, 1), (0.0, 1.0)
    if limits is None and shared:
        bound = float(np.nanmax(np.abs(array)))
        limits = (-bound, bound) if signed else (float(np.nanmin(array)), float(np.nanmax(array)))
    flat = list(axes[0] if below else axes.flat)
    for number, (ax, task) in enumerate(zip(flat, tasks, strict=False)):
        marked = np.zeros(array.shape[1:], dtype=bool)
        for head in (chosen or {}).get(task, ()):
            marked[tuple(head)] = True
        image = heads_heatmap(ax, array[number], title=task, limits=limits, signed=signed, marked=marked)
        if sort:
            ax.set_xlabel("heads, best first")
        if not legend:
            colour_bar(figure, image, ax, shrink=0.85)
    if legend:
        colour_bar(figure, image, flat, f"{legend}\n(lowest to highest of a task)", shrink=0.85, ticks=[])
    for ax in flat[len(tasks) :]:
        ax.set_axis_off()
    if below:
        ends = [100.0]  # one axis for all tasks: bars of one length mean one value
        for task in tasks:
            for lesion in below.get(task, ()):
                ends += [lesion.value, lesion.high]
        longest = float(np.nanmax(ends))
        for ax, task in zip(axes[1], tasks, strict=True):
            lesion_bars(ax, below.get(task, ()), effect, longest, named=ax is axes[1][0])
    return figure


def lesion_bars(ax: "Axes", effects: Sequence[Any], unit: str, most: float, *, named: bool = True) -> None:
    """What each lesion leaves of a task, in percent, with its interval; the first at the top, the axis up to
    `most`."""
    rows = range(len(effects))
    ax.barh(rows, [effect.value for effect in effects], 0.6, color=[COLOURS[row % 7] for row in rows])
    for y, effect in enumerate(effects):
        if np.isfinite(effect.low) and np.isfinite(effect.high):
            ax.plot([effect.low, effect.high], [y, y], color=COLOURS[7], linewidth=1.2)
        if not np.isfinite(effect.value):
            ax.text(0, y, " undefined", va="center", fontsize=7)
    ax.set_yticks(rows, [fill(effect.lesion, 18) * named for effect in effects])
    ax.set_xlim(0, most)
    ax.set_ylim(max(len(effects), 3) - 0.4, -0.6)
    ax.set_xlabel(f"{unit} (%)" if unit else "%")


def within_layers(values: Any) -> Any:
    """(…, layers, heads) with the heads of every layer in descending order; missing heads (NaN) last."""
    array = np.asarray(values, dtype=float)
    return -np.sort(-array, axis=-1)


def before_and_after(before: xr.DataArray, after: dict[str, xr.DataArray], *, sort: bool = False) -> "Figure":
    """A row per task: before, then each way of fine-tuning, in one colour range per task (Fig. 4).

    Args:
        before: (task, layer, head).
        after: by name, the same after fine-tuning.
        sort: heads of each layer from best to worst.
    """
    tasks = [str(name) for name in before["task"].values]
    columns = {"before": before, **after}
    figure, axes = panels(len(tasks), len(columns), size=(2.9, 2.4))
    for row, task in enumerate(tasks):
        arrays = [scores.sel(task=task).values for scores in columns.values()]
        if sort:
            arrays = [within_layers(array) for array in arrays]
        limits = (float(min(map(np.nanmin, arrays))), float(max(map(np.nanmax, arrays))))
        for ax, name, array in zip(axes[row], columns, arrays, strict=True):
            image = heads_heatmap(ax, array, title=f"{task}: {name}", limits=limits)
        colour_bar(figure, image, list(axes[row]), shrink=0.85)
    return figure


def syntactic_semantic(heads: pd.DataFrame, title: str = "") -> "Figure":
    """Every head's syntactic against its semantic score, layers by colour (Fig. 5).

    Args:
        heads: columns layer, syntactic, semantic.
        title: shown above.
    """
    figure, axes = panels(1, 1, size=(4.2, 3.6))
    ax = axes[0, 0]
    points = ax.scatter(
        heads["syntactic"], heads["semantic"], c=heads["layer"], cmap=SEQUENTIAL, s=22, edgecolors="none"
    )
    if len(heads) > 2 and heads["syntactic"].std() > 0 and heads["semantic"].std() > 0:
        r = float(np.corrcoef(heads["syntactic"], heads["semantic"])[0, 1])
        title = f"{title} r = {r:.2f}".strip()
    ax.set_title(title)
    ax.set_xlabel("syntactic score")
    ax.set_ylabel("semantic score")
    colour_bar(figure, points, ax, "layer")
    return figure


def embeddings(rows: pd.DataFrame) -> "Figure":
    """Last layer, best layer and top heads side by side, in percent.

    Args:
        rows: columns task, embedding, test.
    """
    kinds = rows.assign(kind=rows["embedding"].str.split().str[0], percent=100 * rows["test"])
    wide = kinds.pivot_table(index="task", columns="kind", values="percent", sort=False)
    return legend_above(
        grouped_bars(
            wide.rename(columns=dict(zip(kinds["kind"], kinds["embedding"], strict=True))), "test score (%)"
        )
    )


def sweep(rows: pd.DataFrame, embeddings: pd.DataFrame) -> "Figure":
    """Test score of the top-n embedding against n with its interval, one panel per task, the best layer as a
    dashed line.

    Args:
        rows: columns task, n, test; low and high, NaN where there is no interval; published tables may lack them.
        embeddings: columns task, embedding, test.
    """
    tasks = list(dict.fromkeys(rows["task"]))
    columns = min(WIDE, len(tasks))
    figure, axes = panels(-(-len(tasks) // columns), columns, size=(2.6, 2.3))
    flat = list(axes.flat)
    for ax, task in zip(flat, tasks, strict=False):
        curve = rows[rows["task"] == task].sort_values("n")
        line: dict[str, Any] = {"color": COLOURS[0], "marker": "o", "markersize": 3, "linewidth": 1}
        if "low" in curve:
            line["yerr"] = np.stack([curve["test"] - curve["low"], curve["high"] - curve["test"]])
        ax.errorbar(curve["n"], curve["test"], **line)
        layer = embeddings[(embeddings["task"] == task) & (embeddings["embedding"] == "best layer")]
        if len(layer):
            ax.axhline(
                float(layer["test"].iloc[0]),
                color=COLOURS[3],
                linestyle="--",
                linewidth=1,
                label="best layer",
            )
            ax.legend(frameon=False, fontsize=7)
        over_powers(ax, curve["n"])
        ax.set_title(task)
        ax.set_xlabel("heads n")
        ax.set_ylabel("test score")
    for ax in flat[len(tasks) :]:
        ax.set_axis_off()
    return figure
