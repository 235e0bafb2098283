"""Which training examples a run learns from, and which it sets aside to choose when to stop."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwise.errors import HeadwiseError
from headwise.tasks import KINDS, Examples, Task, text_key
from headwise.training._settings import Train

STOPPING = "stopping"  # the split that early stopping chooses on
SHARE = 0.1  # of the training examples


@dataclass(frozen=True)
class Portion:
    """The training examples of one task.

    Attributes:
        train: what is learnt from.
        stopping: what early stopping chooses on; None where nothing is set aside.
    """

    train: Examples
    stopping: Examples | None = None


def portion_of(task: Task, settings: Train) -> Portion:
    """The examples of a task that a training with these settings uses: the seed alone decides, so that
    methods see the same ones.

    Raises:
        HeadwiseError: examples have no labels, or there are too few to set some aside.
    """
    examples = task.split("train")
    if not examples.labelled:
        raise HeadwiseError(f"task {task.name!r}: its training split has examples without labels")
    if settings.max_examples is not None:
        examples = examples.sample(settings.max_examples, settings.seed)
    if settings.early_stopping is None or settings.stopping_split == "validation":
        return Portion(examples)
    aside = set_aside(examples, SHARE, settings.seed)
    if not 0 < len(aside) < len(examples):
        raise HeadwiseError(
            f"task {task.name!r}: early stopping holds out some training examples to choose on, and "
            f"{len(examples)} are too few for that; give more, leave early_stopping out, or choose on the "
            "split that is reported: stopping_split='validation'"
        )
    remaining = np.setdiff1d(np.arange(len(examples)), aside)
    return Portion(examples.subset(remaining), examples.subset(aside))


def set_aside(examples: Examples, share: float, seed: int) -> NDArray[np.int64]:
    """Numbers of about `share` of the examples, drawn by seed; of every class its share, and identical texts
    stay together.

    At least one text is set aside where there are two or more, and of every class at least one text is kept.
    """
    groups: dict[str, list[int]] = {}
    for number, text in enumerate(examples.texts):
        groups.setdefault(text_key(text), []).append(number)
    strata: dict[int, list[list[int]]] = {}
    for members in groups.values():
        label = 0
        if KINDS[examples.kind].one_class:
            label = int(examples.labels[members[0]])
        strata.setdefault(label, []).append(members)
    rng = np.random.default_rng([seed, len(examples)])
    order: dict[int, list[list[int]]] = {}
    for label in sorted(strata):
        order[label] = [strata[label][i] for i in rng.permutation(len(strata[label]))]
    numbers: list[int] = []
    for texts in order.values():
        goal, count = round(share * sum(map(len, texts))), 0
        for members in texts[:-1]:
            if count >= goal:
                break
            numbers += members
            count += len(members)
    if not numbers:  # fewer than five examples of each class
        largest = max(order.values(), key=len)
        if len(largest) > 1:
            numbers = largest[0]
    return np.sort(np.array(numbers, dtype=np.int64))
