"""Intervals and tests of D: against scipy and by enumeration; their level: tests/statistics."""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from headwise._base.inference import crossed_t, false_discovery, share_interval, t_interval, why_no_t
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.lesions._dissociation import overall
from headwise.lesions._intervals import interval, mean_interval, resample_counts
from headwise.lesions._resampling import metric_draws
from headwise.lesions._statistics import (
    every_resplit,
    permutation_test,
    resplit,
    resplit_test,
    seed_interval,
)
from headwise.tasks import _metrics as metrics

LAYERS, HEADS = 4, 6
EVERY = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


def random_pair(rng: np.random.Generator) -> tuple[HeadSet, HeadSet]:
    order = rng.permutation(len(EVERY))
    shared = [EVERY[i] for i in order[:3]]
    return HeadSet(shared + [EVERY[i] for i in order[3:9]]), HeadSet(shared + [EVERY[i] for i in order[9:15]])


def test_permutation_test_equals_enumeration() -> None:
    rp = np.random.default_rng(3).random((4, 4))
    null = [float(overall(rp[list(order)])) for order in permutations(range(4))]
    found = permutation_test(rp)
    assert found.exact
    assert sorted(found.null) == pytest.approx(sorted(null))
    assert found.p == pytest.approx(np.mean([value >= float(overall(rp)) - 1e-12 for value in null]))
    assert permutation_test(np.eye(5) * -1 + 1).p == pytest.approx(1 / 120)
    few = permutation_test(np.eye(3) * -1 + 1)
    assert (few.d, "6 permutations" in few.note) == (1.0, True)
    assert np.isnan(few.p)


def test_resplit_keeps_sizes_shared_heads_and_union() -> None:
    rng = np.random.default_rng(0)
    a, b = random_pair(rng)
    a = a - HeadSet([next(iter(a - b))])  # unequal sizes
    for within in (False, True):
        new_a, new_b = resplit(a, b, rng, within)
        assert (len(new_a), len(new_b)) == (len(a), len(b))
        assert (new_a & new_b, new_a | new_b) == (a & b, a | b)
        if within:
            assert sorted(layer for layer, _ in new_a) == sorted(layer for layer, _ in a)


def test_resplits_are_uniform() -> None:
    a, b = HeadSet([(0, 0), (0, 1)]), HeadSet([(1, 0), (1, 1)])
    rng = np.random.default_rng(1)
    drawn = [str(sorted(resplit(a, b, rng)[0])) for _ in range(3000)]
    assert stats.chisquare(np.unique(drawn, return_counts=True)[1]).pvalue > 0.001
    assert len(set(drawn)) == 6


@pytest.mark.parametrize("within", [False, True])
def test_few_splits_are_all_tried_once(within: bool) -> None:
    a, b = HeadSet([(0, 0), (0, 1), (0, 2), (2, 5)]), HeadSet([(0, 3), (0, 4), (0, 5), (2, 5)])
    splits = list(every_resplit(a, b, within))
    assert len({(tuple(sorted(x)), tuple(sorted(y))) for x, y in splits}) == len(splits) == 20
    assert all((len(x), x & y, x | y) == (4, HeadSet([(2, 5)]), a | b) for x, y in splits)
    asked: list[int] = []

    def number(
        pairs: Sequence[tuple[HeadSet, HeadSet]],
    ) -> list[float]:  # how many of A's own heads a split gives to A
        asked.append(len(pairs))
        return [float(len(x & a)) for x, _ in pairs]

    found = resplit_test(4.0, a, b, number, draws=199, within_layers=within)
    assert (found.p, found.exact, asked) == (1 / 20, True, [20])
    few = resplit_test(0.0, a, b - HeadSet([(0, 3), (0, 4)]), number, draws=199, within_layers=within)
    assert np.isnan(few.p)
    assert "leaves 4 ways to split" in few.note


def test_equal_sets_leave_nothing_to_test() -> None:
    a, b = random_pair(np.random.default_rng(0))
    found = resplit_test(0.0, a, a, lambda pairs: [0.0] * len(pairs))
    assert np.isnan(found.p)
    assert "share 9 of 9 heads, which leaves 1 way" in found.note
    with pytest.raises(HeadwiseError, match="below 19"):
        resplit_test(0.0, a, b, lambda pairs: [0.0], draws=5)


@pytest.mark.parametrize("metric", ["accuracy", "f1", "macro-f1", "matthews"])
def test_class_metrics_of_resamples_equal_metrics_of_resampled_rows(metric: str) -> None:
    rng = np.random.default_rng(2)
    predictions, labels = rng.integers(0, 2, (3, 40)), rng.integers(0, 2, 40)
    counts = resample_counts(40, 25, seed=1)
    assert (counts.sum(axis=1) == 40).all()
    draws = metric_draws(metric, "classes", predictions, labels, counts)
    for d in range(25):
        rows = [e for e in range(40) for _ in range(counts[d, e])]
        for lesion in range(3):
            assert draws[d, lesion] == pytest.approx(
                metrics.score(metric, "classes", predictions[lesion, rows], labels[rows])
            )


@pytest.mark.parametrize(
    ("metric", "kind", "columns"),
    [("count-f1", "spans", 3), ("las", "dependencies", 4), ("spearman", "number", 0)],
)
def test_other_metrics_of_resamples(metric: str, kind: str, columns: int) -> None:
    rng = np.random.default_rng(4)
    predictions = rng.integers(1, 9, (2, 30, columns)) if columns else rng.random((2, 30))
    labels = rng.random(30)
    counts = resample_counts(30, 10, seed=1)
    draws = metric_draws(metric, kind, predictions, labels, counts)
    for d in range(10):
        rows = np.repeat(np.arange(30), counts[d])
        for lesion in range(2):
            assert draws[d, lesion] == pytest.approx(
                metrics.score(metric, kind, predictions[lesion][rows], labels[rows])
            )


def test_the_interval_agrees_with_scipy() -> None:
    rng = np.random.default_rng(6)
    right = (rng.random((2, 200)) < np.array([[0.9], [0.6]])).astype(int)
    counts = resample_counts(200, 4000, seed=0)
    draws = metric_draws("accuracy", "classes", right, np.ones(200, int), counts)
    low, high = interval(draws[:, 1] / draws[:, 0])
    oracle = stats.bootstrap(
        (right[1], right[0]), lambda a, b, axis: a.mean(axis) / b.mean(axis), paired=True, vectorized=True, method="percentile",
        n_resamples=4000, rng=np.random.default_rng(9),
    ).confidence_interval  # fmt: skip
    assert (low, high) == pytest.approx((oracle.low, oracle.high), abs=0.01)


def test_few_seeds_get_no_interval() -> None:
    assert np.isnan(seed_interval([1.0, 2.0, 3.0])).all()
    low, high = seed_interval(np.arange(9.0))
    assert (low, high) == pytest.approx(tuple(stats.ttest_1samp(np.arange(9.0), 0).confidence_interval()))


def test_false_discovery_skips_missing_tests() -> None:
    p = np.array([0.01, np.nan, 0.04, 0.03])
    expected = stats.false_discovery_control([0.01, 0.04, 0.03])
    assert false_discovery(p) == pytest.approx([expected[0], np.nan, expected[1], expected[2]], nan_ok=True)


def test_units_that_all_agree_have_no_interval_but_a_reason() -> None:
    same, other = np.full(9, 0.3), np.arange(9.0)
    low, high = t_interval(np.stack([same, other]))
    assert np.isnan([low[0], high[0]]).all()
    assert (low[1], high[1]) == pytest.approx(tuple(stats.ttest_1samp(other, 0).confidence_interval()))
    assert why_no_t(same, "seed") == "every seed has the same value, which says nothing about its spread"
    assert why_no_t(other[:1], "seed") == "1 seed, 2 are needed"
    assert why_no_t(other, "seed") == ""
    low, high, p = crossed_t(np.full((6, 3), 0.1))
    assert np.isnan([low, high]).all()
    assert float(p) == pytest.approx(0)  # the sign-flip test, whose p is the larger, decides
    assert np.isfinite(crossed_t(np.random.default_rng(0).normal(size=(6, 3)))[0])
    draws = np.random.default_rng(0).normal(size=(500, 2))
    draws[:, 0] = 1 / 3
    low, high = interval(draws)
    assert np.isnan([low[0], high[0]]).all()
    assert low[1] < 0 < high[1]


@pytest.mark.parametrize("kind", ["skewed", "few that differ", "two classes"])
def test_the_interval_of_a_mean_equals_a_loop_over_resamples(kind: str) -> None:
    """The wider of percentiles and bootstrap of t, both with three more examples that differ."""
    rng = np.random.default_rng(1)
    n, draws = 60, 199
    values = (
        rng.gamma(0.5, size=n)
        if kind != "few that differ"
        else rng.permutation(np.arange(n) < 4).astype(float)
    )
    strata = (
        [(np.arange(20), 1.0), (np.arange(20, n), -1.0)] if kind == "two classes" else [(np.arange(n), 1.0)]
    )
    counts = np.zeros((draws, n), np.int64)
    for number, (rows, _) in enumerate(strata):
        counts[:, rows] = resample_counts(len(rows), draws, number)
    low, high = mean_interval(values, counts, strata=strata)

    def mean_and_error(which: list[np.ndarray]) -> tuple[float, float]:
        mean, square = 0.0, 0.0
        for (rows, weight), x in zip(strata, which, strict=True):
            own = values[rows]
            added = 3 * (own[own != 0] ** 2).mean()
            mean, square = (
                mean + weight * x.mean(),
                square + (((x - x.mean()) ** 2).sum() + added) / len(x) ** 2,
            )
        return mean, square**0.5

    value, error = mean_and_error([values[rows] for rows, _ in strata])
    sampled = [
        mean_and_error([np.repeat(values[rows], counts[draw, rows]) for rows, _ in strata])
        for draw in range(draws)
    ]
    smallest = min(len(rows) for rows, _ in strata)
    if smallest < 50:
        assert np.isnan([low, high]).all()
        return
    t = sorted((mean - value) / spread for mean, spread in sampled)
    ends = [value - float(np.quantile(t, q, method="weibull")) * error for q in (0.975, 0.025)]
    tail = stats.norm.cdf(stats.t.ppf(0.025, n - 1) * (n / (n - 1)) ** 0.5)
    scale = (1 + 3 / np.count_nonzero(values)) ** 0.5
    percentiles = [
        value + scale * (float(np.quantile([m for m, _ in sampled], q, method="weibull")) - value)
        for q in (tail, 1 - tail)
    ]
    assert (low, high) == pytest.approx((min(ends[0], percentiles[0]), max(ends[1], percentiles[1])))


def test_the_interval_of_a_difference_of_two_classes_adds_their_errors() -> None:
    rng = np.random.default_rng(2)
    values = np.concatenate([rng.normal(5, 1, 400), rng.normal(3, 2, 300)])
    strata = [(np.arange(400), 1.0), (np.arange(400, 700), -1.0)]
    counts = np.hstack([resample_counts(400, 1999, 0), resample_counts(300, 1999, 1)])
    oracle = stats.ttest_ind(values[:400], values[400:], equal_var=False).confidence_interval()
    assert mean_interval(values, counts, strata=strata) == pytest.approx((oracle.low, oracle.high), abs=0.03)


def test_few_examples_that_differ_widen_the_interval_and_none_leave_it_out() -> None:
    draws = np.random.default_rng(3).normal(0.1, 0.02, size=999)
    low, high = interval(draws, examples=80)
    for differing in (1, 2.5, 40):
        wide = interval(draws, examples=80, value=0.1, differing=differing)
        scale = (1 + 3 / differing) ** 0.5
        assert wide == pytest.approx((0.1 - (0.1 - low) * scale, 0.1 + (high - 0.1) * scale))
    counts = resample_counts(80, 199, 0)
    assert np.isnan(mean_interval(np.zeros(80), counts)).all()
    assert np.isnan(mean_interval(np.ones(49), resample_counts(49, 199, 0))).all()


def test_shares_have_exact_intervals() -> None:
    """Either end is the share that would give so few, or so many, in 2.5 % of samples."""
    for right, n in ((50, 50), (0, 80), (77, 80), (120, 400)):
        low, high = share_interval(right, n)
        if right:
            assert stats.binom.sf(right - 1, n, low) == pytest.approx(0.025)
        if right < n:
            assert stats.binom.cdf(right, n, high) == pytest.approx(0.025)
        assert (low == 0) == (right == 0)
        assert (high == 1) == (right == n)
    assert np.isnan(share_interval(49, 49)).all()
