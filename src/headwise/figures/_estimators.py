"""Figures of the league of estimators: lesion curves, and what they cost."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from headwise.figures._style import COLOURS, panels, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANDOM_ESTIMATOR = "random"
STYLES = (("o", "-"), ("s", "--"), ("^", ":"))  # mark and line


def curves(table: pd.DataFrame, what: str = "performance", coloured: Sequence[str] = ()) -> "Figure":
    """Performance over the fraction of heads silenced, one line an estimator: its most important heads on the
    left, its least on the right.

    The two panels have axes of their own: what the least important heads cost is small beside the most
    important ones.

    Args:
        table: one row per estimator, order and fraction: `performance` in percent, a mean over trainings or
            draws; fraction 0 is the intact model.
        what: what the performance is, at the axis.
        coloured: the estimators that stand out; the others are thin grey lines. All, if none is named.
    """
    figure, axes = panels(1, 2, size=(4, 3.2))
    names = [name for name in dict.fromkeys(table["estimator"]) if name != RANDOM_ESTIMATOR]
    bright = [name for name in coloured if name != RANDOM_ESTIMATOR] or names
    dim = [name for name in names if name not in bright]
    for ax, order in zip(axes[0], ("most", "least"), strict=True):
        for name in [*dim, *bright, RANDOM_ESTIMATOR]:
            curve = table[(table["estimator"] == name) & (table["order"] == order)].sort_values("fraction")
            style: dict[str, Any] = {"color": "0.7", "linewidth": 0.8, "label": "_"}
            if name in dim[:1]:
                style["label"] = f"{len(dim)} others"
            if name == RANDOM_ESTIMATOR:
                style = {"color": COLOURS[7], "linewidth": 2.2, "label": name}
            elif name in bright:
                number = bright.index(name)
                style = {"color": COLOURS[number % 6], "linewidth": 1, "markersize": 3, "label": name}
                style |= dict(zip(("marker", "linestyle"), STYLES[number // 6 % 3], strict=True))
            (line,) = ax.plot(100 * curve["fraction"], curve["performance"], **style)
            say(line, f"{name}, {order} important heads")
        ax.set_title(f"{order} important heads silenced", fontsize=10)
        ax.set_xlabel("heads silenced (%)")
        ax.set_ylabel(f"{what} (%)")
    figure.set_layout_engine(
        "constrained", w_pad=0.1
    )  # the right panel's label keeps away from the left panel
    handles, labels = axes[0, 0].get_legend_handles_labels()
    grey = int(bool(dim))
    figure.legend(
        [*handles[grey:], *handles[:grey]],
        [*labels[grey:], *labels[:grey]],
        loc="outside right upper",
        frameon=False,
        fontsize=7,
    )
    return figure


def cost(table: pd.DataFrame) -> "Figure":
    """What silencing each estimator's most important heads costs the task, over the seconds it took to find
    them.

    Args:
        table: one row per estimator with `seconds` and `drop`; random heads have no seconds and are a line.
    """
    figure, axes = panels(size=(5.2, 3.4))
    ax: Axes = axes[0, 0]
    scored = table[table["estimator"] != RANDOM_ESTIMATOR]
    ax.set_xscale("log")
    for number, row in enumerate(scored.to_dict("records")):
        (dot,) = ax.plot([row["seconds"]], [row["drop"]], "o", color=COLOURS[number % 6])
        say(dot, f"{row['estimator']}: {row['drop']:.1f} points, {row['seconds']:.1f} s")
        ax.annotate(
            str(row["estimator"]),
            (row["seconds"], row["drop"]),
            xytext=(5, 2),
            textcoords="offset points",
            fontsize=7,
        )
    for value in table.loc[table["estimator"] == RANDOM_ESTIMATOR, "drop"]:
        ax.axhline(value, color=COLOURS[7], linewidth=1, linestyle="--")
        ax.annotate(
            "random heads",
            (1, value),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            fontsize=7,
        )
    ax.margins(x=0.18)
    ax.set_xlabel("seconds")
    ax.set_ylabel("mean drop (points)")
    return figure
