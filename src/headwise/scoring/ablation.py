"""`ablation`: how much worse the task gets when one head alone is silenced."""

from typing import Any, Literal, Unpack

import numpy as np
import xarray as xr

from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.passes.lesioned import evaluate
from headwise.passes.subject import Reading, Subject, open_subject
from headwise.scoring.result import as_scores
from headwise.tasks.task import Task


def ablation(
    model: Any, task: Task, *, measure: Literal["metric", "loss"] = "metric", way: str = "auto", **reading: Unpack[Reading]
) -> xr.DataArray:
    """The drop in the metric when one head is silenced (Michel et al. 2019, §3.2, "leave one out").

    Args:
        model: a multi-task model, or a plain transformers model with a head.
        task: the task.
        measure: "metric", or "loss" (its rise), which also sees changes too small to turn a prediction.
        way: how lesions are run; see `headwise.passes.lesioned.evaluate`. The result does not depend on it.
        reading: see `Reading`; examples default to 1,000, since every head costs a pass.

    Returns:
        (layer, head), in units of the metric (0.01 is one point of accuracy); negative where the task does better without the head.
    """
    if measure not in ("metric", "loss"):
        raise HeadwiseError(f"measure is {measure!r}; choose 'metric' or 'loss'")
    reading.setdefault("examples", 1000)
    subject = open_subject(model, task, **reading)
    heads = [head for head in subject.heads.all() if bool(subject.scored[head])]
    outcome = evaluate(subject, [HeadSet(), *(HeadSet([head]) for head in heads)], f"ablating heads, {task.name}", way)
    values = outcome.losses.mean(axis=1, dtype=float) if measure == "loss" else -metric_values(subject, outcome.predictions)
    scores = np.full(subject.heads.shape, np.nan)
    for number, head in enumerate(heads, start=1):
        scores[head] = values[number] - values[0]
    return as_scores(scores, subject, "ablation", measure=measure)


def metric_values(subject: Subject, predictions: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The task's metric of each lesion, turned so that higher is better."""
    labels = subject.encoded.examples.labels
    gold = None if isinstance(labels, list) else labels
    sign = 1 if subject.task.higher_is_better else -1
    return sign * np.array([subject.task.score(rows, gold) for rows in predictions])
