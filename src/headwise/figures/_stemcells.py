"""The stem-cell study as figures: heads that tasks claim, overlap of tasks, best layer per label, change per
label."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr

from headwise.figures._style import COLOURS, colour_bar, heads_heatmap, named_cells, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def stem_cell_map(claims: xr.DataArray, stem: xr.DataArray) -> "Figure":
    """How many tasks claim each head, on average over runs; stem-cell heads are framed.

    Args:
        claims: (run, task, layer, head), 0/1.
        stem: (layer, head), bool.
    """
    figure, axes = panels(1, 1, size=(4.0, 3.0))
    count = claims.astype(float).sum("task").mean("run").to_numpy()
    image = heads_heatmap(
        axes[0, 0],
        count,
        title="tasks that claim a head",
        limits=(0, len(claims.task)),
        marked=stem.to_numpy(),
    )
    colour_bar(figure, image, axes[0, 0])
    return figure


def task_overlap(agreement: pd.DataFrame, value: str = "overlap") -> "Figure":
    """Agreement between tasks, with each task's agreement with itself in another run on the diagonal: the
    ceiling of its row.

    Args:
        agreement: columns first, second, and `value` ("overlap", "pearson", "spearman").
        value: what to show.
    """
    tasks = list(dict.fromkeys([*agreement["first"], *agreement["second"]]))
    table = np.full((len(tasks), len(tasks)), np.nan)
    for row in agreement.to_dict("records"):
        i, j = tasks.index(row["first"]), tasks.index(row["second"])
        table[i, j] = table[j, i] = float(row[value])
    figure, axes = panels(1, 1, size=(3.6, 3.2))
    ax = axes[0, 0]
    low = min(0.0, float(np.nanmin(table)))
    image = named_cells(ax, table, tasks, tasks, digits=2, limits=(low, 1))
    ax.set_title(f"{value} of claims")
    ax.set_xlabel("diagonal: the same task in another run")
    colour_bar(figure, image, ax)
    return figure


def best_layers(labels: pd.DataFrame, layers: int, most: int = 20) -> "Figure":
    """For every label of every task the layer of its best head, the mark growing with the score there.

    Args:
        labels: columns task, label, layer, f1, recall, gold, as `FreeProbe.best` gives them, of one model.
        layers: number of layers.
        most: labels shown per task, the commonest.
    """
    tasks = list(dict.fromkeys(labels["task"]))
    shown = {task: labels[labels["task"] == task].nlargest(most, "gold") for task in tasks}
    rows = max(len(table) for table in shown.values())
    height = 0.6 + 0.17 * rows
    figure, axes = panels(1, len(tasks), size=(2.4, max(2.2, height)))
    for ax, (task, table), colour in zip(axes[0], shown.items(), COLOURS * 2, strict=False):
        positions = np.arange(len(table))[::-1]
        score = table["recall"].to_numpy(float)
        ax.scatter(table["layer"], positions, s=10 + 80 * score, color=colour)
        for x, y, value in zip(table["layer"], positions, score, strict=True):
            ax.annotate(
                f"{100 * value:.0f}",
                (float(x), float(y)),
                xytext=(6, -2),
                textcoords="offset points",
                fontsize=6,
                color="0.5",
            )
        ax.set_yticks(positions, table["label"], fontsize=7)
        ax.set_xlim(-0.5, layers - 0.1)
        ax.set_ylim(len(table) - rows - 0.7, len(table) - 0.3)  # rows are equally high in all panels
        ax.set_xlabel("layer")
        ax.set_title(f"{task} (recall, %)")
    return figure


def label_changes(
    before: pd.DataFrame, after: pd.DataFrame, most: int = 20, names: tuple[str, str] = ("single", "multi")
) -> "Figure":
    """Per label the change of the best head's score from one stage to another, in points.

    Args:
        before, after: columns task, label, f1, recall, gold; rows of several runs are averaged.
        most: labels shown per task, the commonest.
        names: of the two stages.
    """
    keys = ["task", "label"]
    first, second = (table.groupby(keys, sort=False)[["recall", "gold"]].mean() for table in (before, after))
    joined = first.add_suffix("_before").join(second.add_suffix("_after"), how="inner").reset_index()
    joined["change"] = 100 * (joined["recall_after"] - joined["recall_before"])
    tasks = list(dict.fromkeys(joined["task"]))
    shown = {task: joined[joined["task"] == task].nlargest(most, "gold_before") for task in tasks}
    rows = max(len(table) for table in shown.values())
    height = 0.6 + 0.17 * rows
    figure, axes = panels(1, len(tasks), size=(2.4, max(2.2, height)))
    for ax, (task, table) in zip(axes[0], shown.items(), strict=True):
        positions = np.arange(len(table))[::-1]
        change = table["change"].to_numpy(float)
        ax.barh(positions, change, color=np.where(change < 0, COLOURS[3], COLOURS[0]).tolist(), height=0.7)
        ax.axvline(0, color="0.5", linewidth=0.8)
        ax.set_yticks(positions, table["label"], fontsize=7)
        ax.set_ylim(len(table) - rows - 0.7, len(table) - 0.3)  # rows are equally high in all panels
        ax.set_xlabel("points")
        ax.set_title(f"{task}: {names[1]} − {names[0]}")
    return figure


def layer_changes(table: pd.DataFrame) -> "Figure":
    """What training the tasks together changes in each layer, one line per task, with intervals over runs.

    Args:
        table: columns task, layer, change, low, high (0–1).
    """
    figure, axes = panels(1, 1, size=(4.6, 3.2))
    ax = axes[0, 0]
    tasks = list(dict.fromkeys(table["task"]))
    for number, task in enumerate(tasks):
        rows = table[table["task"] == task]
        change, low, high = (100 * rows[name].to_numpy(float) for name in ("change", "low", "high"))
        reach = np.stack([change - low, high - change])
        beside = rows["layer"].to_numpy(float) + 0.06 * (
            number - (len(tasks) - 1) / 2
        )  # so that bars do not cover one another
        bars = np.where(np.isfinite(reach), reach, np.nan)
        ax.errorbar(
            beside,
            change,
            yerr=bars,
            fmt="o-",
            markersize=3,
            linewidth=1,
            capsize=2,
            color=COLOURS[number % 7],
            label=task,
        )
    ax.axhline(0, color="0.5", linewidth=0.8)
    ax.set_xticks(sorted(table["layer"].unique()))
    ax.set_xlabel("layer")
    ax.set_ylabel("change of probe score, points")
    ax.set_title("trained together − trained alone")
    ax.legend(fontsize=7, frameon=False)
    return figure


def effects(table: pd.DataFrame) -> "Figure":
    """Effects with their intervals over runs and heads.

    Args:
        table: columns gates, effect, mean, low, high (0–1).
    """
    figure, axes = panels(1, 1, size=(5.5, 0.8 + 0.3 * len(table)))
    ax = axes[0, 0]
    positions = np.arange(len(table))[::-1]
    mean = 100 * table["mean"].to_numpy(float)
    reach = np.stack([mean - 100 * table["low"].to_numpy(float), 100 * table["high"].to_numpy(float) - mean])
    ax.errorbar(
        mean,
        positions,
        xerr=np.where(np.isfinite(reach), reach, np.nan),
        fmt="o",
        color=COLOURS[0],
        capsize=3,
    )
    ax.axvline(0, color="0.5", linewidth=0.8)
    ax.set_yticks(
        positions,
        [f"{gates}: {effect}" for gates, effect in zip(table["gates"], table["effect"], strict=True)],
        fontsize=7,
    )
    ax.set_ylim(-0.6, len(table) - 0.4)
    ax.set_xlabel("points, mean and 95 % interval over runs and heads")
    return figure
