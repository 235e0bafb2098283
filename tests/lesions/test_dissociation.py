"""Dissociation arithmetic against a plain loop and against the paper's own tables."""

import numpy as np
import pytest

from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.lesions._dissociation import (
    chance_corrected,
    heads_per_layer,
    overall,
    overlap_matrix,
    pairwise,
    per_task,
    relative_performance,
    verdict,
)

# Functional specialization, Table 3 (BERT-base, 30 %): rows are lesions, columns tasks: MNLI, QQP, QNLI, AG, SST-2.
TABLE_3 = np.array(
    [
        [58.23, 71.52, 61.39, 91.99, 85.32],
        [62.54, 69.43, 60.80, 91.54, 85.13],
        [59.29, 70.96, 57.50, 91.88, 86.35],
        [65.88, 76.28, 69.35, 80.01, 85.09],
        [69.50, 77.40, 73.96, 86.51, 82.45],
    ]
)
BASE = np.array([83.91, 87.64, 90.26, 94.50, 92.05])
# Table 10: D_A, rows B, columns A; means over seeds of ratios, so they agree with ratios of means to a few hundredths
TABLE_10 = np.array(
    [
        [np.nan, 2.385, 4.321, 12.671, 3.115],
        [5.161, np.nan, 3.657, 12.198, 2.907],
        [1.275, 1.746, np.nan, 12.555, 4.236],
        [9.169, 7.819, 13.135, np.nan, 2.865],
        [13.496, 9.091, 18.246, 6.874, np.nan],
    ]
)


def test_the_papers_tables_follow_from_one_another() -> None:
    rp = relative_performance(TABLE_3, BASE)
    np.testing.assert_allclose(100 * pairwise(rp).T, TABLE_10, atol=0.08)
    np.testing.assert_allclose(
        100 * per_task(rp), [7.28, 5.26, 9.84, 11.07, 3.28], atol=0.05
    )  # its Table 3 swaps QNLI and AG
    assert 100 * overall(rp) == pytest.approx(np.mean([7.28, 5.26, 9.84, 11.07, 3.28]), abs=0.05)


def test_scores_equal_a_loop_and_carry_leading_axes() -> None:
    rng = np.random.default_rng(0)
    performance, intact = rng.random((7, 4, 4)), rng.random((7, 4)) + 0.1
    rp = relative_performance(performance, intact)
    for s in range(7):
        for i in range(4):
            ratio = [performance[s, j, i] / intact[s, i] for j in range(4)]
            expected = np.mean([ratio[j] for j in range(4) if j != i]) - ratio[i]
            assert per_task(rp)[s, i] == pytest.approx(expected)
            for j in range(4):
                assert pairwise(rp)[s, i, j] == pytest.approx(
                    ratio[j] - ratio[i] if i != j else np.nan, nan_ok=True
                )


def test_two_tasks_give_eq_6() -> None:
    rp = np.array([[0.6, 0.95], [0.9, 0.7]])  # rows: lesion A, lesion B
    assert per_task(rp) == pytest.approx([0.9 - 0.6, 0.95 - 0.7])
    assert overall(rp) == pytest.approx(0.275)


@pytest.mark.parametrize(
    ("d_a", "d_b", "expected"),
    [
        (0.15, 0.06, "distinct"), (0.10, 0.10, "distinct"), (0.12, 0.01, "double"), (0.2, -0.01, "single"), (-0.01, 0.2, "single"),
        (0.10, -0.01, "none"), (0.05, -0.01, "none"), (0.3, 0.0, "none"), (-0.2, -0.01, "wrong ranking"), (float("nan"), 0.5, "none"),
    ],
)  # fmt: skip
def test_verdicts(d_a: float, d_b: float, expected: str) -> None:
    assert verdict(d_a, d_b) == expected


def test_meaningless_ratios_are_missing_not_numbers() -> None:
    rp = relative_performance([[0.2, 0.5], [0.1, 0.6]], [-0.1, 1.0])
    assert np.isnan(rp[:, 0]).all()
    assert rp[:, 1] == pytest.approx([0.5, 0.6])
    assert np.isnan(overall(rp))
    assert np.isnan(chance_corrected([[0.4, 0.5]], [0.5, 0.9], [0.5, 0.5])[0, 0])


def test_chance_correction_puts_chance_at_zero() -> None:
    assert chance_corrected([[0.5, 0.25], [0.9, 0.575]], [0.9, 0.9], [0.5, 0.25]) == pytest.approx(
        np.array([[0, 0], [1, 0.5]])
    )


def test_overlap_and_heads_per_layer() -> None:
    sets = {"a": HeadSet([(0, 0), (0, 1), (1, 0)]), "b": HeadSet([(0, 1), (1, 0), (1, 1)])}
    overlap = overlap_matrix(sets)
    assert overlap.loc["a", "b"] == pytest.approx(200 / 3)
    assert overlap.loc["a", "a"] == 100
    layers = heads_per_layer(sets, 3)
    assert layers["a"].tolist() == [2, 1, 0]
    assert layers["mean"].tolist() == [1.5, 1.5, 0]
    assert layers["sigma"].tolist() == [0.5, 0.5, 0]


def test_a_matrix_must_be_square() -> None:
    with pytest.raises(HeadwiseError, match="one lesion per task"):
        per_task(np.ones((3, 2)))
