"""Metrics against scikit-learn and scipy, and from any resample of rows."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from sklearn import metrics as sk

from headwise.errors import HeadwiseError
from headwise.tasks import KINDS, _metrics as metrics

labels = st.lists(st.integers(0, 3), min_size=2, max_size=40)


@settings(max_examples=60, deadline=None)
@given(labels, st.integers(0, 10**6))
def test_class_metrics_agree_with_scikit_learn(gold: list[int], seed: int) -> None:
    true = np.array(gold)
    guess = np.random.default_rng(seed).integers(0, 4, len(true))
    assert metrics.accuracy(guess, true) == pytest.approx(sk.accuracy_score(true, guess))
    assert metrics.macro_f1(guess, true) == pytest.approx(
        sk.f1_score(true, guess, average="macro", zero_division=0)
    )
    assert metrics.matthews(guess, true) == pytest.approx(sk.matthews_corrcoef(true, guess), abs=1e-12)
    two = (guess % 2, true % 2)
    assert metrics.f1(*two) == pytest.approx(sk.f1_score(two[1], two[0], zero_division=0))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=3, max_size=30), st.integers(0, 10**6))
def test_correlations_agree_with_scipy(gold: list[float], seed: int) -> None:
    true = np.round(np.array(gold), 2)
    guess = np.round(np.random.default_rng(seed).normal(size=len(true)), 1)
    if np.ptp(true) > 0 and np.ptp(guess) > 0:
        assert metrics.pearson(guess, true) == pytest.approx(stats.pearsonr(guess, true)[0], abs=1e-9)
        assert metrics.spearman(guess, true) == pytest.approx(stats.spearmanr(guess, true)[0], abs=1e-9)
    else:
        assert metrics.pearson(guess, true) == 0


def test_count_metrics_are_micro_averages() -> None:
    counts = np.array([[2, 3, 4], [0, 1, 0], [5, 5, 6]])
    assert metrics.score("count-f1", "spans", counts) == pytest.approx(2 * 7 / (9 + 10))
    assert metrics.score("count-accuracy", "tags", counts) == pytest.approx(7 / 10)
    arcs = np.array([[3, 5, 5, 4], [2, 4, 4, 4]])
    assert metrics.score("las", "dependencies", arcs) == pytest.approx(5 / 9)
    assert metrics.score("uas", "dependencies", arcs) == pytest.approx(8 / 9)
    tokens = np.array([[1, 4, 4 * np.log(2)], [3, 4, 4 * np.log(8)]])
    assert metrics.score("token-accuracy", "next-token", tokens) == pytest.approx(0.5)
    assert metrics.score("perplexity", "next-token", tokens) == pytest.approx(4)


def test_score_of_a_resample_is_the_score_of_those_rows() -> None:
    rng = np.random.default_rng(0)
    guess, true = rng.integers(0, 2, 50), rng.integers(0, 2, 50)
    rows = rng.integers(0, 50, 50)
    assert metrics.score("matthews", "classes", guess[rows], true[rows]) == pytest.approx(
        sk.matthews_corrcoef(true[rows], guess[rows])
    )


@pytest.mark.parametrize(
    ("name", "kind", "predictions", "gold", "message"),
    [
        ("las", "classes", [0], [0], "does not fit"),
        ("accuracy", "classes", [0, 1], [0], "numbers must match"),
        ("accuracy", "classes", [], [], "no examples"),
        ("spearman", "number", [0.0, np.nan], [0.0, 1.0], "NaN, first at example 1"),
        ("count-f1", "spans", [1, 2, 3], None, r"\(examples, 3\)"),
        ("uas", "dependencies", [[1, 2, 3]], None, r"\(examples, 4\)"),
    ],
)
def test_wrong_input_is_named(
    name: str, kind: str, predictions: list[float], gold: list[float] | None, message: str
) -> None:
    with pytest.raises(HeadwiseError, match=message):
        metrics.score(name, kind, predictions, gold)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_metrics_that_read_its_predictions(kind: str) -> None:
    columns = len(KINDS[kind].counts)
    predictions, gold = (
        (np.ones((4, columns)), None) if columns else (np.array([0, 1, 1, 0]), np.array([0, 1, 1, 0]))
    )
    for name in KINDS[kind].metrics:
        assert np.isfinite(metrics.score(name, kind, predictions, gold))
    assert {name for other in KINDS.values() for name in other.metrics} == set(metrics.METRICS)
