"""Whether predictions are shown to be better than a guess that ignores the text: one rule for trainings and for intact models."""

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from headwise.tasks import _metrics as metrics
from headwise.tasks._kinds import KINDS

PERMUTATIONS = 199
CHANCE_MEANING = (
    "at chance: not shown to be better than a guess that ignores the text (permutation test over the examples, p > 0.05, or a score no higher "
    "than the guess's)"
)


def at_chance(
    metric: str, kind: str, predictions: NDArray[Any], labels: NDArray[Any] | None, chance: float
) -> bool:
    """Whether nothing shows that the text was used: the score is no higher than `chance`, or a permutation test of independence between
    predictions and labels (199 permutations of the examples) has p > 0.05. Kinds that keep counts have the first alone.

    Args:
        metric, kind: of the task.
        predictions: (examples,), or (examples, counts).
        labels: (examples,); None where predictions are counts.
        chance: the metric of the best guess that ignores the text; NaN where there is none, and then nothing is at chance.
    """
    if not np.isfinite(chance):
        return False
    score = metrics.score(metric, kind, predictions, labels)
    if score <= chance or labels is None or predictions.ndim > 1:
        return bool(score <= chance)
    if KINDS[kind].compares:  # every label is 0: the guess is a coin for each pair
        right = predictions > 0 if KINDS[kind].numbers else predictions == 0
        return bool(scipy.stats.binom.sf(np.sum(right) - 1, len(labels), 0.5) > 0.05)
    rng = np.random.default_rng(0)
    as_good = sum(
        metrics.score(metric, kind, predictions, rng.permutation(labels)) >= score
        for _ in range(PERMUTATIONS)
    )
    return bool((1 + as_good) / (1 + PERMUTATIONS) > 0.05)


def chance_note(task: str, score: float, chance: float, so: str) -> str:
    """What must be said of a model that is at chance on a task; `so` is what follows for the result."""
    verdict = "is at chance" if score <= chance else "is at chance as far as these examples show"
    return f"{task}: the intact model {verdict} ({score:.3g}; a guess that ignores the text: {chance:.3g}), so {so}"
