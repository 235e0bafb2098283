"""Figures of changed language models: what each strength of a steering does, and both models on tasks of the
harness."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headwise.figures._style import COLOURS, legend_above, panels, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def strengths(table: pd.DataFrame, chosen: float, effect: str) -> "Figure":
    """The effect of a steering and its distance from the intact model over its strength, with intervals where
    there are any.

    Args:
        table: columns split, strength, effect, kl, and the bounds of each (`effect_low`, ...).
        chosen: the strength that is marked.
        effect: what the effect is.
    """
    figure, axes = panels(1, 2, size=(3.4, 3.0))
    first = axes[0, 0]  # whose labels stand in the legend
    labels = (effect, "KL from the intact model\n(nats per token)")
    for ax, column, label in zip(axes[0], ("effect", "kl"), labels, strict=True):
        for number, (split, rows) in enumerate(table.groupby("split", sort=False)):
            bars = _bars(rows[column], rows[f"{column}_low"], rows[f"{column}_high"])
            line = {"color": COLOURS[number % 8], "capsize": 3, "label": str(split) if ax is first else None}
            ax.errorbar(rows["strength"], rows[column], bars, fmt="o-", markersize=3, **line)
        mark = "chosen" if ax is first else None
        ax.axvline(chosen, color=COLOURS[7], linewidth=0.8, linestyle=":", label=mark)
        ax.set_xlabel("strength")
        ax.set_ylabel(label)
    return legend_above(figure)


def differences(table: pd.DataFrame) -> "Figure":
    """The difference of two models by row, the first at the top, with its interval where there is one; zero
    is marked.

    Args:
        table: columns difference, low, high; the index names the rows.
    """
    figure, axes = panels(size=(4.6, 1.0 + 0.3 * len(table)))
    ax = axes[0, 0]
    for y, (name, row) in enumerate(table.iterrows()):
        bars = _bars(row["difference"], row["low"], row["high"])
        marked = ax.errorbar(
            [row["difference"]], [y], xerr=bars, fmt="o", color=COLOURS[0], markersize=4, capsize=3
        )
        say(marked[0], f"{name}: {row['difference']:+.4g}")
    ax.axvline(0, color=COLOURS[7], linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(table)), [str(name) for name in table.index])
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.set_xlabel("changed − intact")
    return figure


def _bars(value: Any, low: Any, high: Any) -> Any:
    """Distances to both bounds, (2, points); nothing is drawn where there is none."""
    centre, below, above = (np.array(bound, dtype=float, ndmin=1) for bound in (value, low, high))
    return np.nan_to_num(np.stack([centre - below, above - centre])).clip(min=0)
