"""Figures of changed language models: what each strength of a steering does, and both models on tasks of the harness."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headwise.figures._style import COLOURS, legend_above, panels, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def strengths(table: pd.DataFrame, chosen: float, effect: str) -> "Figure":
    """The effect of a steering and its distance from the intact model over its strength, with intervals where there are any.

    Args:
        table: columns split, strength, effect, kl, and the bounds of each (`effect_low`, ...).
        chosen: the strength that is marked.
        effect: what the effect is.
    """
    figure, axes = panels(1, 2, size=(3.4, 3.0))
    for ax, column, what in zip(
        axes[0], ("effect", "kl"), (effect, "KL from the intact model\n(nats per token)"), strict=True
    ):
        for number, (split, part) in enumerate(table.groupby("split", sort=False)):
            bars = _bars(part[column], part[f"{column}_low"], part[f"{column}_high"])
            line = {
                "color": COLOURS[number % 8],
                "capsize": 3,
                "label": str(split) if ax is axes[0, 0] else None,
            }
            ax.errorbar(part["strength"], part[column], bars, fmt="o-", markersize=3, **line)
        ax.axvline(
            chosen,
            color=COLOURS[7],
            linewidth=0.8,
            linestyle=":",
            label="chosen" if ax is axes[0, 0] else None,
        )
        ax.set_xlabel("strength")
        ax.set_ylabel(what)
    return legend_above(figure)


def differences(table: pd.DataFrame) -> "Figure":
    """The difference of two models by row, the first at the top, with its interval where there is one; zero is marked.

    Args:
        table: columns difference, low, high; the index names the rows.
    """
    figure, axes = panels(size=(4.6, 1.0 + 0.3 * len(table)))
    ax = axes[0, 0]
    for place, (name, row) in enumerate(table.iterrows()):
        bars = _bars(row["difference"], row["low"], row["high"])
        marked = ax.errorbar(
            [row["difference"]], [place], xerr=bars, fmt="o", color=COLOURS[0], markersize=4, capsize=3
        )
        say(marked[0], f"{name}: {row['difference']:+.4g}")
    ax.axvline(0, color=COLOURS[7], linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(table)), [str(name) for name in table.index])
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.set_xlabel("changed − intact")
    return figure


def _bars(value: Any, low: Any, high: Any) -> Any:
    """Distances to both bounds, (2, points); nothing is drawn where there is none."""
    centre, below, above = (np.atleast_1d(np.asarray(one, dtype=float)) for one in (value, low, high))
    return np.nan_to_num(np.stack([centre - below, above - centre])).clip(min=0)
