"""Figures of trainings: scores by method and seed, losses, and few-shot transfer."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headwise.figures._style import COLOURS, legend_above, over_powers, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def scores(table: pd.DataFrame) -> "Figure":
    """Scores in percent by task and method, one mark a seed.

    Args:
        table: columns task, method, score (a share).
    """
    names, methods = (list(dict.fromkeys(table[column])) for column in ("task", "method"))
    figure, axes = panels(size=(max(3.4, 1.5 + 0.7 * len(names)), 3.0))
    for number, method in enumerate(methods):
        rows = table[table["method"] == method]
        positions = [names.index(task) + 0.12 * (number - (len(methods) - 1) / 2) for task in rows["task"]]
        axes[0, 0].plot(
            positions, 100 * rows["score"], "o", color=COLOURS[number % 8], alpha=0.8, label=method
        )
    axes[0, 0].set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes[0, 0].set_xlim(-0.5, len(names) - 0.5)
    axes[0, 0].set_ylabel("score (%)")
    return legend_above(figure, 4)


def losses(history: pd.DataFrame) -> "Figure":
    """Smoothed training losses of the first seed, one line a task and method.

    Args:
        history: columns step, task, loss, method, seed.
    """
    figure, axes = panels(size=(5.5, 3.2))
    first = history[history["seed"] == history["seed"].min()]
    for number, ((method, task), rows) in enumerate(first.groupby(["method", "task"], sort=False)):
        smooth = rows["loss"].rolling(max(1, len(rows) // 50), min_periods=1).mean()
        keep = np.linspace(0, len(rows) - 1, min(len(rows), 200)).astype(int)
        line = {"color": COLOURS[number % 8], "linestyle": ("-", "--", ":")[number // 8 % 3], "linewidth": 1}
        axes[0, 0].plot(
            rows["step"].to_numpy()[keep], smooth.to_numpy()[keep], label=f"{task}, {method}", **line
        )
    axes[0, 0].set_ylim(bottom=min(0.0, axes[0, 0].get_ylim()[0]))
    axes[0, 0].set_xlabel("step")
    axes[0, 0].set_ylabel("training loss")
    figure.legend(loc="outside right upper", frameon=False, fontsize=7)
    return figure


def transfer(table: pd.DataFrame) -> "Figure":
    """Few-shot scores in percent over the number of examples, mean and standard deviation.

    Args:
        table: columns task, method, shots, mean, sd.
    """
    figure, axes = panels(size=(5.5, 3.2))
    for number, ((task, method), rows) in enumerate(table.groupby(["task", "method"], sort=False)):
        line = {"color": COLOURS[number % 8], "capsize": 3, "label": f"{task}, {method}"}
        axes[0, 0].errorbar(rows["shots"], rows["mean"], rows["sd"], fmt="o-", markersize=3, **line)
    over_powers(axes[0, 0], table["shots"])
    axes[0, 0].set_xlabel("training examples")
    axes[0, 0].set_ylabel("score (%)")
    figure.legend(loc="outside right upper", frameon=False, fontsize=7)
    return figure
