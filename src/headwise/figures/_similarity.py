"""Task similarity against dissociation (Figs. 3, 5, 6, 7), and the similarity matrices themselves."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headwise.figures._style import COLOURS, colour_bar, named_cells, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def link_scatter(pairs: pd.DataFrame, tests: pd.DataFrame, metrics: list[str], tail: str = "") -> "Figure":
    """One panel per metric: each task pair's similarity and average dissociation, the least-squares line, r
    and its Mantel p.

    More than three panels stand in two rows.

    Args:
        pairs: columns task, other, dissociation (a share), one column per metric, and optionally
            same_paradigm (filled and open marks).
        tests: columns similarity, kind, correlation, p.
        metrics: the columns to draw.
        tail: whether p is one-sided or two-sided, where that is known.
    """
    rows = 1 if len(metrics) <= 3 else 2
    figure, axes = panels(rows, -(-len(metrics) // rows), size=(3.6, 3.2))
    same = pairs.get("same_paradigm", pd.Series(True, pairs.index)).to_numpy(bool)
    for ax in axes.flat[len(metrics) :]:
        ax.set_axis_off()
    for ax, metric in zip(axes.flat, metrics, strict=False):
        x, y = pairs[metric].to_numpy(float), 100 * pairs["dissociation"].to_numpy(float)
        ax.scatter(x[same], y[same], color=COLOURS[0], s=28, zorder=3, label="same kind of input")
        if not same.all():
            ax.scatter(
                x[~same],
                y[~same],
                facecolors="none",
                edgecolors=COLOURS[3],
                s=28,
                zorder=3,
                label="different kinds",
            )
        if np.ptp(x) > 0:
            slope, intercept = np.polyfit(x, y, 1)
            ends = np.array([x.min(), x.max()])
            ax.plot(ends, slope * ends + intercept, color="0.7", linewidth=1)
        row = tests[(tests["similarity"] == metric) & (tests["kind"] == "pearson")].iloc[0]
        tested = f"{tail} Mantel p = {row['p']:.3f}".strip()
        if np.isnan(row["p"]):
            tested = "too few tasks for a p"
        ax.set_title(f"{metric}: r = {row['correlation']:.2f}, {tested}", fontsize=9)
        ax.set_xlabel("task similarity")
        ax.set_ylabel("average dissociation D (%)")
        ax.margins(0.15)
    if not same.all():
        marks = axes[0, 0].get_legend_handles_labels()
        figure.legend(*marks, loc="outside upper center", frameon=False, ncols=2, fontsize=8)
    figure.draw_without_rendering()  # where the axes end up
    for ax, metric in zip(axes.flat, metrics, strict=False):
        names = pairs["task"] + "–" + pairs["other"]
        x, y = pairs[metric].to_numpy(float), 100 * pairs["dissociation"].to_numpy(float)
        _label(ax, x, y, list(names), figure.dpi / 72)
    return figure


def _label(ax: "Axes", x: Any, y: Any, names: list[str], unit: float) -> None:
    """A name beside every point, where it covers least: neither a point nor another name, and within the
    axes.

    `unit` is how many pixels a point of length has.
    """
    points = ax.transData.transform(np.column_stack([x, y]))  # in pixels, as all below
    boxes = [np.array([*point - 4 * unit, *point + 4 * unit]) for point in points]  # left, bottom, right, top
    frame = ax.get_window_extent()
    for point, position, name in zip(points, zip(x, y, strict=True), names, strict=True):
        note = ax.annotate(
            name, position, xytext=(0, 0), textcoords="offset points", ha="center", va="center", fontsize=7
        )
        size = note.get_window_extent()
        half = np.array([size.width, size.height]) / 2 + unit
        best = None
        for far in (5, 9, 14, 20, 27):
            for angle in np.radians([0, 180, 90, 270, 45, 315, 135, 225]):
                direction = np.array([np.cos(angle), np.sin(angle)]).round(6)
                middle = point + direction * (far * unit + half)
                box = np.array([*middle - half, *middle + half])
                covered = np.stack(boxes)
                over = np.minimum(box[2:], covered[:, 2:]) - np.maximum(box[:2], covered[:, :2])
                outside = max(frame.x0 - box[0], box[2] - frame.x1, frame.y0 - box[1], box[3] - frame.y1, 0)
                cost = over.clip(0).prod(axis=1).sum() + 100 * outside + far / 100
                if best is None or cost < best[0]:
                    best = (cost, box, middle - point)
        assert best is not None
        boxes.append(best[1])
        note.set_position(tuple(best[2] / unit))
        note.set_color("0.35")


def similarity_matrices(matrices: Mapping[str, Any]) -> "Figure":
    """The task × task matrices side by side, values written in; colours run from each matrix' least to its
    greatest pair."""
    figure, axes = panels(1, len(matrices), size=(3.4, 3.1))
    for ax, (name, matrix) in zip(axes[0], matrices.items(), strict=True):
        values = np.asarray(matrix, dtype=float)
        tasks = [str(task) for task in matrix[matrix.dims[0]].values]
        off = values[~np.eye(len(values), dtype=bool)]
        image = named_cells(ax, values, tasks, tasks, digits=2, limits=(np.nanmin(off), np.nanmax(off)))
        ax.set_title(name)
        colour_bar(figure, image, ax, shrink=0.8)
    return figure
