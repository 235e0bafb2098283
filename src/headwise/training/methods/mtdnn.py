"""MT-DNN (Liu et al. 2019): all tasks' batches pooled and shuffled each epoch, Adamax at 5e-5."""

from dataclasses import dataclass
from typing import ClassVar

from headwise.training._settings import Train
from headwise.training.methods.base import Method


@dataclass
class MTDNN(Method):
    """Plain multi-task training in which every batch of every task is seen exactly once an epoch.

    Args:
        learning_rate: of Adamax.
    """

    name: ClassVar[str] = "mt-dnn"
    learning_rate: float = 5e-5

    def settings(self, settings: Train) -> Train:
        return settings.with_changes(sampling="pooled", optimizer="adamax", learning_rate=self.learning_rate)
