"""MT-DNN (Liu et al. 2019): all tasks' batches pooled and shuffled each epoch, Adamax at 5e-5."""

from typing import ClassVar

from headwise.settings import option
from headwise.training._settings import Train
from headwise.training.methods.base import Method


class MTDNN(Method):
    """Plain multi-task training in which every batch of every task is seen exactly once an epoch."""

    name: ClassVar[str] = "mt-dnn"

    class Options(Method.Options):
        learning_rate: float = option(5e-5, "Peak learning rate of Adamax.", gt=0)

    options: Options

    def settings(self, settings: Train) -> Train:
        return settings.with_changes(
            sampling="pooled", optimizer="adamax", learning_rate=self.options.learning_rate
        )
