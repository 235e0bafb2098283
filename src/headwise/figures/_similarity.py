"""Task similarity against dissociation (Figs. 3, 5, 6, 7), and the similarity matrices themselves."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headwise.figures._style import COLOURS, colour_bar, named_cells, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def link_scatter(pairs: pd.DataFrame, tests: pd.DataFrame, metrics: list[str]) -> "Figure":
    """One panel per metric: each task pair's similarity and average dissociation, the least-squares line, r and its Mantel p.

    Args:
        pairs: columns task, other, dissociation, one column per metric, and optionally same_paradigm (filled and open marks).
        tests: columns similarity, kind, correlation, p.
        metrics: the columns to draw.
    """
    figure, axes = panels(1, len(metrics), size=(3.6, 3.2))
    for ax, metric in zip(axes[0], metrics, strict=True):
        x, y = pairs[metric].to_numpy(float), pairs["dissociation"].to_numpy(float)
        same = pairs["same_paradigm"].to_numpy(bool) if "same_paradigm" in pairs else np.ones(len(pairs), bool)
        ax.scatter(x[same], y[same], color=COLOURS[0], s=28, zorder=3, label="same input paradigm")
        if not same.all():
            ax.scatter(x[~same], y[~same], facecolors="none", edgecolors=COLOURS[3], s=28, zorder=3, label="different")
            ax.legend(frameon=False, fontsize=7)
        if np.ptp(x) > 0:
            slope, intercept = np.polyfit(x, y, 1)
            ends = np.array([x.min(), x.max()])
            ax.plot(ends, slope * ends + intercept, color="0.5", linewidth=1)
        for i, (task, other) in enumerate(zip(pairs["task"], pairs["other"], strict=True)):
            ax.annotate(f"{task}–{other}", (x[i], y[i]), xytext=(4, 3), textcoords="offset points", fontsize=6, color="0.5")
        row = tests[(tests["similarity"] == metric) & (tests["kind"] == "pearson")].iloc[0]
        tested = "too few tasks for a p" if np.isnan(row["p"]) else f"Mantel p = {row['p']:.3f}"
        ax.set_title(f"{metric}: r = {row['correlation']:.2f}, {tested}")
        ax.set_xlabel("task similarity")
        ax.set_ylabel("average dissociation D")
        ax.margins(0.15)
    return figure


def similarity_matrices(matrices: Mapping[str, Any]) -> "Figure":
    """The task × task matrices side by side, values written in; colours run from each matrix' least to its greatest pair."""
    figure, axes = panels(1, len(matrices), size=(3.4, 3.1))
    for ax, (name, matrix) in zip(axes[0], matrices.items(), strict=True):
        values = np.asarray(matrix, dtype=float)
        tasks = [str(task) for task in matrix[matrix.dims[0]].values]
        off = values[~np.eye(len(values), dtype=bool)]
        image = named_cells(ax, values, tasks, tasks, digits=2, limits=(np.nanmin(off), np.nanmax(off)))
        ax.set_title(name)
        colour_bar(figure, image, ax, shrink=0.8)
    return figure
