"""Heads that a task's forward passes do without."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from headwise.heads import HeadSet

if TYPE_CHECKING:
    from headwise.heads import Heads


def set_masks(model: Any, method: str, masks: Mapping[str, HeadSet], heads: "Heads") -> None:
    """From now on, forward passes of each task run with its heads silenced; a saved model keeps this.

    Args:
        model: has `contexts` and `notes`.
        method: whose masks they are; its `restore` calls `restore_masks`.
        masks: for each task name the heads to silence.
        heads: of the model's encoder.
    """
    for task, silent in masks.items():
        model.contexts[task] = Silenced(heads, silent)
    model.notes[method] = to_json(masks)


def restore_masks(model: Any, method: str, record: Mapping[str, Any]) -> None:
    """Gives an opened model the masks that it was saved with."""
    from headwise.heads import Heads

    set_masks(model, method, from_json(record), Heads(model.encoder))


_open: ContextVar[tuple["Silenced", ...]] = ContextVar("headwise_silenced", default=())


class Silenced:
    """Contexts that silence once in a thread however deep they nest: a training step holds one open around
    its backward pass, in which checkpointed activations are computed again, and the model opens another in
    its forward pass.

    An object, not a closure: copies and twins of the model have one on heads of their own.
    """

    def __init__(self, heads: "Heads", silent: HeadSet) -> None:
        self.heads, self.silent = heads, silent

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Silences the heads inside."""
        before = _open.get()
        with nullcontext() if self in before else self.heads.silenced(self.silent):
            _open.set((*before, self))
            try:
                yield
            finally:
                _open.set(before)


def to_json(sets: Mapping[str, HeadSet]) -> dict[str, list[list[int]]]:
    """Head sets by task as JSON values."""
    return {task: list(map(list, heads)) for task, heads in sets.items()}


def from_json(record: Mapping[str, Any]) -> dict[str, HeadSet]:
    """What `to_json` gave."""
    return {task: HeadSet(heads) for task, heads in record.items()}
