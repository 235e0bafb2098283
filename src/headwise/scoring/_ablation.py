"""`ablation`: how much worse the task gets when one head alone is silenced."""

from typing import Any, Literal

import numpy as np
import xarray as xr

from headwise._passes.lesioned import evaluate
from headwise._passes.subject import Subject, prepare
from headwise.heads import HeadSet
from headwise.scoring._result import as_scores
from headwise.scoring._settings import Reading
from headwise.settings import operation, option
from headwise.tasks._kinds import KINDS
from headwise.tasks._metrics import every
from headwise.tasks._task import Task


class Ablation(Reading):
    """Settings of `ablation`."""

    examples: int | None = option(1000, "At most this many examples of the split, drawn at random; None: all.", ge=1)
    measure: Literal["metric", "loss"] = option(
        "metric", "The drop of the metric, or the rise of the loss, which also sees changes too small to turn a prediction."
    )
    way: str = option(
        "auto", "How lesions are run, see `headwise._passes.lesioned`; the result does not depend on it.", decides=False
    )


@operation(Ablation)
def ablation(model: Any, task: Task, settings: Ablation) -> xr.DataArray:
    """The drop in the metric when one head is silenced (Michel et al. 2019, §3.2, "leave one out").

    Returns:
        (layer, head), in units of the metric (0.01 is one point of accuracy); negative where the task does better without the head.
    """
    measure = settings.measure
    subject = prepare(model, task, settings)
    heads = [head for head in subject.heads.all() if bool(subject.scored[head])]
    outcome = evaluate(subject, [HeadSet(), *(HeadSet([head]) for head in heads)], f"ablating heads, {task.name}", settings.way)
    values = outcome.losses.mean(axis=1, dtype=float) if measure == "loss" else -metric_values(subject, outcome.predictions)
    scores = np.full(subject.heads.shape, np.nan)
    for number, head in enumerate(heads, start=1):
        scores[head] = values[number] - values[0]
    intact = {"performance": {task.name: every(task.kind, outcome.predictions[0])}} if KINDS[task.kind].reads == "tokens" else {}
    return as_scores(scores, subject, "ablation", measure=measure, **intact)


def metric_values(subject: Subject, predictions: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The task's metric of each lesion, turned so that higher is better."""
    labels = subject.encoded.examples.labels
    gold = None if isinstance(labels, list) else labels
    sign = 1 if subject.task.higher_is_better else -1
    return sign * np.array([subject.task.score(rows, gold) for rows in predictions])
