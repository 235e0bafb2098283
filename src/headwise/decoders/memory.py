"""What a trained model remembers of its tasks: how it was judged, and at which length their texts were cut."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from headwise.decoders.output import SavedTask
from headwise.tasks.task import Task

LENGTH = 256  # where nothing is remembered


class Remembering(Protocol):
    """A model with the facts of its tasks by name."""

    @property
    def tasks(self) -> Mapping[str, SavedTask]: ...


def remember(model: Any, tasks: Sequence[Task], max_length: int) -> None:
    """Notes in a model how it is trained and judged on each task, for whatever is done with it later."""
    for task in tasks:
        model.tasks[task.name] = replace(SavedTask.of(task), max_length=max_length, origin=task.origin)


def as_trained(model: Remembering, tasks: Iterable[Task]) -> list[Task]:
    """The tasks with the metric that the model was trained and judged by, where a user has not chosen another."""

    def known(task: Task) -> bool:
        return not task.metric_given and task.name in model.tasks and model.tasks[task.name].kind == task.kind

    return [task.with_metric(model.tasks[task.name].metric, given=False) if known(task) else task for task in tasks]


def length_of(model: Remembering, task: str, max_length: int | None = None) -> int | None:
    """Tokens at which texts of a task are cut: as asked, else as the model was trained on it; None: neither is known."""
    return max_length or (model.tasks[task].max_length if task in model.tasks else None)


def longest(model: Remembering) -> int:
    """The longest texts a model was trained with, in tokens: what a task that is new to it starts from."""
    return max((task.max_length for task in model.tasks.values() if task.max_length), default=LENGTH)
