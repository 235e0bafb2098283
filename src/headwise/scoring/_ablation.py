"""`ablation`: how much worse the task gets when one head alone is silenced."""

from typing import Any, Literal

import numpy as np
import xarray as xr

from headwise._passes.lesioned import evaluate
from headwise._passes.subject import TaskSubject, prepare
from headwise.heads import HeadSet
from headwise.scoring._result import as_scores
from headwise.scoring._settings import Reading
from headwise.settings import operation, option
from headwise.tasks import Task


class Ablation(Reading):
    """Settings of `ablation`."""

    examples: int | None = option(
        1000, "At most this many examples of the split, drawn at random; None: all.", ge=1
    )
    measure: Literal["loss", "metric"] = option(
        "loss",
        "The rise of the loss, or the drop of the metric, which misses changes too small to turn a "
        "prediction: many heads are then equal.",
    )
    way: str = option(
        "auto",
        "How lesions are run, see `headwise._passes.lesioned`; the result does not depend on it.",
        decides=False,
    )


@operation(Ablation)
def ablation(model: Any, task: Task, settings: Ablation) -> xr.DataArray:
    """The rise of the loss, or the drop of the metric, when one head is silenced (Michel et al. 2019, §3.2,
    "leave one out").

    Returns:
        (layer, head), in units of the loss or the metric (0.01 is one point of accuracy); negative where the
        task does better without the head.
    """
    measure = settings.measure
    subject = prepare(model, task, settings)
    heads = [head for head in subject.heads.all() if bool(subject.scored[head])]
    outcome = evaluate(
        subject,
        [HeadSet(), *(HeadSet([head]) for head in heads)],
        f"ablating heads, {task.name}",
        settings.way,
    )
    if measure == "loss":
        values = outcome.losses.mean(axis=1, dtype=float)
    else:
        values = -metric_values(subject, outcome.predictions)
    scores = np.full(subject.heads.shape, np.nan)
    for number, head in enumerate(heads, start=1):
        scores[head] = values[number] - values[0]
    subject.answers.fill(outcome.predictions[0], outcome.losses[0])
    return as_scores(scores, subject, "ablation", "signed", measure=measure)


def metric_values(
    subject: TaskSubject, predictions: np.ndarray[Any, Any]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The task's metric of each lesion, turned so that higher is better."""
    labels = subject.encoded.examples.labels
    gold = None if isinstance(labels, list) else labels
    sign = 1 if subject.task.higher_is_better else -1
    return sign * np.array([subject.task.score(rows, gold) for rows in predictions])
