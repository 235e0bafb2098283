"""Sets of heads against Python's own sets."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from headwise.errors import HeadwiseError
from headwise.heads import HeadSet

pairs = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=12)


@given(pairs, pairs)
@settings(max_examples=50, deadline=None)
def test_algebra_is_that_of_sets(a: frozenset[tuple[int, int]], b: frozenset[tuple[int, int]]) -> None:
    first, second = HeadSet(a), HeadSet(b)
    assert set(first | second) == a | b
    assert set(first & second) == a & b
    assert set(first - second) == a - b
    assert set(first ^ second) == a ^ b
    assert (first <= second) == (a <= b)
    assert (first == second) == (a == b)
    assert type(first | second) is HeadSet
    assert list(first) == sorted(a)
    assert first.overlap(second) == (len(a & b) / max(len(a), len(b)) if a or b else 0)
    assert hash(first) == hash(HeadSet(sorted(a, reverse=True)))


@given(pairs)
@settings(max_examples=50, deadline=None)
def test_round_trips(a: frozenset[tuple[int, int]]) -> None:
    heads = HeadSet(a)
    mask = heads.to_mask((6, 8))
    assert mask.dtype == bool
    assert mask.sum() == len(a)
    assert all(mask[entry] for entry in a)
    assert HeadSet.from_mask(mask) == HeadSet.from_mask(torch.from_numpy(mask)) == heads
    assert HeadSet.from_json(heads.to_json()) == heads
    assert eval(repr(heads), {"HeadSet": HeadSet}) == heads
    assert {(layer, head) for layer, members in heads.layers().items() for head in members} == a


def test_what_it_accepts_and_prints() -> None:
    heads = HeadSet([(np.int64(0), 3), [7, torch.tensor(10)]])
    assert str(heads) == "2 heads: 0.3 7.10"
    assert str(HeadSet()) == "0 heads: none"
    assert (7, 10) in heads
    assert json.loads(heads.to_json()) == [[0, 3], [7, 10]]
    with pytest.raises(AttributeError):
        heads.extra = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("wrong", [[(1,)], [(0, -1)], [(0.5, 1)], ["ab"], [3]])
def test_entries_that_are_no_heads(wrong: list[object]) -> None:
    with pytest.raises(HeadwiseError, match=r"integers|count from 0"):
        HeadSet(wrong)  # type: ignore[arg-type]


def test_masks_and_texts_that_do_not_fit() -> None:
    with pytest.raises(HeadwiseError, match=r"head \(4, 0\) lies outside 3 layers of 2 heads"):
        HeadSet([(4, 0)]).to_mask((3, 2))
    with pytest.raises(HeadwiseError, match="threshold"):
        HeadSet.from_mask(np.array([[0.2, 0.9]]))
    with pytest.raises(HeadwiseError, match="JSON list"):
        HeadSet.from_json("{}")
    with pytest.raises(HeadwiseError, match="JSON list"):
        HeadSet.from_json("nonsense")
