"""Figures of the league of estimators: lesion curves, and what they cost."""

from typing import TYPE_CHECKING

import pandas as pd

from headwise.figures._style import COLOURS, panels, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANDOM = "random"
STYLES = ("o-", "s--", "^:")


def curves(table: pd.DataFrame) -> "Figure":
    """Performance over the fraction of heads silenced, one line an estimator: its most important heads on the left, its least on the right.

    Args:
        table: one row per estimator, order and fraction: `performance` in percent, a mean over seeds; fraction 0 is the intact model.
    """
    figure, axes = panels(1, 2, size=(4, 3.2))
    names = [name for name in dict.fromkeys(table["estimator"]) if name != RANDOM]
    low, high = table["performance"].min(), table["performance"].max()
    for ax, order in zip(axes[0], ("most", "least"), strict=True):
        for number, name in enumerate([*names, RANDOM]):
            some = table[(table["estimator"] == name) & (table["order"] == order)].sort_values("fraction")
            colour, style = (COLOURS[7], "-") if name == RANDOM else (COLOURS[number % 6], STYLES[number // 6 % 3])
            width = 2.2 if name == RANDOM else 1
            (line,) = ax.plot(
                100 * some["fraction"], some["performance"], style, color=colour, linewidth=width, markersize=3, label=name
            )
            say(line, f"{name}, {order} important heads")
        ax.set_title(f"{order} important heads silenced", fontsize=10)
        ax.set_xlabel("heads silenced (%)")
        ax.set_ylim(low - 0.03 * (high - low), high + 0.03 * (high - low))
    axes[0, 0].set_ylabel("performance (%)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=7)
    return figure


def cost(table: pd.DataFrame) -> "Figure":
    """What silencing each estimator's most important heads costs the task, over the seconds it took to find them.

    Args:
        table: one row per estimator with `seconds` and `drop`; random heads have no seconds and are a line.
    """
    figure, axes = panels(size=(5.2, 3.4))
    ax: Axes = axes[0, 0]
    found = table[table["estimator"] != RANDOM]
    ax.set_xscale("log")
    for number, row in enumerate(found.to_dict("records")):
        (dot,) = ax.plot([row["seconds"]], [row["drop"]], "o", color=COLOURS[number % 6])
        say(dot, f"{row['estimator']}: {row['drop']:.1f} points, {row['seconds']:.1f} s")
        ax.annotate(str(row["estimator"]), (row["seconds"], row["drop"]), xytext=(5, 2), textcoords="offset points", fontsize=7)
    for value in table.loc[table["estimator"] == RANDOM, "drop"]:
        ax.axhline(value, color=COLOURS[7], linewidth=1, linestyle="--")
        ax.annotate("random heads", (1, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7)
    ax.margins(x=0.18)
    ax.set_xlabel("seconds")
    ax.set_ylabel("mean drop (points)")
    return figure
