"""Selection over the whole model, and random sets under the same constraint."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.scoring._selection import bottom_heads, count_for, random_heads, top_heads


def scores(values: object) -> xr.DataArray:
    return xr.DataArray(np.asarray(values, dtype=float), dims=("layer", "head"))


@pytest.mark.parametrize(
    ("fraction", "total", "n"),
    [(0.3, 144, 43), (0.3, 384, 115), (0.3, 72, 21), (0.29, 100, 29), (1, 7, 7), (0, 7, 0)],
)
def test_counts_are_floors(fraction: float, total: int, n: int) -> None:
    assert count_for(fraction, total) == n


def test_ties_go_to_the_lower_layer_and_head() -> None:
    assert top_heads(scores(np.ones((3, 4))), n=5) == HeadSet([(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)])


def test_missing_heads_are_never_chosen_nor_counted() -> None:
    values = scores([[1.0, 5.0], [2.0, np.nan]])
    assert top_heads(values, fraction=1.0) == HeadSet([(0, 0), (0, 1), (1, 0)])
    assert top_heads(values, fraction=0.5) == HeadSet([(0, 1)])


@settings(max_examples=40, deadline=None)
@given(
    arrays(float, (3, 4), elements=st.sampled_from([-1.0, 0.0, 0.5, 2.0])),
    st.integers(0, 12),
    st.integers(0, 2),
    st.sampled_from([("signed", "signed"), ("signed", "magnitude"), ("magnitude", "magnitude")]),
    st.booleans(),
)
def test_top_heads_equal_brute_force(
    values: np.ndarray, n: int, keep: int, senses: tuple[str, str], top: bool
) -> None:
    sense, by = senses
    choose = top_heads if top else bottom_heads
    given = scores(values).assign_attrs(sense=sense)
    if n > 3 * (4 - keep):
        with pytest.raises(HeadwiseError, match="min_per_layer"):
            choose(given, n=n, min_per_layer=keep, by=by)
        return
    chosen = choose(given, n=n, min_per_layer=keep, by=by)
    size = np.abs(values) if senses == ("signed", "magnitude") else values
    first = -size if top else size
    ranked = sorted(((l, h) for l in range(3) for h in range(4)), key=lambda lh: (first[lh], lh))
    expected: list[tuple[int, int]] = []
    for layer, head in ranked:
        if len(expected) < n and sum(other == layer for other, _ in expected) < 4 - keep:
            expected.append((layer, head))
    assert chosen == HeadSet(expected)


def test_scores_below_zero_must_say_what_they_mean() -> None:
    values = scores([[0.5, -2.0], [1.0, 0.0]])
    for choose in (top_heads, bottom_heads):
        with pytest.raises(HeadwiseError, match=r"below 0.*attrs\['sense'\].*by='signed'"):
            choose(values, n=1)
        with pytest.raises(HeadwiseError, match="sense is 'absolute'"):
            choose(values.assign_attrs(sense="absolute"), n=1)
        with pytest.raises(HeadwiseError, match="by is 'size'"):
            choose(values, n=1, by="size")
    assert top_heads(values, n=1, by="signed") == HeadSet([(1, 0)])
    assert bottom_heads(values, n=1, by="signed") == HeadSet([(0, 1)])
    assert top_heads(np.abs(values), n=1) == HeadSet([(0, 1)])  # none is below 0: nothing to declare


def test_a_number_of_heads_is_not_a_fraction() -> None:
    with pytest.raises(HeadwiseError, match="for 5 heads say n=5"):
        top_heads(scores(np.ones((3, 4))), 5)
    with pytest.raises(HeadwiseError, match="for 2 heads say n=2"):
        random_heads(np.ones((3, 4)), 2)
    with pytest.raises(HeadwiseError, match=r"for 1 head say n=1, for all heads fraction=1\.0"):
        bottom_heads(scores(np.ones((3, 4))), 1)
    for wrong in (2.5, "2", True, -1, 13):
        with pytest.raises(HeadwiseError, match=r"n is .*; it must be a whole number from 0 to 12"):
            top_heads(scores(np.ones((3, 4))), n=wrong)  # type: ignore[arg-type]
    with pytest.raises(HeadwiseError, match="it must be a number"):
        top_heads(scores(np.ones((3, 4))), "0.3")  # type: ignore[arg-type]
    assert len(top_heads(scores(np.ones((3, 4))), n=np.int64(3))) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("keep", [0, 1])
def test_random_sets_are_uniform_over_the_allowed_ones(keep: int) -> None:
    """Layers of four, two and three heads give sets that spread over the layers in many ways, some of them in more sets than others."""
    valid = np.array([[True, True, True, True], [True, False, True, False], [False, True, True, True]])
    everything = [(int(layer), int(head)) for layer, head in np.argwhere(valid)]
    sizes = ((0, 4), (1, 2), (2, 3))
    allowed = [
        HeadSet(c)
        for c in combinations(everything, 3)
        if all(sum(l == layer for l, _ in c) <= size - keep for layer, size in sizes)
    ]
    spreads = Counter(tuple(sum(l == layer for l, _ in c) for layer in range(3)) for c in allowed)
    assert len(set(spreads.values())) >= 4
    draws = Counter(random_heads(valid, n=3, draws=60 * len(allowed), seed=4, min_per_layer=keep))
    assert set(draws) == set(allowed)
    assert stats.chisquare([draws[s] for s in allowed]).pvalue > 0.001


def test_random_sets_repeat_with_the_seed_and_match_layers() -> None:
    valid = np.ones((4, 6), bool)
    assert (
        random_heads(valid, 0.5, draws=3, seed=1)
        == random_heads(valid, 0.5, draws=3, seed=1)
        != random_heads(valid, 0.5, draws=3, seed=2)
    )
    (drawn,) = random_heads(valid, per_layer=[0, 3, 1, 6])
    assert [sum(l == layer for l, _ in drawn) for layer in range(4)] == [0, 3, 1, 6]


@pytest.mark.parametrize("call", [
    lambda v: top_heads(v), lambda v: top_heads(v, 0.3, n=2), lambda v: top_heads(v, 1.3), lambda v: top_heads(v, n=99),
    lambda v: top_heads(v.expand_dims("task"), 0.3), lambda v: random_heads(v.notnull(), per_layer=[9, 9]),
])  # fmt: skip
def test_mistakes_are_named(call: object) -> None:
    with pytest.raises(HeadwiseError):
        call(scores(np.ones((2, 3))))  # type: ignore[operator]


def test_arrays_of_numpy_are_layers_and_heads() -> None:
    scores = np.array([[0.1, 0.9], [0.8, 0.2]])
    assert top_heads(scores, n=2) == HeadSet([(0, 1), (1, 0)])
    assert bottom_heads(scores, n=1) == HeadSet([(0, 0)])
    with pytest.raises(HeadwiseError, match="scores are a list"):
        top_heads(scores.tolist(), n=2)
