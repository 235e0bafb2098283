"""How good the intact model is on what a result was computed from: answers that passes come by anyway, and
the rule for "at chance"."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise._passes.frozen import frozen
from headwise.models import DecoderOutput
from headwise.tasks import Batch, Batches, at_chance, chance_note, metrics

if TYPE_CHECKING:
    from headwise._passes.subject import TaskSubject

MOST = 1000  # examples that are read only to judge the model, where an estimator never reads it intact
JUDGED = ("performance", "chance", "at_chance")  # attributes by task
LITTLE = "scores of its heads say little: was it trained for this task, and is the tokenizer its own?"
_judging: ContextVar[bool] = ContextVar("headwise_judging", default=True)


@contextmanager
def unjudged() -> Iterator[None]:
    """Inside, scores do not say how good the model is: it was said already, or nobody asks."""
    token = _judging.set(False)
    try:
        yield
    finally:
        _judging.reset(token)


class Answers:
    """What a model answers to examples, as passes come by it.

    Args:
        size: number of examples.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._batches: list[tuple[Tensor, Tensor, Tensor]] = []  # numbers of examples, predictions, losses
        self._all: tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float32]] | None = None

    def keep(self, batch: Batch, output: DecoderOutput) -> None:
        """Keeps what a pass of the intact model says of the examples of a batch, each of which comes once."""
        if _judging.get():
            # kept on the device until the end: fetching each batch would make a GPU wait for every pass
            self._batches.append((batch.index, output.prediction.detach(), output.loss.detach().float()))

    def fill(self, predictions: NDArray[Any], losses: NDArray[np.float32]) -> None:
        """Keeps what is known of all examples, in their order."""
        self._all = (np.arange(self.size), predictions, losses)

    @property
    def complete(self) -> bool:
        """Whether every example was answered."""
        return self._all is not None or sum(len(index) for index, _, _ in self._batches) == self.size

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float32]]:
        """Numbers of the examples that were answered, rising, with the prediction and the loss of each."""
        if self._all is not None:
            return self._all
        columns = zip(*self._batches, strict=True)
        index, predictions, losses = (torch.cat(column).cpu().numpy() for column in columns)
        order = np.argsort(index)
        return index[order], predictions[order], losses[order]


def judged(subject: "TaskSubject") -> dict[str, Any]:
    """For the attributes of a result, each by task: `performance`, every metric of the intact model on the
    examples that were read; `chance`, its metric for a guess that ignores the text; and `at_chance`, what
    must be said where the model is no better."""
    if not _judging.get():
        return {}
    answers = subject.answers
    if not answers.complete:
        answers = _answers(subject)
    numbers, predictions, _ = answers.arrays()
    return verdict(subject, predictions, numbers)


def verdict(subject: "TaskSubject", predictions: NDArray[Any], numbers: NDArray[np.int64]) -> dict[str, Any]:
    """The same of predictions for the examples with these numbers."""
    task, examples = subject.task, subject.encoded.examples.subset(numbers)
    gold = None if isinstance(examples.labels, list) else examples.labels
    values = metrics.every(task.kind, predictions, gold, len(examples.classes))
    chance = metrics.chance_level(task.metric, task.kind, examples.labels)
    facts: dict[str, Any] = {"performance": {task.name: values}}
    if np.isfinite(chance):
        facts["chance"] = {task.name: chance}
    if at_chance(task.metric, task.kind, predictions, gold, chance):
        note = chance_note(task.name, task.score(predictions, gold), chance, LITTLE)
        facts["at_chance"] = {task.name: note}
    return facts


def _answers(subject: "TaskSubject") -> Answers:
    """Answers to at most `MOST` of the examples, drawn by the seed, in passes of their own."""
    plan, size = subject.plan(), len(subject.encoded)
    if size > MOST:
        drawn = np.zeros(size, dtype=bool)
        drawn[np.random.default_rng(subject.seed).choice(size, MOST, replace=False)] = True
        thinned = [numbers[drawn[numbers]] for numbers in plan.plan]
        plan = Batches(subject.encoded, [numbers for numbers in thinned if len(numbers)], None, 0, 0.15)
    answers = Answers(min(size, MOST))
    with frozen(subject.model), torch.inference_mode():
        for batch in subject.read(plan):
            answers.keep(batch, subject.forward(batch))
    return answers
