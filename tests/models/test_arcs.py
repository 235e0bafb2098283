"""Tree decoding against every dependency tree of short sentences."""

from functools import cache
from itertools import product

import numpy as np
import pytest
import torch

from headwise.models._decoders.arcs import projective_tree, spanning_tree

LONGEST = 6


@cache
def all_trees(n: int) -> np.ndarray:
    """Every tree over n words with one word under the root, as heads (trees, n + 1); column 0 is the root itself."""
    heads = np.array(list(product(range(n + 1), repeat=n))).reshape(-1, n)
    heads = np.concatenate([np.zeros((len(heads), 1), int), heads], 1)
    heads = heads[(heads[:, 1:] == 0).sum(1) == 1]
    reached = heads
    for _ in range(n):
        reached = np.take_along_axis(heads, reached, 1)
    return heads[(reached == 0).all(1)]


@cache
def projective(n: int) -> np.ndarray:
    """(trees,) bool: no two arcs cross, the root standing to the left of the sentence."""
    heads = all_trees(n)
    keep = np.ones(len(heads), bool)
    for a in range(1, n + 1):
        for b in range(1, n + 1):
            low_a, high_a = np.minimum(heads[:, a], a), np.maximum(heads[:, a], a)
            low_b, high_b = np.minimum(heads[:, b], b), np.maximum(heads[:, b], b)
            keep &= ~((low_a < low_b) & (low_b < high_a) & (high_a < high_b))
    return keep


def brute_force(scores: np.ndarray, n: int, only_projective: bool) -> np.ndarray:
    heads = all_trees(n)[projective(n)] if only_projective else all_trees(n)
    totals = scores[np.arange(1, n + 1)[None], heads[:, 1:]].sum(1)
    return heads[totals.argmax()]


@pytest.fixture(scope="module")
def problem() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    lengths = torch.arange(1, LONGEST + 1).repeat(40)
    return torch.randn(len(lengths), LONGEST + 1, LONGEST + 1, generator=generator), lengths


def test_number_of_trees() -> None:
    assert [len(all_trees(n)) for n in range(1, 7)] == [n ** (n - 1) for n in range(1, 7)]  # Cayley
    assert [int(projective(n).sum()) for n in range(1, 7)] == [1, 2, 7, 30, 143, 728]


@pytest.mark.parametrize("only_projective", [True, False])
def test_best_tree_equals_enumeration(
    problem: tuple[torch.Tensor, torch.Tensor], only_projective: bool
) -> None:
    scores, lengths = problem
    found = (projective_tree if only_projective else spanning_tree)(scores, lengths)
    for b, n in enumerate(lengths.tolist()):
        expected = np.zeros(LONGEST + 1, int)
        expected[: n + 1] = brute_force(scores[b].numpy().astype(np.float64), n, only_projective)
        np.testing.assert_array_equal(found[b].numpy(), expected)


def test_one_word_of_seven_under_the_root_even_if_the_root_is_liked() -> None:
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(3, 8, 8, generator=generator)
    scores[:, :, 0] += 50
    lengths = torch.full((3,), 7)
    for decode, only_projective in ((projective_tree, True), (spanning_tree, False)):
        found = decode(scores, lengths)
        for b in range(3):
            np.testing.assert_array_equal(
                found[b].numpy(), brute_force(scores[b].numpy().astype(np.float64), 7, only_projective)
            )


@pytest.mark.parametrize("decode", [projective_tree, spanning_tree])
def test_padding_changes_nothing(problem: tuple[torch.Tensor, torch.Tensor], decode: object) -> None:
    scores, lengths = problem
    garbage = scores.clone()
    for b, n in enumerate(lengths):
        garbage[b, n + 1 :], garbage[b, :, n + 1 :] = 1e4, -1e4
    assert torch.equal(decode(garbage, lengths), decode(scores, lengths))  # type: ignore[operator]
    for b in range(6):
        n = int(lengths[b])
        alone = decode(scores[b : b + 1, : n + 1, : n + 1], lengths[b : b + 1])  # type: ignore[operator]
        assert torch.equal(alone[0], decode(scores, lengths)[b, : n + 1])  # type: ignore[operator]


def test_cycle_upon_cycle_in_long_sentences() -> None:
    """Random scores of a long sentence need many contractions; the result is a tree no worse than the projective one."""
    scores = torch.randn(4, 61, 61, generator=torch.Generator().manual_seed(3))
    lengths = torch.tensor([60, 60, 45, 30])
    word = torch.arange(61)
    value = {}
    for decode in (projective_tree, spanning_tree):
        heads = decode(scores, lengths)
        far = heads
        for _ in range(60):
            far = heads.gather(1, far)
        assert (far == 0).all()
        assert [(heads[b, 1 : n + 1] == 0).sum().item() for b, n in enumerate(lengths)] == [1, 1, 1, 1]
        value[decode] = (
            scores.gather(2, heads[..., None])
            .squeeze(-1)
            .masked_fill((word == 0) | (word > lengths[:, None]), 0)
            .sum(1)
        )
    assert (value[spanning_tree] >= value[projective_tree]).all()
