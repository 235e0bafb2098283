"""Heads that a task's forward passes do without."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from headwise.heads import HeadSet

if TYPE_CHECKING:
    from headwise.heads import Heads


def set_masks(model: Any, masks: Mapping[str, HeadSet], heads: "Heads") -> None:
    """From now on, forward passes of each task run with its heads silenced; a saved model keeps this.

    Args:
        model: has `contexts` and `notes`.
        masks: for each task name the heads to silence.
        heads: of the model's encoder.
    """
    for task, silent in masks.items():
        model.contexts[task] = _once(heads, silent)
    model.notes["silenced"] = to_json(masks)


def _once(heads: "Heads", silent: HeadSet) -> Callable[[], AbstractContextManager[None]]:
    """Contexts that silence once however deep they nest: a training step holds one open around its backward pass, in which
    checkpointed activations are computed again, and the model opens another in its forward pass."""
    depth = 0

    @contextmanager
    def silenced() -> Iterator[None]:
        nonlocal depth
        depth += 1
        try:
            with heads.silenced(silent) if depth == 1 else nullcontext():
                yield
        finally:
            depth -= 1

    return silenced


def to_json(sets: Mapping[str, HeadSet]) -> dict[str, list[list[int]]]:
    """Head sets by task as JSON values."""
    return {task: [list(head) for head in heads] for task, heads in sets.items()}


def from_json(record: Mapping[str, Any]) -> dict[str, HeadSet]:
    """What `to_json` gave."""
    return {task: HeadSet(heads) for task, heads in record.items()}
