"""Heads that a task's forward passes do without."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from headwise.heads import Heads, HeadSet


def set_masks(model: Any, masks: Mapping[str, HeadSet], heads: Heads) -> None:
    """From now on, forward passes of each task run with its heads silenced; a saved model keeps this.

    Args:
        model: has `contexts` and `notes`.
        masks: for each task name the heads to silence.
        heads: of the model's encoder.
    """
    for task, silent in masks.items():
        model.contexts[task] = partial(heads.silenced, silent)
    model.notes["silenced"] = to_json(masks)


def to_json(sets: Mapping[str, HeadSet]) -> dict[str, list[list[int]]]:
    """Head sets by task as JSON values."""
    return {task: [list(head) for head in heads] for task, heads in sets.items()}


def from_json(record: Mapping[str, Any]) -> dict[str, HeadSet]:
    """What `to_json` gave."""
    return {task: HeadSet((layer, head) for layer, head in heads) for task, heads in record.items()}
