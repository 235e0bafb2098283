"""What every decoder returns, and the few facts about a task it is built from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from headwise.names import check_name


@dataclass
class DecoderOutput:
    """The result of one batch.

    Attributes:
        loss: (batch,), one loss per example, in float32; whoever trains or scores decides how to reduce it.
        prediction: one row per example, what the task's metric reads: (batch,) class numbers, (batch,) numbers,
            or (batch, 3) counts (correct, predicted, gold) for structured kinds.
        logits: what the prediction was taken from; its shape depends on the kind.
    """

    loss: Tensor
    prediction: Tensor
    logits: Any


class TaskLike(Protocol):
    """What a decoder needs to know of a task: enough to be built again when a saved model is opened without its data."""

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
    """The facts of a task as a manifest keeps them; it has no examples."""

    name: str
    kind: str
    classes: tuple[str, ...]
    metric: str

    def __post_init__(self) -> None:
        check_name(self.name)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "kind": self.kind, "classes": list(self.classes), "metric": self.metric}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "SavedTask":
        return cls(record["name"], record["kind"], tuple(record["classes"]), record["metric"])

    @classmethod
    def of(cls, task: TaskLike) -> "SavedTask":
        """The same facts of a live task (which may itself be a SavedTask)."""
        return cls(task.name, task.kind, tuple(task.classes or ()), str(task.metric))
