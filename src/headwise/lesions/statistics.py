"""How sure the dissociation scores are: bootstrap over examples, the re-split test of D, its permutation form, and FDR."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.lesions.dissociation import overall

Array = NDArray[np.float64]

MIN_SEEDS = 8  # fewer seeds are shown one by one: their bootstrap would be far too narrow


@dataclass(frozen=True)
class TestOfD:
    """The outcome of a test of D.

    Attributes:
        d: the observed D.
        p: the share of the null at or above it, the observed one counted in; NaN where there is nothing to permute.
        null: the null's values of D.
        exact: every arrangement was tried, not a sample.
        note: empty, or why there is no p.
    """

    __test__ = False  # not a pytest class

    d: float
    p: float
    null: Array
    exact: bool = False
    note: str = ""


def resample_counts(n: int, draws: int, seed: int | np.random.Generator) -> NDArray[np.int64]:
    """How often each of n examples occurs in each bootstrap sample: (draws, n), rows summing to n."""
    if n < 1:
        raise HeadwiseError("there are no examples to resample")
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws)


def interval(draws: ArrayLike, level: float = 0.95, axis: int = 0) -> tuple[Array, Array]:
    """The percentile interval of bootstrap draws along `axis`; NaN where a draw is NaN (its metric was undefined)."""
    tail = (1 - level) / 2
    low, high = np.quantile(np.asarray(draws, dtype=float), [tail, 1 - tail], axis=axis)
    return low, high


def seed_interval(values: ArrayLike, level: float = 0.95, draws: int = 9999, seed: int = 0) -> tuple[float, float]:
    """A bootstrap interval of the mean over seeds; (NaN, NaN) below eight seeds, which are to be shown one by one."""
    array = np.asarray(values, dtype=float)
    if len(array) < MIN_SEEDS:
        return float("nan"), float("nan")
    found = stats.bootstrap(
        (array,), np.mean, n_resamples=draws, confidence_level=level, method="BCa", rng=np.random.default_rng(seed)
    ).confidence_interval
    return float(found.low), float(found.high)


def resplit(a: HeadSet, b: HeadSet, rng: np.random.Generator, within_layers: bool = False) -> tuple[HeadSet, HeadSet]:
    """One draw of the null "which non-shared head belongs to which task is arbitrary".

    The heads in both sets stay in both; the rest of the union is split at random into sets of the same sizes as before.

    Args:
        a, b: the two tasks' sets.
        rng: source of chance.
        within_layers: also keep how many heads each set has in each layer.
    """
    shared, only_a, only_b = a & b, a - b, b - a
    pool = sorted(only_a | only_b)
    if not within_layers:
        to_a = rng.permutation(len(pool))[: len(only_a)]
        new_a = HeadSet(pool[i] for i in to_a)
        return HeadSet(shared | new_a), HeadSet(shared | (HeadSet(pool) - new_a))
    new_a = HeadSet()
    for layer in sorted({layer for layer, _ in pool}):
        here = [head for head in pool if head[0] == layer]
        wanted = sum(head[0] == layer for head in only_a)
        new_a = HeadSet([*new_a, *(here[i] for i in rng.permutation(len(here))[:wanted])])
    return HeadSet(shared | new_a), HeadSet(shared | (HeadSet(pool) - new_a))


def resplit_test(
    observed: float,
    a: HeadSet,
    b: HeadSet,
    evaluate: Callable[[Sequence[tuple[HeadSet, HeadSet]]], Sequence[float]],
    *,
    draws: int = 199,
    seed: int = 0,
    within_layers: bool = False,
) -> TestOfD:
    """The test of D for one pair: p = (1 + #{D* ≥ D}) ÷ (1 + R) over random re-splits of the heads the tasks do not share.

    Args:
        observed: D of the real sets.
        a, b: the two tasks' sets.
        evaluate: gives D for each of many pairs of sets; this is where the model is lesioned again.
        draws: R, at least 199 for a 5 % test worth its name.
        seed: the same seed gives the same splits.
        within_layers: re-split within layers only.
    """
    if draws < 19:
        raise HeadwiseError(f"draws is {draws}; below 19 no p can reach 0.05, and 199 or more are advised")
    if not (a ^ b) or (within_layers and not _can_move(a, b)):
        return TestOfD(observed, float("nan"), np.array([]), note="the two sets differ in no head that could change sides")
    if np.isnan(observed):
        return TestOfD(observed, float("nan"), np.array([]), note="D is undefined")
    rng = np.random.default_rng(seed)
    null = np.asarray(evaluate([resplit(a, b, rng, within_layers) for _ in range(draws)]), dtype=float)
    return TestOfD(observed, (1 + int((null >= observed - 1e-12).sum())) / (1 + draws), null)


def _can_move(a: HeadSet, b: HeadSet) -> bool:
    return bool({layer for layer, _ in a - b} & {layer for layer, _ in b - a})


def permutation_test(rp: ArrayLike, *, limit: int = 9999, seed: int = 0) -> TestOfD:
    """The cheap test of D for n tasks: which lesion counts as a task's own is permuted, all n! ways (120 for five tasks).

    Needs no new lesions, but with few tasks p cannot be small (1/2 for two, 1/24 for four): then use the re-split test.

    Args:
        rp: (lesions, tasks), one lesion per task in the same order.
        limit: above so many permutations, that many are drawn at random instead.
        seed: for those draws.
    """
    matrix = np.asarray(rp, dtype=float)
    n = matrix.shape[-1]
    observed = float(overall(matrix))
    if np.isnan(observed):
        return TestOfD(observed, float("nan"), np.array([]), note="D is undefined")

    def d_of(order: NDArray[np.intp], axis: int = -1) -> Array:  # (..., tasks) numbers of the lesions that count as own
        return overall(matrix[np.moveaxis(order, axis, -1)])

    found = stats.permutation_test(
        (np.arange(n),),
        d_of,
        permutation_type="pairings",
        alternative="greater",
        n_resamples=limit,
        rng=np.random.default_rng(seed),
    )
    return TestOfD(observed, float(found.pvalue), np.asarray(found.null_distribution), exact=factorial(n) <= limit)
