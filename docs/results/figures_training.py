"""The figure of important-head training's variants, drawn from the CSV files beside its page; see figures.py."""

from pathlib import Path
from typing import Any

import numpy as np
from tables import read

from headwise.figures import COLOURS, panels
from headwise.figures._style import legend_above

HERE = Path(__file__).parent / "important-heads"
NAMES = {"iat": "important heads", "random-heads": "random heads", "all-of-them": "all five"}
PUBLISHED = 0.77  # BERT-base, Table 7


def important_heads_variants() -> Any:
    """Differences from multi-task training of every variant, with interval and every seed: on average, and on QQP."""
    averages, seeds = read(HERE / "variants-averages.csv"), read(HERE / "variants-seeds.csv")
    by_task = read(HERE / "variants-differences.csv")
    shown = averages[averages["group"] != "adapter"]
    methods = list(shown["method"])
    colours = dict(zip(("control", "accident", "setting"), (COLOURS[7], COLOURS[3], COLOURS[0]), strict=True))
    said = {"control": "as defined, and random heads", "accident": "accidents of the released code", "setting": "other α and δ"}
    figure, axes = panels(1, 2, size=(4.1, 4.6))
    tables = {"average": shown, "qqp": by_task[(by_task["task"] == "qqp") & by_task["method"].isin(methods)]}
    for ax, (task, table) in zip(axes[0], tables.items(), strict=True):
        each = seeds[seeds["task"] == task]
        for y, row in enumerate(table.to_dict("records")):
            colour = colours[row["group"]]
            ax.plot(each[row["method"]] - each["multi-task"], np.full(len(each), y + 0.22), ".", color="0.65", markersize=4)
            reach = [[row["difference"] - row["low"]], [row["high"] - row["difference"]]]
            ax.errorbar(row["difference"], y - 0.12, xerr=reach, fmt="o", color=colour, markersize=4.5, capsize=2)
        ax.axvline(0, color=COLOURS[7], linewidth=0.8)
        for y in (1.5, 7.5):
            ax.axhline(y, color="0.85", linewidth=0.8)
        ax.set_ylim(len(methods) - 0.5, -0.7)
        ax.set_yticks(range(len(methods)), [_name(method) for method in methods] if ax is axes[0, 0] else [""] * len(methods))
        ax.set_xlabel("points from multi-task training")
    axes[0, 0].axvline(PUBLISHED, color=COLOURS[7], linewidth=1, linestyle=":", label="published, BERT-base, important heads")
    axes[0, 0].set_xticks([-1, -0.5, 0, 0.5])
    axes[0, 0].set_title("average of eight tasks")
    axes[0, 1].set_title("QQP alone (F1)")
    for group, colour in colours.items():
        axes[0, 0].plot([], [], "o", color=colour, markersize=4.5, label=said[group])
    axes[0, 0].plot([], [], ".", color="0.65", markersize=4, label="one seed")
    return legend_above(figure, 3)


def _name(method: str) -> str:
    return NAMES.get(method, method.replace("alpha ", "α = ").replace("delta ", "δ = ").replace("-", " "))
