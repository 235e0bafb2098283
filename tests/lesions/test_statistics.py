"""Intervals and tests of D: against scipy, by enumeration, and their level over simulated studies."""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.inference import false_discovery
from headwise.lesions.dissociation import overall
from headwise.lesions.resampling import metric_draws
from headwise.lesions.statistics import (
    interval,
    permutation_test,
    resample_counts,
    resplit,
    resplit_test,
    seed_interval,
)
from headwise.tasks import metrics

LAYERS, HEADS = 4, 6
EVERY = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


class SimulatedModel:
    """A make-believe model: each head carries some weight for each of two tasks, and a lesion breaks the examples it outweighs."""

    def __init__(self, rng: np.random.Generator, specific: float = 0.0, sets: tuple[HeadSet, HeadSet] | None = None) -> None:
        self.weight = rng.gamma(1.0, size=(LAYERS, HEADS, 2))  # (layers, heads, tasks)
        if sets is not None:
            for task in range(2):
                self.weight[..., task] += specific * sets[task].to_mask((LAYERS, HEADS))
        self.strength = rng.gamma(12.0, size=(60, 2))  # (examples, tasks): how much damage an example survives

    def d_of(self, pairs: Sequence[tuple[HeadSet, HeadSet]]) -> list[float]:
        masks = np.array(
            [[s.to_mask((LAYERS, HEADS)) for s in pair] for pair in pairs], dtype=float
        )  # (pairs, lesions, layers, heads)
        damage = np.einsum("pslh,lht->pst", masks, self.weight)  # (pairs, lesions, tasks)
        right = (self.strength[None, None] > damage[:, :, None]).mean(axis=2)  # (pairs, lesions, tasks)
        return overall(right).tolist()


def random_pair(rng: np.random.Generator) -> tuple[HeadSet, HeadSet]:
    order = rng.permutation(len(EVERY))
    shared = [EVERY[i] for i in order[:3]]
    return HeadSet(shared + [EVERY[i] for i in order[3:9]]), HeadSet(shared + [EVERY[i] for i in order[9:15]])


@pytest.mark.parametrize("within_layers", [False, True])
def test_the_level_of_the_resplit_test_is_five_percent(within_layers: bool) -> None:
    studies, p = 300, []
    for study in range(studies):
        rng = np.random.default_rng([11, study])
        model = SimulatedModel(rng)
        observed = resplit(*random_pair(rng), rng, within_layers)  # the null: the observed split is itself drawn at random
        p.append(
            resplit_test(model.d_of([observed])[0], *observed, model.d_of, draws=59, seed=study, within_layers=within_layers).p
        )
    rejected = int((np.array(p) <= 0.05).sum())
    # within error: the exact 99 % binomial interval around 5 % of 300 studies
    assert stats.binom.ppf(0.005, studies, 0.05) <= rejected <= stats.binom.ppf(0.995, studies, 0.05)
    assert 0.4 < np.nanmean(p) < 0.62


def test_the_resplit_test_finds_specific_heads() -> None:
    found = 0
    for study in range(30):
        rng = np.random.default_rng([12, study])
        pair = random_pair(rng)
        model = SimulatedModel(rng, specific=2.0, sets=pair)
        found += resplit_test(model.d_of([pair])[0], *pair, model.d_of, draws=99, seed=study).p <= 0.05
    assert found >= 27


def test_the_level_of_the_permutation_test_is_five_percent() -> None:
    studies = 400
    rng = np.random.default_rng(5)
    p = [permutation_test(rng.random((5, 5)) * rng.random((5, 1))).p for _ in range(studies)]
    rejected = int((np.array(p) <= 0.05).sum())
    assert stats.binom.ppf(0.005, studies, 0.05) <= rejected <= stats.binom.ppf(0.995, studies, 0.05)


def test_permutation_test_equals_enumeration() -> None:
    rp = np.random.default_rng(3).random((4, 4))
    null = [float(overall(rp[list(order)])) for order in permutations(range(4))]
    found = permutation_test(rp)
    assert found.exact
    assert sorted(found.null) == pytest.approx(sorted(null))
    assert found.p == pytest.approx(np.mean([value >= float(overall(rp)) - 1e-12 for value in null]))
    assert permutation_test(np.eye(5) * -1 + 1).p == pytest.approx(1 / 120)


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


def test_equal_sets_leave_nothing_to_test() -> None:
    a, b = random_pair(np.random.default_rng(0))
    found = resplit_test(0.0, a, a, lambda pairs: [0.0] * len(pairs))
    assert np.isnan(found.p)
    assert "no head" in found.note
    with pytest.raises(HeadwiseError, match="199"):
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
            assert draws[d, lesion] == pytest.approx(metrics.score(metric, "classes", predictions[lesion, rows], labels[rows]))


@pytest.mark.parametrize(
    ("metric", "kind", "columns"), [("count-f1", "spans", 3), ("las", "dependencies", 4), ("spearman", "number", 0)]
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
            assert draws[d, lesion] == pytest.approx(metrics.score(metric, kind, predictions[lesion][rows], labels[rows]))


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
    assert low < 4 < high


def test_false_discovery_skips_missing_tests() -> None:
    p = np.array([0.01, np.nan, 0.04, 0.03])
    expected = stats.false_discovery_control([0.01, 0.04, 0.03])
    assert false_discovery(p) == pytest.approx([expected[0], np.nan, expected[1], expected[2]], nan_ok=True)
