"""The Mantel tests against enumeration by hand; their level: tests/statistics."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy.stats import pearsonr, rankdata, spearmanr

from headwise.errors import HeadwiseError
from headwise.similarity import agreement, link, mantel, partial_mantel
from headwise.similarity._matrices import labelled

TASKS = list("abcde")
UPPER = np.triu_indices(5, 1)


def symmetric(rng: np.random.Generator) -> np.ndarray:
    values = rng.normal(size=(5, 5))
    return values + values.T


def matrix(values: np.ndarray) -> xr.DataArray:
    return labelled(values, TASKS[: len(values)], "test")


@pytest.mark.parametrize(("kind", "statistic"), [("pearson", pearsonr), ("spearman", spearmanr)])
def test_mantel_equals_a_loop_over_all_relabellings(kind, statistic) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    a, b = symmetric(rng), symmetric(rng)
    loop = [statistic(a[np.ix_(order, order)][UPPER], b[UPPER]).statistic for order in permutations(range(5))]
    result = mantel(matrix(a), matrix(b), kind=kind, alternative="less")
    assert result.correlation == pytest.approx(loop[0])
    assert result.p == pytest.approx(np.mean(np.array(loop) <= loop[0] + 1e-12))
    assert (result.permutations, result.exact) == (120, True)
    both = mantel(matrix(a), matrix(b), kind=kind)
    assert both.p == pytest.approx(np.mean(np.abs(loop) >= abs(loop[0]) - 1e-12))
    shuffled = matrix(a).sel(task=list("cabed"), other=list("cabed"))
    again = mantel(shuffled, matrix(b), kind=kind, alternative="less")
    assert (again.p, again.correlation) == (result.p, pytest.approx(result.correlation))


def test_the_smallest_p_of_five_tasks_is_one_in_120() -> None:
    a = symmetric(np.random.default_rng(3))
    assert mantel(matrix(a), matrix(a), alternative="greater").p == pytest.approx(1 / 120)


def test_of_many_tasks_random_relabellings_are_compared_with_the_observed_one() -> None:
    rng = np.random.default_rng(5)
    a, noise = (np.add(v := rng.normal(size=(8, 8)), v.T) for _ in range(2))
    tasks = list("abcdefgh")
    first, second = labelled(a, tasks, "test"), labelled(a + 1.5 * noise, tasks, "test")
    found = mantel(first, second, alternative="greater", draws=999, seed=3)
    assert (found.permutations, found.exact) == (1000, False)
    assert found.p == mantel(first, second, alternative="greater", draws=999, seed=3).p
    assert found.p >= 1 / 1000
    assert mantel(first, first, alternative="greater", draws=199).p == pytest.approx(1 / 200)
    unrelated = mantel(first, labelled(noise, tasks, "test"), alternative="greater", draws=4999)
    upper, random = np.triu_indices(8, 1), np.random.default_rng(9)
    by_hand = [
        pearsonr(a[np.ix_(o, o)][upper], noise[upper]).statistic
        for o in (random.permutation(8) for _ in range(2000))
    ]
    assert unrelated.p == pytest.approx(np.mean(np.array(by_hand) >= unrelated.correlation), abs=0.04)


def test_the_partial_test_of_ranks_is_that_of_ranked_matrices() -> None:
    rng = np.random.default_rng(6)
    a, b = symmetric(rng), symmetric(rng)
    ranked = np.zeros((2, 5, 5))
    for ranks, values in zip(ranked, (a, b), strict=True):
        ranks[UPPER] = rankdata(values[UPPER])
        ranks += ranks.T
    found = partial_mantel(matrix(a), matrix(b), matrix(SAME), kind="spearman")
    assert found.correlation == pytest.approx(partial_mantel(*map(matrix, ranked), matrix(SAME)).correlation)


KINDS = np.array([0, 0, 0, 1, 1])
SAME = (KINDS[:, None] == KINDS[None]).astype(float)


def test_partial_correlation_equals_the_textbook_formula() -> None:
    rng = np.random.default_rng(1)
    a, b = (symmetric(rng) for _ in range(2))
    r = {
        name: pearsonr(x[UPPER], y[UPPER]).statistic
        for name, x, y in (("ab", a, b), ("ac", a, SAME), ("bc", b, SAME))
    }
    expected = (r["ab"] - r["ac"] * r["bc"]) / np.sqrt((1 - r["ac"] ** 2) * (1 - r["bc"] ** 2))
    found = partial_mantel(matrix(a), matrix(b), matrix(SAME))
    assert found.correlation == pytest.approx(expected)
    assert (found.permutations, found.exact) == (12, True)
    assert np.isnan(found.p)
    assert "12 relabellings" in found.note  # 3! × 2!: p could not reach 0.05
    with pytest.raises(HeadwiseError, match="of one group"):
        partial_mantel(matrix(a), matrix(b), matrix(symmetric(rng)))


def test_tasks_are_relabelled_within_their_groups_only() -> None:
    kinds = np.array([0, 1, 0, 1, 0, 1])
    tasks = list("abcdef")
    rng = np.random.default_rng(2)
    a, b = (np.add(v := rng.normal(size=(6, 6)), v.T) for _ in range(2))
    same = (kinds[:, None] == kinds[None]).astype(float)
    upper = np.triu_indices(6, 1)

    def fit(m: np.ndarray) -> np.ndarray:
        within, across = m[upper][same[upper] == 1].mean(), m[upper][same[upper] == 0].mean()
        return m[upper] - np.where(same[upper] == 1, within, across)

    loop = [
        np.corrcoef(fit(a[np.ix_(order, order)]), fit(b))[0, 1]
        for order in map(list, permutations(range(6)))
        if (kinds[order] == kinds).all()
    ]
    found = partial_mantel(*(labelled(m, tasks, "test") for m in (a, b, same)), alternative="greater")
    assert found.permutations == len(loop) == 36
    assert found.p == pytest.approx(np.mean(np.array(loop) >= loop[0] - 1e-12))


def test_three_tasks_are_too_few_for_a_p() -> None:
    found = mantel(*(matrix(symmetric(np.random.default_rng(i))[:3, :3]) for i in range(2)))
    assert np.isfinite(found.correlation)
    assert np.isnan(found.p)
    assert "6 relabellings" in found.note


def test_a_correlation_that_the_paradigm_explains_vanishes_in_the_partial_test() -> None:
    rng = np.random.default_rng(2)
    a, b = (5 * SAME + 0.1 * symmetric(rng) for _ in range(2))
    given = matrix(SAME)
    assert mantel(matrix(a), matrix(b)).correlation > 0.95
    assert abs(partial_mantel(matrix(a), matrix(b), given).correlation) < 0.5


def test_link_finds_a_planted_relation_and_reports_paradigm_means() -> None:
    rng = np.random.default_rng(4)
    similarity = symmetric(rng)
    paradigm = dict(zip(TASKS, ("two", "two", "two", "one", "one"), strict=True))
    result = link(
        {"planted": matrix(similarity), "noise": matrix(symmetric(rng))},
        matrix(10 - 2 * similarity),
        paradigm=paradigm,
        alternative="less",
    )
    planted = result.tests[
        (result.tests["similarity"] == "planted") & (result.tests["kind"] == "pearson")
    ].iloc[0]
    assert planted["correlation"] == pytest.approx(-1)
    assert planted["p"] == pytest.approx(1 / 120)
    assert len(result.pairs) == 10
    same = result.pairs["same_paradigm"]
    assert result.paradigm_means == pytest.approx(
        {
            "within": result.pairs["dissociation"][same].mean(),
            "across": result.pairs["dissociation"][~same].mean(),
        }
    )
    given = matrix(np.array([[paradigm[a] == paradigm[b] for b in TASKS] for a in TASKS], dtype=float))
    options: dict[str, Any] = {"kind": planted["kind"], "alternative": "less"}
    partial = partial_mantel(matrix(similarity), matrix(10 - 2 * similarity), given, **options)
    np.testing.assert_equal(
        [planted[f"partial_{name}"] for name in ("correlation", "p", "note")],
        [partial.correlation, partial.p, partial.note],
    )
    plain = link({"planted": matrix(similarity)}, matrix(10 - 2 * similarity)).tests
    assert not any(column.startswith("partial") for column in plain)  # without paradigms
    flat = link({"flat": matrix(np.ones((5, 5)))}, matrix(similarity)).tests
    assert flat[["correlation", "p"]].isna().all().all()
    assert (
        flat["note"].str.startswith("no test: one of the matrices is constant over the task pairs").all()
    )  # not a bare dash
    assert (result.tests["note"] == "").all()
    assert agreement({"x": matrix(similarity), "y": matrix(similarity)})[
        "correlation"
    ].item() == pytest.approx(1)


def test_unusable_matrices_are_named() -> None:
    a = np.arange(25.0).reshape(5, 5)
    with pytest.raises(HeadwiseError, match="not symmetric: a, b is 1 and 5"):
        mantel(matrix(a), matrix(a))
    with pytest.raises(HeadwiseError, match="different tasks"):
        mantel(
            matrix(symmetric(np.random.default_rng(0))), matrix(symmetric(np.random.default_rng(0))[:4, :4])
        )
    with pytest.raises(HeadwiseError, match="at least three tasks"):
        mantel(matrix(np.eye(2)), matrix(np.eye(2)))
    with pytest.raises(HeadwiseError, match="constant"):
        mantel(matrix(np.ones((5, 5))), matrix(np.ones((5, 5))))
    missing = symmetric(np.random.default_rng(0))
    missing[0, 1] = missing[1, 0] = np.nan
    with pytest.raises(HeadwiseError, match="pair a, b is missing"):
        mantel(matrix(missing), matrix(missing))
