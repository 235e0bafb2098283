"""How sure a probe's test score is, over test examples: its standard error and its interval, which hold near
a perfect score, too."""

import numpy as np
import scipy
from numpy.typing import NDArray

from headwise._base.inference import MIN_EXAMPLES, share_interval
from headwise.probing._fits import Labels
from headwise.tasks import KINDS, metrics


def standard_error(
    predictions: NDArray[np.generic], task: Labels, resamples: int = 200, seed: int = 0
) -> float:
    """Standard error of the metric over test examples: √(p(1−p)/n) for accuracy, else by the bootstrap.

    For classes one more example counts as half right: a probe that is right on all test examples is not right
    on all there are, so its error is never 0.
    """
    n = len(task.test)
    if task.metric == "accuracy":
        share = (float(np.sum(predictions == task.test)) + 0.5) / (n + 1)
        return float(np.sqrt(share * (1 - share) / (n + 1)))
    rng = np.random.default_rng(seed)
    if KINDS[task.kind].numbers:
        rows = rng.integers(n, size=(resamples, n))
        values = [metrics.score(task.metric, task.kind, predictions[r], task.test[r]) for r in rows]
        return float(np.std(values, ddof=1))
    drawn = np.empty(resamples)
    for draw in range(resamples):
        label = task.test[rng.integers(n)]
        answer = label if draw % 2 else _another(label, task.classes, rng)
        answers, labels = np.append(predictions, answer), np.append(task.test, label)
        rows = rng.integers(n + 1, size=n + 1)
        drawn[draw] = metrics.METRICS[task.metric].function(answers[rows], labels[rows])
    return float(np.std(drawn, ddof=1))


def _another(label: np.generic, classes: int, rng: np.random.Generator) -> int:
    """A class that is not this one."""
    return int((int(label) + rng.integers(1, max(classes, 2))) % max(classes, 2))


def score_interval(
    score: float, error: float, examples: int, metric: str, level: float = 0.95
) -> tuple[float, float]:
    """The interval of a test score, which stays within its range; NaN below 50 examples.

    Exact for accuracy (`share_interval`); else by t on the logit of a share, or on Fisher's z of a
    correlation.
    """
    if examples < MIN_EXAMPLES or np.isnan([score, error]).any():
        return float("nan"), float("nan")
    if metric == "accuracy":
        return share_interval(round(score * examples), examples, level)
    lowest = metrics.METRICS[metric].lowest
    width = 1 - lowest
    edge = min(max(0.5 / examples, error / width), 0.5)
    # a perfect score has no logit: it counts as one error short of perfect
    share = min(max((score - lowest) / width, edge), 1 - edge)
    slope = error / width / (share * (1 - share))
    reach = float(scipy.stats.t.ppf((1 + level) / 2, examples - 1)) * slope
    low, high = scipy.special.expit(scipy.special.logit(share) + np.array([-reach, reach]))
    return float(min(lowest + width * low, score)), float(max(lowest + width * high, score))
