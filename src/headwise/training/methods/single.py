"""Single-task training: each task on an encoder of its own."""

from typing import Any, ClassVar

from headwise.settings import option
from headwise.training.methods.base import Method, MultiTask


class SingleTask(Method):
    """As many trainings as tasks, each from the same initial weights; `train` runs them one after another."""

    name: ClassVar[str] = "single-task"

    class Options(Method.Options):
        teacher: Any = option(
            None,
            "A model that is fine-tuned on each task alone and then teaches the student that task, see "
            "distil; None: no teacher.",
        )

    options: Options

    def each(self) -> Method:
        """What trains one task."""
        if self.options.teacher is None:
            return MultiTask()
        from headwise.training.methods.distil import Distil

        return Distil(teacher=self.options.teacher)
