"""What is said of trainings by one or several methods and seeds."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headwise._base.averages import common_average, common_columns
from headwise._base.inference import t_interval, why_no_t
from headwise._base.least import EXPLAINED
from headwise._base.places import model_label
from headwise._base.sentences import (
    NOT_SHOWN,
    between,
    counted,
    no_interval,
    number,
    sign,
    spread,
    synthetic_text,
)
from headwise.figures import training as figures
from headwise.sections import Chart, Section, Table, held_out_note
from headwise.tasks import CHANCE_MEANING, metric_label as name_of_metric

if TYPE_CHECKING:
    from headwise.training._result import TrainingResult

GLUE = {"cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"}
PUBLISHED = (
    "Published GLUE dev averages (Li et al. 2023), plain → important-head training: TinyBERT 80.0 → 80.9, "
    "BERT-base 82.6 → 83.4, BERT-large 84.5 → 85.2 (annealed sampling)."
)
# of a description: not what was asked for
INCIDENTAL = ("synthetic", "steps", "seconds", "attempts", "processes", "command", "notes")


def trainings_section(trained: "Sequence[TrainingResult]", names: Sequence[str] | None = None) -> Section:
    """One section over finished trainings.

    Args:
        trained: the results.
        names: of each, what its method is called; default: as its description has it, with what tells two of
            one method apart.
    """
    frames, losses = [], []
    for result, method in zip(trained, names or labels(trained), strict=True):
        columns = {"method": method, "seed": result.description.get("settings", {}).get("seed", 0)}
        frames.append(result.scores.assign(**columns))
        losses.append(result.history.assign(**columns))
    every = pd.concat(frames, ignore_index=True)
    scores = every[every["split"] == "validation"]
    first = trained[0].description
    notes: list[str] = []
    for result in trained:
        notes += result.description.get("notes", [])
    loss_chart = Chart(
        "training-loss",
        "Training loss",
        lambda: figures.losses(pd.concat(losses, ignore_index=True)),
        "Moving average, first seed.",
    )
    charts = []
    if len(trained) > 1:  # one mark a task says no more than the table
        charts.append(score_chart(scores))
    return Section(
        title="Training",
        findings=training_findings(scores),
        blocks=[
            *charts,
            loss_chart,
            Table("training", "Scores on validation in percent", wide(scores), _caption(scores)),
            Table("scores", "Every score, a share", every, detail=True),
        ],
        methods=(
            f"{model_label(first.get('model', 'The model'))} was trained on "
            f"{', '.join(first.get('tasks', {}))}; one task per step. Scores are on the validation splits "
            f"({metrics_of(scores)}){spread_of(scores)}. "
            f"{compared(scores)}{CHANCE_MEANING[0].upper()}{CHANCE_MEANING[1:]}. {EXPLAINED}."
            f"{held_out_note(first.get('held_out', ()))}{synthetic_text(first.get('synthetic', ()))}"
        ),
        settings={key: value for key, value in first.items() if key not in ("tasks",)},
        provenance={"folders": ", ".join(str(result.folder) for result in trained)},
        notes=list(dict.fromkeys(notes)),
    )


def _caption(scores: pd.DataFrame) -> str:
    sentences = []
    if scores["metric"].map(name_of_metric).nunique() > 1:
        sentences.append("The average mixes different metrics.")
    if set(scores["task"]) - {"mnli_mm"} == GLUE:
        sentences.append(PUBLISHED)
    return " ".join(sentences)


def metrics_of(scores: pd.DataFrame) -> str:
    """How the tasks of a table were judged: "accuracy", or "sst2 accuracy, mrpc F1"."""
    by_task = {
        str(task): name_of_metric(metric)
        for task, metric in zip(scores["task"], scores["metric"], strict=True)
    }
    metrics = set(by_task.values())
    if len(metrics) == 1:
        return metrics.pop()
    return ", ".join(f"{task} {metric}" for task, metric in by_task.items())


def spread_of(scores: pd.DataFrame) -> str:
    """What "±" is, where there are several seeds."""
    if scores["seed"].nunique() > 1:
        return ", mean ± standard deviation over seeds"
    return ", of one seed"


def compared(scores: pd.DataFrame) -> str:
    """How methods are compared; empty for one method."""
    if scores["method"].nunique() < 2:
        return ""
    if scores["seed"].nunique() < 2:
        return "Methods are shown beside one another; one seed allows no test between them. "
    return (
        f"Each method is compared with {_base(scores['method'])} by a t interval over seeds, not corrected "
        "for the number of methods. "
    )


def _base(methods: Iterable[str]) -> str:
    """What the others are compared with: plain training, else the first."""
    names = list(dict.fromkeys(methods))
    if "multi-task" in names:
        return "multi-task"
    return names[0]


def labels(trained: "Sequence[TrainingResult]") -> list[str]:
    """The method of each training; where one method was trained twice with one seed, with what tells the two
    apart, for their mean would mix settings, models or tasks."""
    requests = [_request(result.description) for result in trained]
    names = []
    for request in requests:
        keys = _differing_keys([twin for twin in requests if twin["method"] == request["method"]])
        differences = ", ".join(f"{key} {request[key]}" for key in request if key in keys)
        names.append(f"{request['method']} ({differences})" if differences else str(request["method"]))
    runs = [(name, request["seed"]) for name, request in zip(names, requests, strict=True)]
    distinct = []
    for (name, seed), result in zip(runs, trained, strict=True):
        if runs.count((name, seed)) > 1:
            distinct.append(f"{name} in {result.folder}")
        else:
            distinct.append(name)
    return distinct


def _differing_keys(requests: Sequence[Mapping[str, Any]]) -> set[str]:
    """The keys in which trainings of one seed differ."""
    keys: set[str] = set()
    for request, twin in combinations(requests, 2):
        if request["seed"] == twin["seed"]:
            keys |= {key for key in {*request, *twin} if request.get(key) != twin.get(key)}
    return keys


def _request(description: Mapping[str, Any]) -> dict[str, Any]:
    """What a training was asked to do, by name; neither how long it took nor how it was called."""
    named = {
        key: value for key, value in description.items() if key not in (*INCIDENTAL, "settings", "tasks")
    }
    return {
        "seed": 0,
        **named,
        **description.get("settings", {}),
        "tasks": ", ".join(description.get("tasks", {})),
    }


def wide(scores: pd.DataFrame) -> pd.DataFrame:
    """Tasks × methods, mean ± sd over seeds, with the average over the tasks that all methods have; what is
    at chance says so."""
    table = scores.pivot_table(index=["method", "seed"], columns="task", values="score", sort=False) * 100
    table[average_row(table)] = common_average(table)
    by_method = table.groupby("method", sort=False)
    mean, sd = by_method.mean().T, by_method.std().T
    by_task = scores.drop_duplicates("task").set_index("task")
    columns: dict[str, Any] = {
        "task": mean.index,
        "metric": [by_task["metric"].get(task, "") for task in mean.index],
    }
    chance = scores.groupby("task", sort=False)["chance"].mean() * 100
    columns["chance"] = [number(chance[task]) if task in chance else "" for task in mean.index]
    for method in mean.columns:
        marks = _marks(scores[scores["method"] == method])
        cells = zip(mean.index, mean[method], sd[method], strict=True)
        texts = []
        for task, centre, width in cells:
            if np.isnan(centre):
                texts.append("")
            else:
                texts.append(spread(centre, width) + marks.get(task, ""))
        columns[method] = texts
    return pd.DataFrame(columns)


def _marks(scores: pd.DataFrame) -> dict[str, str]:
    """What the cell of each task says where it did no better than a guess, by the scores of one method."""
    if "at_chance" not in scores:
        return {}
    marks = {}
    for task, seeds in scores.groupby("task", sort=False)["at_chance"]:
        weak = int(seeds.sum())
        if weak:
            marks[str(task)] = f" ({weak} of {len(seeds)} seeds at chance)"
        if weak == len(seeds):
            marks[str(task)] = " at chance"
    return marks


def average_row(table: pd.DataFrame) -> str:
    """What the average over tasks is called: of how many, where a method lacks some."""
    shared, every = len(common_columns(table)), table.shape[1]
    if shared == every:
        return "average"
    return f"average of the {counted(shared, 'task')} that all methods have"


def training_findings(scores: pd.DataFrame, variants: Mapping[str, str] | None = None) -> list[str]:
    """Averages, and paired differences between methods where several were trained; `variants` are also
    compared with their methods."""
    table = scores.pivot_table(index=["method", "seed"], columns="task", values="score", sort=False) * 100
    by_method = {
        method: table.loc[method].dropna(axis=1, how="all") for method in dict.fromkeys(scores["method"])
    }
    metrics = list(dict.fromkeys(map(name_of_metric, scores.get("metric", []))))
    unlike = ""
    if len(metrics) > 1:
        unlike = f"; a mean over unlike metrics ({', '.join(metrics)})"
    shared = common_columns(table)
    which = ""
    if 0 < len(shared) < table.shape[1]:
        which = " that all methods have"
    averaged = {
        method: (values[shared] if shared else values).dropna() for method, values in by_method.items()
    }
    sentences = [
        f"{method}: {number(values.mean(axis=1).mean())} on average over "
        f"{counted(values.shape[1], 'task')}{which} ({counted(len(values), 'seed')}){unlike}."
        for method, values in averaged.items()
        if len(values)
    ]
    if not shared:
        sentences.append("No task is one of all methods, so these averages are not to be compared.")
    plain = _base(by_method)
    pairs = []
    for method in by_method:
        pairs += [(method, plain), (method, (variants or {}).get(method, plain))]
    for method, base in dict.fromkeys(pairs):
        if method != base and base in by_method:
            # seeds × tasks that both have
            each = (by_method[method] - by_method[base]).dropna(axis=1, how="all").dropna()
            if not each.size:
                sentences.append(
                    f"{method} and {base} have no task and seed in common, so they are not compared."
                )
                continue
            difference = each.mean(axis=1)
            low, high = t_interval(difference.to_numpy())
            verdict = {1: f"{method} is better", -1: f"{method} is worse", 0: NOT_SHOWN}[sign(low, high)]
            why = why_no_t(difference, "seed")
            if why and len(difference) > 1:
                verdict = no_interval(why, "seeds")
            elif why:
                verdict = "one seed says nothing about others"
            sentences.append(
                f"{method} is {number(difference.mean(), 2, sign=True)} points from {base} on average over "
                f"{counted(each.shape[1], 'task')}{between(low, high, 2)}, seed "
                f"by seed: {', '.join(number(d, 2, sign=True) for d in difference)}; {verdict}."
            )
    if "at_chance" in scores:  # where predictions were at hand
        weak, verdict = scores["at_chance"].astype(bool), "Not shown to be above chance"
    else:
        weak, verdict = scores["score"] <= scores["chance"], "Not above chance"
    all_weak = scores.assign(weak=weak).groupby(["task", "method"], sort=False)["weak"].all()
    if all_weak.any():
        where = ", ".join(f"{task} ({method})" for task, method in all_weak[all_weak].index)
        sentences.append(f"{verdict} in any seed: {where}.")
    return sentences


def score_chart(scores: pd.DataFrame, where: str = "") -> Chart:
    """Scores by task and method, one mark a seed; `where` says which part of a grid they are from."""
    name, title = "training-scores", "Scores of every seed"
    if where:
        name, title = f"{name}-{where}", f"{title}: {where}"
    return Chart(name, title, lambda: figures.scores(scores))
