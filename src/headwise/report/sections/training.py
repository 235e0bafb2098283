"""Trainings by one or several methods and seeds, as `headwise train` leaves them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headwise.figures import COLOURS, panels
from headwise.inference import t_interval
from headwise.parsing import read_json
from headwise.report.blocks import NOT_SHOWN, Chart, Section, Table, between, number, sign, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DONE = "training.json"
GLUE = {"cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"}
PUBLISHED = "Published GLUE dev averages, plain → IAT: TinyBERT 80.0 → 80.9, BERT-base 82.6 → 83.4, BERT-large 84.5 → 85.2 (annealed sampling)."


def read(folders: Sequence[Path], label: str) -> Section:
    """One section over all finished trainings below a folder."""
    records, frames, losses = [], [], []
    for folder in folders:
        description = read_json(folder / DONE)["description"]
        place = {"method": description["method"], "seed": description.get("settings", {}).get("seed", 0)}
        records.append(description)
        frames.append(pd.read_parquet(folder / "scores.parquet").assign(**place))
        losses.append(pd.read_parquet(folder / "history.parquet").assign(**place))
    scores = pd.concat(frames, ignore_index=True)
    scores = scores[scores["split"] == "validation"]
    table = wide(scores)
    first = records[0]
    return Section(
        title=f"Training: {label}",
        findings=findings(scores),
        blocks=[
            score_chart(scores),
            loss_chart(pd.concat(losses, ignore_index=True)),
            Table("training", "Scores in percent", table, PUBLISHED if set(scores["task"]) - {"mnli_mm"} == GLUE else ""),
        ],
        methods=(
            f"{first.get('model', 'The model')} was trained on {', '.join(first.get('tasks', {}))}; one task per step. "
            "Scores are on the validation splits with each task's own metric, mean ± standard deviation over seeds."
        ),
        settings={key: value for key, value in first.items() if key not in ("tasks",)},
        provenance={"folders": ", ".join(str(folder) for folder in folders)},
    )


def wide(scores: pd.DataFrame) -> pd.DataFrame:
    """Tasks × methods, mean ± sd over seeds, with the average over tasks."""
    table = scores.pivot_table(index=["method", "seed"], columns="task", values="score", sort=False) * 100
    table["average"] = table.mean(axis=1)
    mean, sd = table.groupby("method", sort=False).mean().T, table.groupby("method", sort=False).std().T
    cells = {
        m: [f"{a:.1f}" + ("" if np.isnan(s) else f" ± {s:.1f}") for a, s in zip(mean[m], sd[m], strict=True)]
        for m in mean.columns
    }
    chance = scores.groupby("task", sort=False)["chance"].mean() * 100
    out = pd.DataFrame({"task": mean.index, **cells})
    out["chance"] = [number(chance.get(task, np.nan)) for task in mean.index]
    return out


def findings(scores: pd.DataFrame) -> list[str]:
    """Averages, and paired differences between methods where several were trained."""
    table = scores.pivot_table(index=["method", "seed"], columns="task", values="score", sort=False).mean(axis=1) * 100
    by_method = {method: table[method] for method in dict.fromkeys(scores["method"])}
    said = [
        f"{method}: {number(values.mean())} on average over {scores['task'].nunique()} tasks ({len(values)} "
        f"seed{'s' if len(values) > 1 else ''})."
        for method, values in by_method.items()
    ]
    base = "multi-task" if "multi-task" in by_method else next(iter(by_method))
    for method, values in by_method.items():
        if method != base:
            difference = (values - by_method[base]).dropna()
            low, high = t_interval(difference.to_numpy())
            found = {1: f"{method} is better", -1: f"{method} is worse", 0: NOT_SHOWN}[sign(low, high)]
            if len(difference) < 2:
                found = "one seed says nothing about others"
            said.append(
                f"{method} is {number(difference.mean(), 2, sign=True)} points from {base} on average over tasks{between(low, high, 2)}, seed "
                f"by seed: {', '.join(number(d, 2, sign=True) for d in difference)}; {found}."
            )
    below = scores.groupby("task")[["score", "chance"]].mean()
    weak = [str(task) for task, row in below.iterrows() if row["score"] <= row["chance"]]
    if "at_chance" in scores:  # tested, where predictions were at hand
        weak = [str(task) for task, some in scores.groupby("task", sort=False)["at_chance"] if some.all()]
    if weak:
        said.append(f"Not above chance: {', '.join(weak)}.")
    return said


def score_chart(scores: pd.DataFrame) -> Chart:
    """Scores by task and method, one mark a seed."""
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": text(method),
            "x": [text(t) for t in part["task"]],
            "y": (100 * part["score"]).tolist(),
            "marker": {"color": COLOURS[i % 8], "size": 9, "opacity": 0.8},
        }
        for i, (method, part) in enumerate(scores.groupby("method", sort=False))
    ]

    def draw() -> "Figure":
        figure, axes = panels(size=(1.5 + 0.7 * scores["task"].nunique(), 3.0))
        names = list(dict.fromkeys(scores["task"]))
        for i, (method, part) in enumerate(scores.groupby("method", sort=False)):
            axes[0, 0].plot(
                [names.index(t) for t in part["task"]], 100 * part["score"], "o", color=COLOURS[i % 8], alpha=0.8, label=method
            )
        axes[0, 0].set_xticks(range(len(names)), names, rotation=30, ha="right")
        axes[0, 0].set_ylabel("score (%)")
        axes[0, 0].legend(frameon=False)
        return figure

    return Chart("training-scores", "Scores of every seed", data, {"yaxis": {"title": {"text": "score (%)"}}}, draw)


def loss_chart(history: pd.DataFrame) -> Chart:
    """Smoothed training losses of the first seed."""
    first = history[history["seed"] == history["seed"].min()]
    data: list[dict[str, Any]] = []
    curves: list[tuple[str, Any, Any]] = []
    for (method, task), part in first.groupby(["method", "task"], sort=False):
        smooth = part["loss"].rolling(max(1, len(part) // 50), min_periods=1).mean()
        keep = np.linspace(0, len(part) - 1, min(len(part), 200)).astype(int)
        x, y = part["step"].to_numpy()[keep], smooth.to_numpy()[keep]
        curves.append((f"{task}, {method}", x, y))
        data.append({"type": "scatter", "mode": "lines", "name": text(f"{task}, {method}"), "x": x.tolist(), "y": y.tolist()})

    def draw() -> "Figure":
        figure, axes = panels(size=(5.0, 3.2))
        for i, (name, x, y) in enumerate(curves):
            axes[0, 0].plot(x, y, color=COLOURS[i % 8], linewidth=1, label=name)
        axes[0, 0].set_xlabel("step")
        axes[0, 0].set_ylabel("training loss")
        axes[0, 0].legend(frameon=False, fontsize=6)
        return figure

    layout = {"xaxis": {"title": {"text": "step"}}, "yaxis": {"title": {"text": "training loss"}, "rangemode": "tozero"}}
    return Chart("training-loss", "Training loss", data, layout, draw, "Moving average, first seed.")
