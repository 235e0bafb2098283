"""Relative performance, dissociation scores and verdicts (functional specialization, Eq. 5–7): arithmetic on
performance matrices.

Throughout, a performance matrix has lesions as rows and tasks as columns: `performance[j, i]` is the metric
of task i while the top heads of task j are silenced. Leading axes (bootstrap draws, seeds, permutations) are
carried along.
"""

from collections.abc import Mapping, Set
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from headwise.errors import HeadwiseError
from headwise.heads import HeadSet

Array = NDArray[np.float64]
Verdict = Literal["distinct", "double", "single", "none", "wrong ranking"]

THRESHOLD = 0.10  # §4.1, after Shallice (1988): below it, a dissociation may be accidental


def relative_performance(performance: ArrayLike, intact: ArrayLike) -> Array:
    """RP_i(H_j) (Eq. 5): each task's metric under each lesion over its metric intact.

    Args:
        performance: (..., lesions, tasks).
        intact: (..., tasks).

    Returns:
        (..., lesions, tasks); NaN for a task whose intact metric is 0 or negative (Matthews' coefficient can
        be), since a ratio to it means nothing.
    """
    base = np.asarray(intact, dtype=float)[..., None, :]  # (..., 1, tasks)
    safe = np.where(base > 0, base, np.nan)
    return np.asarray(np.asarray(performance, dtype=float) / safe)


def chance_corrected(performance: ArrayLike, intact: ArrayLike, chance: ArrayLike) -> Array:
    """(P_lesion − c) ÷ (P_intact − c): 1 is unharmed, 0 is chance, on one scale for all tasks.

    RP itself has its floor at chance ÷ intact (0.55 for two balanced classes, 0.26 for four), which differs
    between tasks.

    Args:
        performance: (..., lesions, tasks).
        intact: (..., tasks).
        chance: (tasks,), the metric of a guess.

    Returns:
        (..., lesions, tasks); NaN for a task that is not above chance when intact.
    """
    c = np.asarray(chance, dtype=float)
    gain = (np.asarray(intact, dtype=float) - c)[..., None, :]  # (..., 1, tasks)
    return np.asarray((np.asarray(performance, dtype=float) - c) / np.where(gain > 0, gain, np.nan))


def _square(rp: ArrayLike) -> Array:
    matrix = np.asarray(rp, dtype=float)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] < 2:
        raise HeadwiseError(
            f"the matrix has shape {matrix.shape}; expected (..., n, n): one lesion per task, two tasks or "
            "more"
        )
    return matrix


def pairwise(rp: ArrayLike) -> Array:
    """D_A of every pair (Eq. 6, Table 10): RP_A(H_B) − RP_A(H_A).

    Args:
        rp: (..., lesions, tasks), one lesion per task in the same order.

    Returns:
        (..., A, B); NaN on the diagonal.
    """
    matrix = _square(rp)
    under_own = np.diagonal(matrix, axis1=-2, axis2=-1)  # (..., tasks)
    d = np.swapaxes(matrix, -1, -2) - under_own[..., :, None]  # (..., A, B)
    n = d.shape[-1]
    d[..., np.arange(n), np.arange(n)] = np.nan
    return d


def per_task(rp: ArrayLike) -> Array:
    """D_i (Eq. 7): the mean over the other tasks' lesions of RP_i, less RP_i under its own.

    Args:
        rp: (..., lesions, tasks), one lesion per task in the same order.

    Returns:
        (..., tasks). For two tasks these are D_A and D_B of Eq. 6.
    """
    matrix = _square(rp)
    n = matrix.shape[-1]
    under_own = np.diagonal(matrix, axis1=-2, axis2=-1)  # (..., tasks)
    return np.asarray((matrix.sum(axis=-2) - under_own) / (n - 1) - under_own)


def overall(rp: ArrayLike) -> Array:
    """D (Eq. 6 and 7): the mean of D_i over tasks, shape (...)."""
    return np.asarray(per_task(rp).mean(axis=-1))


def verdict(d_a: float, d_b: float, threshold: float = THRESHOLD) -> Verdict:
    """What §4.1 calls a pair with these two scores (as fractions, 0.1 = 10 %).

    Returns:
        "double" if both are positive, "distinct" if moreover their mean reaches the threshold; "single" if
        one exceeds the threshold and the other is negative; "wrong ranking" if both are negative (each task
        suffers more from the other's heads, so the important heads were not found); otherwise, and where a
        score is missing, "none".
    """
    if d_a > 0 and d_b > 0:
        return "distinct" if (d_a + d_b) / 2 >= threshold else "double"
    if (d_a > threshold and d_b < 0) or (d_a < 0 and d_b > threshold):
        return "single"
    if d_a < 0 and d_b < 0:
        return "wrong ranking"
    return "none"


def overlap_matrix(sets: Mapping[str, HeadSet]) -> pd.DataFrame:
    """|A∩B| ÷ n in percent (Table 11), tasks by tasks; n is the size of A's set (columns), equal for all
    under one fraction."""
    names = list(sets)
    columns = {}
    for name, heads in sets.items():
        columns[name] = [_percent(heads & of_row, heads) for of_row in sets.values()]
    table = pd.DataFrame(columns, index=pd.Index(names, name="B"), columns=names)
    return table.rename_axis(columns="A")


def _percent(shared: Set[tuple[int, int]], heads: HeadSet) -> float:
    return 100 * len(shared) / len(heads) if heads else float("nan")


def heads_per_layer(sets: Mapping[str, HeadSet], layers: int) -> pd.DataFrame:
    """How many chosen heads lie in each layer (Fig. 4): one row per layer, one column per task, then their
    mean and σ.

    σ is the standard deviation between tasks, with n and not n − 1 below, as the tasks are all there are.
    """
    counts = {}
    for name, heads in sets.items():
        counts[name] = np.bincount([layer for layer, _ in heads], minlength=layers)
    table = pd.DataFrame(counts, index=pd.RangeIndex(layers, name="layer"))
    values = table.to_numpy(dtype=float)  # (layers, tasks)
    return table.assign(mean=values.mean(axis=1), sigma=values.std(axis=1))
