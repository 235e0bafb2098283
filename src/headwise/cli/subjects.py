"""The model a verb names, and its tasks: as the command names them, and where it is silent as the model remembers them."""

from collections.abc import Iterable
from typing import Any

from headwise.cli.common import own_bars
from headwise.tasks._source import TaskSource


def open_for_tasks(model: str, source: TaskSource, device: str | None, dtype: str | None = None) -> tuple[Any, list[Any]]:
    """The model and the tasks a verb names; without names, the tasks the model was trained on."""
    from headwise.models import open_model
    from headwise.models._memory import as_trained, remembered_tasks

    own_bars()
    found = remembered_tasks(model, source)
    answering = open_model(model, found, device=device or "auto", dtype=dtype)
    return answering, as_trained(answering, found)


def judged(model: Any, tasks: Iterable[Any], max_length: int | None = None) -> str:
    """How tasks are read and judged, in one line: "metric: sst2 accuracy, mrpc F1; texts cut at 128 tokens"."""
    from headwise.models._memory import LENGTH, length_of

    tasks = list(tasks)
    lengths = {task.name: length_of(model, task.name, max_length) or LENGTH for task in tasks}
    return said({task.name: task.metric for task in tasks}, lengths)


def said(metrics: dict[str, str], lengths: dict[str, int]) -> str:
    """The same from the two facts by task."""
    metric = ", ".join(f"{name} {metric}" for name, metric in metrics.items())
    if len(set(metrics.values())) == 1 and len(metrics) > 1:
        metric = next(iter(metrics.values()))
    cut = ", ".join(f"{name} {length}" for name, length in lengths.items())
    if len(set(lengths.values())) == 1:
        cut = str(next(iter(lengths.values())))
    return f"metric: {metric}; texts cut at {cut} tokens"
