"""The figures of the pages on dissociation (specialization.md, pairs.md), drawn from the CSV files beside them.

`figures.py` draws them together with all others.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tables import read

from headwise.figures import COLOURS, panels
from headwise.figures._style import colour_bar, legend_above, named_cells

HERE = Path(__file__).parent
DARK, GREY = COLOURS[7], "0.6"


def specialization_lesions() -> Any:
    """What every task keeps under every lesion, in percent of the intact model (the first paper's Tables 3 and 10)."""
    from matplotlib.patches import Rectangle

    both = read(HERE / "specialization" / "lesions.csv")
    table = pd.concat([both[both["method"] == "multi-task"], read(HERE / "specialization" / "e5-lesions.csv")])
    tasks = [name for name in table.columns if name not in ("model", "method", "lesion")]
    kept = {}
    for model, some in table.groupby("model", sort=False):
        scores = some.set_index("lesion")[tasks]
        kept[model] = 100 * scores.drop("intact") / scores.loc["intact"]
    low = min(values.to_numpy().min() for values in kept.values())
    figure, axes = panels(1, len(kept), size=(3.0, 3.1))
    for ax, (model, values) in zip(axes[0], kept.items(), strict=True):
        first = ax is axes[0, 0]
        rows = ["random" if name.startswith("random") else name for name in values.index]
        image = named_cells(ax, values, rows if first else [""] * len(rows), tasks, digits=0, limits=(low, 100))
        for place in range(len(tasks)):  # the task's own heads
            ax.add_patch(Rectangle((place - 0.46, place - 0.46), 0.92, 0.92, fill=False, edgecolor=COLOURS[3], linewidth=1.6))
        ax.set_title(model)
        ax.set_xlabel("task")
        if first:
            ax.set_ylabel("heads silenced")
    colour_bar(figure, image, list(axes[0]), "accuracy kept (% of intact)")
    return figure


def specialization_layers() -> Any:
    """How many of each layer's heads are among a task's top 30 %, trained above frozen (the first paper's Fig. 4)."""
    both, e5, frozen = (read(HERE / "specialization" / f"{name}layers-mean.csv") for name in ("", "e5-", "frozen-"))
    table = pd.concat([both, e5.assign(model="e5-small", method="multi-task"), frozen.assign(method="frozen")])
    models = list(dict.fromkeys(table["model"]))
    figure, axes = panels(2, len(models), size=(3.0, 2.6))
    for row, method in enumerate(("multi-task", "frozen")):
        for ax, model in zip(axes[row], models, strict=True):
            some = table[(table["model"] == model) & (table["method"] == method)]
            first = ax is axes[0, 0]
            for number, (task, part) in enumerate(some.groupby("task", sort=False)):
                line = {"color": COLOURS[number], "linewidth": 1.3, "markersize": 4, "marker": "os^Dv"[number]}
                ax.plot(part["layer"], part["heads"], label=task if first else "_", **line)
            even = some.groupby("task")["heads"].sum().mean() / some["layer"].nunique()
            ax.axhline(even, color=GREY, linestyle=":", linewidth=1, label="spread evenly" if first else "_")
            ax.set_ylim(0, 12.5)
            ax.set_yticks(range(0, 13, 4))
            ax.set_xticks(sorted(some["layer"].unique())[:: 1 if some["layer"].nunique() < 10 else 2])
            ax.set_title(model if method == "multi-task" else f"{model}, frozen")
            if row:
                ax.set_xlabel("layer")
        axes[row, 0].set_ylabel("top heads (of 12)")
    return legend_above(figure, 6)


def specialization_iat() -> Any:
    """D of five tasks, seed by seed: with and without important-head training, and in an earlier run of the same seeds."""
    table = read(HERE / "specialization" / "iat-seeds.csv")
    table = table[table["seed"] != "mean"]
    runs = {
        "multi-task, first run": {"marker": "s", "color": GREY},
        "multi-task, second run": {"marker": "o", "color": COLOURS[0]},
        "important heads, second run": {"marker": "D", "color": COLOURS[3], "fillstyle": "none"},
    }
    place = np.arange(len(table))
    figure, axes = panels(size=(5.6, 2.6))
    ax = axes[0, 0]
    for (name, look), beside in zip(runs.items(), (-0.22, 0, 0.22), strict=True):
        ax.plot(table[name], place + beside, linestyle="none", markersize=6, label=name, **look)
    ax.set_yticks(place, [f"seed {seed}" for seed in table["seed"]])
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.set_xlim(0, None)
    ax.set_xlabel("dissociation D of five tasks (%)")
    return legend_above(figure, 3)


def pairs() -> Any:
    """D of every pair in three models: each seed, their mean, and the published value."""
    tables = {
        name: (read(HERE / "pairs" / f"{prefix}pairs.csv").set_index("pair"), read(HERE / "pairs" / f"{prefix}seeds.csv"))
        for name, prefix in (("mpnet-base", "mpnet-"), ("MiniLM-L6", ""), ("e5-small", "e5-"))
    }
    order = list(tables["mpnet-base"][0].sort_values("D").index)
    figure, axes = panels(1, len(tables), size=(3.1, 4.6))
    for ax, (model, (table, seeds)) in zip(axes[0], tables.items(), strict=True):
        first = ax is axes[0, 0]
        table = table.loc[[pair for pair in order if pair in table.index]]
        place = np.array([order.index(pair) for pair in table.index])
        ax.barh(place, table["D"], 0.62, color=COLOURS[5], alpha=0.55, label="mean over seeds" if first else "_")
        seeds = seeds.set_index("pair").loc[table.index]
        for number, name in enumerate(seeds):  # one above the other, so that equal values stay apart
            y = place + 0.17 * (1 - number)
            ax.plot(seeds[name], y, "o", color=COLOURS[0], markersize=4, label="one seed" if first and not number else "_")
        mark = {"color": COLOURS[3], "fillstyle": "none", "markersize": 6, "label": "published, BERT-base" if first else "_"}
        ax.plot(table["published"], place, "D", **mark)
        for pair in sorted(set(order) - set(table.index)):
            ax.annotate("not run", (0.8, order.index(pair)), va="center", fontsize=8, color="0.4")
        ax.axvline(0, color=DARK, linewidth=0.8)
        ax.set_ylim(-0.7, len(order) - 0.3)
        ax.set_yticks(range(len(order)), order if first else [""] * len(order))
        ax.set_xlim(-5, 30)
        ax.set_title(model)
        ax.set_xlabel("dissociation D (%)")
    return legend_above(figure, 3)
