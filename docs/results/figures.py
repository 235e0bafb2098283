"""The figures of the results pages, drawn from the CSV files beside the pages.

    python docs/results/figures.py                              # draws all of them into docs/images
    python docs/results/figures.py pairs probing                # only these

Each function reads its CSV files and gives one figure; its name, with dashes, is the name of the image.
"""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from headwise.figures import COLOURS, panels, save_figure
from headwise.figures._estimators import RANDOM_ESTIMATOR, curves
from headwise.figures._roles import copying
from headwise.figures._similarity import link_scatter
from headwise.figures._style import legend_above

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from figures_dissociation import DARK, GREY, pairs, specialization_iat, specialization_layers, specialization_lesions  # noqa: E402
from figures_stemcells import stem_cell_layers, stem_cell_layers_mpnet, stem_cells, stem_cells_mpnet  # noqa: E402
from figures_training import important_heads_variants  # noqa: E402
from tables import read  # noqa: E402

IMAGES = HERE.parent / "images"
SHADES = 96  # colours of an image's palette


def important_heads() -> Any:
    """Differences of the average from multi-task training, with their intervals, in three runs."""
    folder = HERE / "important-heads"
    first = read(folder / "differences.csv")
    runs = {
        "mpnet-base": read(folder / "mpnet-averages.csv"),
        "MiniLM-L6, 9,000 examples": first[first["task"] == "average"],
        "MiniLM-L6, 4,000 examples": read(folder / "ten-averages.csv"),
    }
    methods = list(dict.fromkeys(name for table in runs.values() for name in table["method"]))
    low, high = -2.6, 2.3  # beyond them, a difference is written out
    figure, axes = panels(size=(6.8, 5.0))
    ax = axes[0, 0]
    published: dict[tuple[str, bool], float] = {}
    for number, (run, table) in enumerate(runs.items()):
        for row in table.to_dict("records"):
            alone = sum(row["method"] in set(other["method"]) for other in runs.values()) == 1
            y = methods.index(row["method"]) + (-0.12 if alone else 0.22 * number - 0.36)
            if row["difference"] < low:
                ax.annotate(
                    f" {row['difference']:.1f} [{row['low']:.1f}, {row['high']:.1f}]".replace("-", "−"),
                    (low, y), xytext=(low + 0.25, y), va="center", fontsize=8, color=COLOURS[number],
                    arrowprops={"arrowstyle": "->", "color": COLOURS[number]},
                )  # fmt: skip
            else:
                reach = [[row["difference"] - row["low"]], [row["high"] - row["difference"]]]
                ax.errorbar(row["difference"], y, xerr=reach, fmt="os^"[number], color=COLOURS[number], markersize=4.5, capsize=2)
            value = re.match(r"[+-]?[\d.]+", str(row.get("published (BERT-base)", "")))
            if value:
                published[row["method"], "test" in str(row["published (BERT-base)"])] = float(value[0])
        ax.plot([], [], "os^"[number], color=COLOURS[number], markersize=4.5, label=run)
    for test, mark in ((False, "D"), (True, "p")):
        shown = {methods.index(method) + 0.3: value for (method, of_test), value in published.items() if of_test == test}
        where = "test" if test else "development"
        label = f"published, BERT-base, {where} sets"
        ax.plot(list(shown.values()), list(shown), mark, color=DARK, fillstyle="none", markersize=6, label=label)
    ax.axvline(0, color=DARK, linewidth=0.8)
    for y in range(1, len(methods)):
        ax.axhline(y - 0.5, color="0.9", linewidth=0.6)
    ax.set_xlim(low, high)
    ax.set_ylim(len(methods) - 0.5, -0.5)
    ax.set_yticks(range(len(methods)), [name.replace(" minus ", " −\n") for name in methods])
    ax.set_xlabel("difference from multi-task training (points, average of eight tasks)")
    return legend_above(figure, 2)


def probing() -> Any:
    """What layers, top heads and mean heads know of each task, trained and not."""
    table = read(HERE / "probing" / "heads.csv")
    models = list(dict.fromkeys(table["model"]))
    figure, axes = panels(-(-len(models) // 2), 2, size=(4.4, 3.4))
    marks = {
        "majority": ("|", GREY, "majority", "full"),
        "mean of all heads": ("^", GREY, "mean head", "full"),
        "mean with random weights": ("^", DARK, "mean head, random weights", "none"),
        "last layer": ("s", COLOURS[1], "last layer", "full"),
        "best layer": ("D", COLOURS[2], "best layer", "full"),
        "top heads": ("o", COLOURS[0], "top heads ± 1 standard error", "full"),
    }
    for ax in axes.flat[len(models) :]:
        ax.remove()
    for place, (ax, model) in enumerate(zip(axes.flat, models, strict=False)):
        some = table[table["model"] == model].reset_index(drop=True)
        ax.hlines(some.index, 0, 90, color="0.92", linewidth=0.8, zorder=0)
        error = some["standard error of top"]
        ax.errorbar(some["top heads"], some.index - 0.15, xerr=error, fmt="none", ecolor=COLOURS[0], linewidth=1.2)
        for column, (mark, colour, name, fill) in marks.items():
            size = 12 if mark == "|" else 5.5
            label = name if ax is axes[0, 0] else "_"
            y = some.index + (
                0.2 if mark == "^" else 0 if mark == "|" else -0.15
            )  # single heads below the line, vectors above it
            ax.plot(some[column], y, mark, color=colour, fillstyle=fill, markersize=size, label=label)
        ax.set_yticks(some.index, some["task"] if ax in axes[:, 0] else [""] * len(some))
        ax.set_ylim(len(some) - 0.5, -0.5)
        ax.set_xlim(0, 90)
        ax.set_title(model)
        if place >= len(models) - 2:  # the lowest of its column
            ax.set_xlabel("test accuracy (%)")
    return legend_above(figure, 3)


def similarity_link() -> Any:
    """D against every similarity, one point a pair of tasks."""
    table = read(HERE / "similarity" / "pairs.csv")
    metrics = [name for name in table.columns if name not in ("task", "other", "dissociation", "same_paradigm")]
    return link_scatter(table, read(HERE / "similarity" / "link.csv"), metrics, "one-sided")


def estimators_sst2() -> Any:
    """Accuracy on SST-2 as heads are silenced."""
    return _estimators("sst2")


def estimators_qnli() -> Any:
    """Accuracy on QNLI as heads are silenced."""
    return _estimators("qnli")


def _estimators(task: str) -> Any:
    table = read(HERE / "estimators" / f"{task}-curves.csv")
    keys = ["estimator", "order"]
    begin = table[keys].drop_duplicates().assign(fraction=0.0, performance=intact(task))
    shown = ["gate-gradient", "iat", "ablation", "shapley"]
    return curves(pd.concat([begin, table], ignore_index=True), "accuracy", [*shown, RANDOM_ESTIMATOR])


def intact(task: str) -> float:
    """The intact accuracy, from the mean drop of random heads: the area between it and their curve, over the largest fraction."""
    table = read(HERE / "estimators" / f"{task}-curves.csv")
    curve = table[(table["estimator"] == RANDOM_ESTIMATOR) & (table["order"] == "most")].sort_values("fraction")
    drop = read(HERE / "estimators" / f"{task}-most.csv").set_index("estimator").loc[RANDOM_ESTIMATOR, "drop"]
    share, score = curve["fraction"].to_numpy(), curve["performance"].to_numpy()
    below = (
        np.trapezoid(score, share) + share[0] / 2 * score[0]
    )  # the first piece runs from the intact model to the first fraction
    return float((drop * share[-1] + below) / (share[-1] - share[0] / 2))


def transfer_differences() -> Any:
    """Differences from multi-task training in few-shot transfer, with what the paper has for IMDB."""
    table, published = read(HERE / "transfer" / "differences.csv"), read(HERE / "transfer" / "imdb.csv")
    tasks, shots = (list(dict.fromkeys(table[name])) for name in ("task", "shots"))
    figure, axes = panels(1, len(tasks), size=(3.1, 2.9))
    names = {"iat": "important heads", "random-heads": "random heads"}
    for ax, task in zip(axes[0], tasks, strict=True):
        for colour, mark, beside, (method, name) in zip(COLOURS[::3], "os", (-0.12, 0.12), names.items(), strict=False):
            some = table[(table["task"] == task) & (table["method"] == method)]
            x = np.array([shots.index(value) for value in some["shots"]]) + beside
            reach = np.abs(some[["low", "high"]].to_numpy().T - some["difference"].to_numpy())
            ax.errorbar(x, some["difference"], yerr=reach, fmt=mark, color=colour, markersize=4, capsize=2, label=name)
            paper = published[(published["method"] == method) & (task == "imdb")]
            x = [shots.index(value) + beside for value in paper["shots"]]
            ax.plot(x, paper["published difference"], mark, mfc="none", mec=colour, label=f"{name}, published (BERT-base)")
        ax.axhline(0, color=GREY, linewidth=0.8)
        ax.set_xticks(range(len(shots)), shots)
        ax.set_xlabel("training examples")
        ax.set_title(task.upper())
        ax.set_ylim(-1.2, 8.8)
    axes[0, 0].set_ylabel("points from multi-task training")
    axes[0, -1].legend(fontsize=7, frameon=False)
    return figure


def roles() -> Any:
    """What each lesion leaves of copying, with every draw of random heads."""
    return copying(*(read(HERE / "roles" / f"{name}.csv") for name in ("lesions", "draws")))


FIGURES = (
    specialization_lesions,
    specialization_layers,
    specialization_iat,
    pairs,
    important_heads,
    important_heads_variants,
    probing,
    similarity_link,
    estimators_sst2,
    estimators_qnli,
    stem_cells,
    stem_cell_layers,
    stem_cells_mpnet,
    stem_cell_layers_mpnet,
    transfer_differences,
    roles,
)


def main(names: list[str]) -> None:
    """Draws the named figures, or all of them."""
    known = {draw.__name__.replace("_", "-"): draw for draw in FIGURES}
    unknown = set(names) - set(known)
    if unknown:
        raise SystemExit(f"no figure {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    for name in names or known:
        (file,) = save_figure(known[name](), IMAGES / f"{name}.png", dpi=140)
        with Image.open(file) as image:
            small = image.convert("RGB").quantize(SHADES, dither=Image.Dither.NONE)
        small.save(file, optimize=True)
        print(f"{file.relative_to(HERE.parents[1])}: {small.width} × {small.height}, {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
