"""How sure D is: its interval over seeds, its re-split test, and its permutation test."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, groupby, product
from math import comb, factorial, prod

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from headwise._base.inference import MIN_ARRANGEMENTS, MIN_SEEDS, t_interval
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.lesions._dissociation import overall

Array = NDArray[np.float64]
LEAST_APART = 3  # heads of either set that the other lacks, for 20 splits


@dataclass(frozen=True)
class TestOfD:
    """The outcome of a test of D.

    Attributes:
        d: the observed D.
        p: the share of the null at or above it, the observed one counted in; NaN where there are too few
            arrangements for 5 %.
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


def seed_interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Student's t interval of the mean over seeds; (NaN, NaN) below eight seeds, which should be shown one by
    one.

    (A bootstrap of eight seeds, BCa or percentile, covers 88 to 89 % where it says 95 %.)
    """
    if len(np.asarray(values)) < MIN_SEEDS:
        return float("nan"), float("nan")
    low, high = t_interval(values, level)
    return float(low), float(high)


def resplit(
    a: HeadSet, b: HeadSet, rng: np.random.Generator, within_layers: bool = False
) -> tuple[HeadSet, HeadSet]:
    """One draw of the null "which non-shared head belongs to which task is arbitrary".

    The heads in both sets stay in both; the rest of the union is split at random into sets of the same sizes
    as before.

    Args:
        a, b: the two tasks' sets.
        rng: source of chance.
        within_layers: also keep how many heads each set has in each layer.
    """
    drawn: list[tuple[int, int]] = []
    for pool, n_of_a in _pools(a, b, within_layers):
        drawn += [pool[number] for number in rng.permutation(len(pool))[:n_of_a]]
    new_a = HeadSet(drawn)
    return HeadSet((a & b) | new_a), HeadSet((a & b) | ((a ^ b) - new_a))


def every_resplit(a: HeadSet, b: HeadSet, within_layers: bool = False) -> Iterator[tuple[HeadSet, HeadSet]]:
    """All splits that `resplit` draws from, each once; the observed one is among them."""
    shared, pools = a & b, _pools(a, b, within_layers)
    for split in product(*(combinations(pool, n_of_a) for pool, n_of_a in pools)):
        new_a = HeadSet(chain.from_iterable(split))
        yield HeadSet(shared | new_a), HeadSet(shared | ((a ^ b) - new_a))


def _pools(a: HeadSet, b: HeadSet, within_layers: bool) -> list[tuple[list[tuple[int, int]], int]]:
    """Heads that may change sides among one another, and how many of them are A's."""
    moving, only_a = sorted(a ^ b), a - b
    if not within_layers:
        return [(moving, len(only_a))]
    pools = []
    for layer, heads in groupby(moving, key=lambda head: head[0]):
        of_a = [head for head in only_a if head[0] == layer]
        pools.append((list(heads), len(of_a)))
    return pools


def count_splits(a: HeadSet, b: HeadSet, within_layers: bool = False) -> int:
    """In how many ways `resplit` can split the heads that two sets do not share."""
    return prod(comb(len(pool), n_of_a) for pool, n_of_a in _pools(a, b, within_layers))


def too_few_splits(a: HeadSet, b: HeadSet, within_layers: bool = False) -> str:
    """Why two sets have no re-split test, and what would help; empty where they have one."""
    splits = count_splits(a, b, within_layers)
    if splits >= MIN_ARRANGEMENTS:
        return ""
    ways = f"{splits} way{'s' * (splits != 1)} to split the heads that they do not share"
    if within_layers:
        ways += " within layers"
    why = f"they share {len(a & b)} of {len(a)} heads, which leaves {ways}; {MIN_ARRANGEMENTS} are needed"
    if within_layers and count_splits(a, b) >= MIN_ARRANGEMENTS:
        return f"{why} (splits across layers would be enough)"
    if min(len(a), len(b)) < LEAST_APART:
        least = f"at least {LEAST_APART} heads in each set alone"
        return f"{why} (a larger fraction or a model with more heads would help: {least})"
    return f"{why} (a model with more heads would help, or a smaller fraction if the tasks then share fewer)"


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
    """The test of D for one pair: p = (1 + #{D* ≥ D}) ÷ (1 + R) over random re-splits of the heads the tasks
    do not share.

    Where there are no more than R splits in all, every one is tried once, and p is the exact share. With
    fewer than 20 there is no p.

    Args:
        observed: D of the real sets.
        a, b: the two tasks' sets.
        evaluate: gives D for each of many pairs of sets; this is where the model is lesioned again.
        draws: R, at least 19; `dissociate` takes 199 or more.
        seed: the same seed gives the same splits.
        within_layers: re-split within layers only.
    """
    if draws < MIN_ARRANGEMENTS - 1:
        raise HeadwiseError(f"draws is {draws}; below {MIN_ARRANGEMENTS - 1} no p can reach 0.05")
    splits = count_splits(a, b, within_layers)
    if splits < MIN_ARRANGEMENTS:
        return TestOfD(observed, float("nan"), np.array([]), note=too_few_splits(a, b, within_layers))
    if np.isnan(observed):
        return TestOfD(observed, float("nan"), np.array([]), note="D is undefined")
    if splits <= draws + 1:
        null = np.asarray(evaluate(list(every_resplit(a, b, within_layers))), dtype=float)
        return TestOfD(observed, float((null >= observed - 1e-12).mean()), null, exact=True)
    rng = np.random.default_rng(seed)
    null = np.asarray(evaluate([resplit(a, b, rng, within_layers) for _ in range(draws)]), dtype=float)
    return TestOfD(observed, (1 + int((null >= observed - 1e-12).sum())) / (1 + draws), null)


def permutation_test(rp: ArrayLike, *, limit: int = 9999, seed: int = 0) -> TestOfD:
    """The cheap test of D for n tasks: which lesion counts as a task's own is permuted, all n! ways (120 for
    five tasks).

    Needs no new lesions, but with two or three tasks (2 or 6 permutations) p cannot reach 0.05 and is NaN: it
    needs four tasks.

    Args:
        rp: (lesions, tasks), one lesion per task in the same order.
        limit: above this many permutations, that many are drawn at random instead.
        seed: for those draws.
    """
    matrix = np.asarray(rp, dtype=float)
    n = matrix.shape[-1]
    observed = float(overall(matrix))
    if np.isnan(observed):
        return TestOfD(observed, float("nan"), np.array([]), note="D is undefined")
    if factorial(n) < MIN_ARRANGEMENTS:
        note = (
            f"{n} tasks have {factorial(n)} permutations; {MIN_ARRANGEMENTS} are needed for p to reach 0.05, "
            "so 4 tasks or more"
        )
        return TestOfD(observed, float("nan"), np.array([]), note=note)

    def d_of(order: NDArray[np.intp], axis: int = -1) -> Array:
        """D where the lesions of these numbers (..., tasks) count as the tasks' own."""
        return overall(matrix[np.moveaxis(order, axis, -1)])

    test = scipy.stats.permutation_test(
        (np.arange(n),),
        d_of,
        permutation_type="pairings",
        alternative="greater",
        n_resamples=limit,
        rng=np.random.default_rng(seed),
    )
    exact = factorial(n) <= limit
    return TestOfD(observed, float(test.pvalue), np.asarray(test.null_distribution), exact)
