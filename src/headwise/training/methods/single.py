"""Single-task training: each task on an encoder of its own."""

from dataclasses import dataclass
from typing import Any, ClassVar

from headwise.training.methods.base import Method


@dataclass
class SingleTask(Method):
    """As many trainings as tasks, each from the same initial weights; `train` runs them one after another.

    Args:
        teacher: a model that is fine-tuned on each task alone and then teaches the student that task, see `Distil`; None: no teacher.
    """

    name: ClassVar[str] = "single-task"
    teacher: Any = None

    def each(self) -> Method:
        """What trains one task."""
        if self.teacher is None:
            return Method()
        from headwise.training.methods.distil import Distil

        return Distil(teacher=self.teacher)
