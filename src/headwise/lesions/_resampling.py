"""Metrics of bootstrap samples: the same resample of examples for every lesion, and the metric recomputed on
it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.tasks import metrics

Array = NDArray[np.float64]


def metric_draws(
    metric: str,
    kind: str,
    predictions: NDArray[Any],
    labels: NDArray[Any] | None,
    counts: NDArray[np.int64],
) -> Array:
    """The metric of every lesion on every bootstrap sample.

    Args:
        metric, kind: as the task has them.
        predictions: (lesions, examples), or (lesions, examples, columns) where a row of the table holds
            counts.
        labels: (examples,); not needed where predictions are counts.
        counts: (draws, examples): how often each example occurs in each sample, shared by all lesions, so
            that differences between lesions are paired.

    Returns:
        (draws, lesions).
    """
    rule = metrics.find(metric, kind)
    if rule.columns:
        # these metrics read only column sums, so one summed row stands for the whole sample
        sums = np.stack([counts @ lesion for lesion in predictions], axis=1)  # (draws, lesions, columns)
        draws, lesions, _ = sums.shape
        of_sums = [rule.function(row, row) for row in sums.reshape(draws * lesions, 1, -1)]
        return np.array(of_sums).reshape(draws, lesions)
    assert labels is not None
    if metric == "accuracy":
        right = (predictions == labels).astype(float)  # (lesions, examples)
        return np.asarray(counts @ right.T / counts.sum(axis=1, keepdims=True))
    values = np.empty((len(counts), len(predictions)))
    for number, lesion in enumerate(predictions):
        draws_of_lesion = metrics.resampled(metric, lesion, labels, counts)
        if draws_of_lesion is None:
            break
        values[:, number] = draws_of_lesion
    else:
        return values
    for d, count in enumerate(counts):
        rows = np.repeat(np.arange(len(count)), count)  # (examples,), with repeats
        values[d] = [rule.function(lesion[rows], labels[rows]) for lesion in predictions]
    return values
