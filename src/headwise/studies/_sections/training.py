"""Trainings by one or several methods and seeds, as `headwise train` leaves them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from headwise._base.inference import t_interval
from headwise.figures import _training as figures
from headwise.figures._blocks import NOT_SHOWN, Chart, Section, Table, between, number, sign

GLUE = {"cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"}
PUBLISHED = "Published GLUE dev averages, plain → IAT: TinyBERT 80.0 → 80.9, BERT-base 82.6 → 83.4, BERT-large 84.5 → 85.2 (annealed sampling)."


def section(trained: Sequence[Any], label: str) -> Section:
    """One section over finished trainings."""
    frames, losses = [], []
    for found in trained:
        place = {"method": found.description["method"], "seed": found.description.get("settings", {}).get("seed", 0)}
        frames.append(found.scores.assign(**place))
        losses.append(found.history.assign(**place))
    scores = pd.concat(frames, ignore_index=True)
    scores = scores[scores["split"] == "validation"]
    table = wide(scores)
    first = trained[0].description
    return Section(
        title=f"Training: {label}",
        findings=findings(scores),
        blocks=[
            score_chart(scores),
            Chart(
                "training-loss",
                "Training loss",
                lambda: figures.losses(pd.concat(losses, ignore_index=True)),
                "Moving average, first seed.",
            ),
            Table("training", "Scores in percent", table, PUBLISHED if set(scores["task"]) - {"mnli_mm"} == GLUE else ""),
        ],
        methods=(
            f"{first.get('model', 'The model')} was trained on {', '.join(first.get('tasks', {}))}; one task per step. "
            "Scores are on the validation splits with each task's own metric, mean ± standard deviation over seeds."
        ),
        settings={key: value for key, value in first.items() if key not in ("tasks",)},
        provenance={"folders": ", ".join(str(found.folder) for found in trained)},
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


def score_chart(scores: pd.DataFrame, where: str = "") -> Chart:
    """Scores by task and method, one mark a seed; `where` says which part of a grid they are from."""
    name, title = ("training-scores", "Scores of every seed")
    return Chart(f"{name}-{where}" if where else name, f"{title}: {where}" if where else title, lambda: figures.scores(scores))
