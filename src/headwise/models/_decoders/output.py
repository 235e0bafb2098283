"""What every decoder returns, and the few facts about a task it is built from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headwise._base.names import check_name

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class DecoderOutput:
    """The result of one batch.

    Attributes:
        loss: (batch,), one loss per example, in float32; whoever trains or scores decides how to reduce it.
        prediction: one row per example, what the task's metric reads: (batch,) class numbers, (batch,)
            numbers, or (batch, 3) counts (correct, predicted, gold) for structured kinds.
        logits: what the prediction was taken from; its shape depends on the kind.
    """

    loss: "Tensor"
    prediction: "Tensor"
    logits: Any


class TaskLike(Protocol):
    """What a decoder needs to know of a task: enough to be built again when a saved model is opened without
    its data."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def classes(self) -> Sequence[str]: ...
    @property
    def metric(self) -> Any: ...


@dataclass(frozen=True)
class SavedTask:
    """The facts of a task as a manifest keeps them; it has no examples.

    Attributes:
        name, kind, classes: of the task.
        metric: what the model was judged by.
        max_length: tokens at which its texts were cut in training; None: it was not trained on it.
        origin: what `tasks.find_tasks` found it by (name, data, file, size, seed); None: it was made in
            Python.
    """

    name: str
    kind: str
    classes: tuple[str, ...]
    metric: str
    max_length: int | None = None
    origin: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_name(self.name)

    def to_json(self) -> dict[str, Any]:
        facts = {"name": self.name, "kind": self.kind, "classes": list(self.classes), "metric": self.metric}
        return {**facts, "max_length": self.max_length, "origin": dict(self.origin) if self.origin else None}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "SavedTask":
        name, kind, classes, metric = (record[key] for key in ("name", "kind", "classes", "metric"))
        return cls(name, kind, tuple(classes), metric, record.get("max_length"), record.get("origin"))

    @classmethod
    def from_task(cls, task: TaskLike) -> "SavedTask":
        """The same facts of a live task (which may itself be a SavedTask)."""
        if isinstance(task, SavedTask):
            return task
        return cls(task.name, task.kind, tuple(task.classes or ()), str(task.metric))
