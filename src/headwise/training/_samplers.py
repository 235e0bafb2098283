"""Which task each step trains.

The whole plan is drawn before the first step from the seed alone, so that a training resumed at step t needs
no sampler state, and all processes of a distributed training agree without talking.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headwise.errors import HeadwiseError
from headwise.training._settings import SAMPLINGS


def probabilities(
    sampling: str,
    examples: Sequence[int],
    batches: Sequence[int],
    epoch: int,
    epochs: int,
    *,
    temperature: float = 5.0,
    power: float = 0.8,
) -> NDArray[np.float64]:
    """How probable each task is at a step of one epoch.

    | sampling | p ∝ |
    |---|---|
    | proportional | N |
    | square-root | N^½ |
    | annealed | N^ε, ε = 1 − 0.8 (e − 1) ÷ (E − 1) (Eq. 8); ε = 1 if E = 1 |
    | temperature | N^(1/T) |
    | power | batches^power |
    | uniform | 1 |

    Args:
        sampling: one of the above.
        examples: N, the number of training examples of each task.
        batches: the number of batches of each task.
        epoch: e, from 1 to `epochs`.
        epochs: E.
        temperature, power: of the samplings of those names.

    Returns:
        (tasks,), summing to 1.
    """
    n = np.asarray(examples, dtype=np.float64)
    if sampling == "power":
        weight = np.asarray(batches, dtype=np.float64) ** power
    elif sampling == "annealed":
        weight = n ** (1 - 0.8 * (epoch - 1) / max(epochs - 1, 1))
    elif sampling in ("proportional", "square-root", "temperature", "uniform"):
        exponents = {"proportional": 1.0, "square-root": 0.5, "temperature": 1 / temperature, "uniform": 0.0}
        weight = n ** exponents[sampling]
    else:
        raise HeadwiseError(
            f"sampling {sampling!r} has no probabilities; choose from: {', '.join(SAMPLINGS[:-1])}"
        )
    return weight / weight.sum()


def plan(
    sampling: str,
    examples: Sequence[int],
    batches: Sequence[int],
    epochs: int,
    seed: int,
    *,
    temperature: float = 5.0,
    power: float = 0.8,
) -> NDArray[np.int64]:
    """The task of every step of a training.

    An epoch has Σ batches steps. The task of each is drawn by its probability; "pooled" (MT-DNN) instead
    shuffles all tasks' batches, each exactly once an epoch.

    Returns:
        (epochs × Σ batches,), task numbers.
    """
    steps = int(np.sum(batches))
    if not steps:
        raise HeadwiseError("the tasks have no training examples: there is nothing to train on")
    generator = np.random.default_rng([seed, 0])
    drawn = []
    for epoch in range(1, epochs + 1):
        if sampling == "pooled":
            drawn.append(generator.permutation(np.repeat(np.arange(len(batches)), batches)))
        else:
            p = probabilities(
                sampling, examples, batches, epoch, epochs, temperature=temperature, power=power
            )
            drawn.append(generator.choice(len(batches), size=steps, p=p))
    return np.concatenate(drawn).astype(np.int64)
