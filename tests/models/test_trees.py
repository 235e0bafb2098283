"""Chart algorithms against every tree of short sentences, written out one by one."""

from functools import cache

import numpy as np
import pytest
import torch

from headwise.models._decoders.trees import cky, log_partition, span_marginals

LONGEST = 7


@cache
def all_trees(i: int, j: int) -> tuple[frozenset[tuple[int, int]], ...]:
    """Every binary tree over the words i ... j-1 as its set of spans."""
    if j - i == 1:
        return (frozenset({(i, j)}),)
    return tuple(
        left | right | {(i, j)}
        for k in range(i + 1, j)
        for left in all_trees(i, k)
        for right in all_trees(k, j)
    )


@cache
def membership(n: int) -> np.ndarray:
    """(trees, posts, posts) 0/1."""
    trees = all_trees(0, n)
    table = np.zeros((len(trees), LONGEST + 1, LONGEST + 1))
    for t, tree in enumerate(trees):
        for i, j in tree:
            table[t, i, j] = 1
    return table


@pytest.fixture(scope="module")
def problem() -> tuple[torch.Tensor, torch.Tensor]:
    """Three random problems of every length, padded to one batch with garbage beyond each sentence."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.arange(1, LONGEST + 1).repeat(3)
    return torch.randn(
        len(lengths), LONGEST + 1, LONGEST + 1, generator=generator, dtype=torch.float64
    ) * 2, lengths


def test_number_of_trees_is_catalan() -> None:
    assert [len(all_trees(0, n)) for n in range(1, 8)] == [1, 1, 2, 5, 14, 42, 132]


def test_partition_marginals_and_best_tree_equal_enumeration(
    problem: tuple[torch.Tensor, torch.Tensor],
) -> None:
    scores, lengths = problem
    partition, marginals, best = (
        log_partition(scores, lengths),
        span_marginals(scores, lengths),
        cky(scores, lengths),
    )
    for b, n in enumerate(lengths.tolist()):
        trees = membership(n)
        totals = np.einsum("tij,ij->t", trees, scores[b].numpy())
        weights = np.exp(totals)
        np.testing.assert_allclose(partition[b].item(), np.log(weights.sum()), rtol=1e-9)
        np.testing.assert_allclose(
            marginals[b].numpy(), np.einsum("t,tij->ij", weights / weights.sum(), trees), atol=1e-9
        )
        np.testing.assert_array_equal(best[b].numpy(), trees[totals.argmax()].astype(bool))


def test_gradient_of_the_partition_by_finite_differences(problem: tuple[torch.Tensor, torch.Tensor]) -> None:
    scores, lengths = problem[0][3:5].clone().requires_grad_(), problem[1][3:5]
    assert torch.autograd.gradcheck(
        lambda s: log_partition(s, lengths) * torch.tensor([1.0, -2.0]), (scores,)
    )


def test_padding_and_neighbours_change_nothing(problem: tuple[torch.Tensor, torch.Tensor]) -> None:
    scores, lengths = problem
    alone = torch.stack(
        [
            log_partition(scores[b : b + 1, : n + 1, : n + 1], lengths[b : b + 1])[0]
            for b, n in enumerate(lengths)
        ]
    )
    torch.testing.assert_close(log_partition(scores, lengths), alone)
    garbage = scores.clone()
    for b, n in enumerate(lengths):
        garbage[b, n + 1 :], garbage[b, :, n + 1 :] = 1e4, -1e4
    torch.testing.assert_close(span_marginals(garbage, lengths), span_marginals(scores, lengths))
    assert torch.equal(cky(garbage, lengths), cky(scores, lengths))


def test_marginals_are_the_gradient_and_need_no_graph(problem: tuple[torch.Tensor, torch.Tensor]) -> None:
    scores, lengths = problem[0].clone().requires_grad_(), problem[1]
    (gradient,) = torch.autograd.grad(log_partition(scores, lengths).sum(), scores)
    with torch.inference_mode():
        torch.testing.assert_close(span_marginals(problem[0] * 1, lengths), gradient)


def test_long_sentences_stay_finite() -> None:
    scores = torch.randn(2, 121, 121) * 5
    lengths = torch.tensor([120, 1])
    marginals = span_marginals(scores, lengths)
    torch.testing.assert_close(marginals.sum((1, 2)), (2 * lengths - 1).float(), rtol=1e-3, atol=1e-3)
    assert cky(scores, lengths).sum((1, 2)).tolist() == [239, 1]
