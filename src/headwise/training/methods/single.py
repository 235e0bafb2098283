"""Single-task training: each task on an encoder of its own."""

from dataclasses import dataclass
from typing import ClassVar

from headwise.training.methods.base import Method


@dataclass
class SingleTask(Method):
    """As many trainings as tasks, each from the same initial weights; `train` runs them one after another."""

    name: ClassVar[str] = "single-task"
