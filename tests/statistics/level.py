"""What simulations of a test's level have in common."""

import numpy as np
from numpy.typing import ArrayLike

DRAWS = 400  # simulated studies at least
MOST_REJECTED = 0.07  # at 5 %
LEAST_COVERED = 0.93  # of 95 % intervals


def rejected(p: ArrayLike) -> float:
    """The share of simulated studies with p ≤ 0.05."""
    values = np.asarray(p, dtype=float)
    assert len(values) >= DRAWS
    assert not np.isnan(values).any()
    return float((values <= 0.05).mean())


def covered(low: ArrayLike, high: ArrayLike, truth: ArrayLike = 0.0) -> float:
    """The share of simulated studies whose interval holds the truth."""
    low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    assert low.size >= DRAWS
    assert not np.isnan([low, high]).any()
    return float(((low <= truth) & (np.asarray(truth) <= high)).mean())
