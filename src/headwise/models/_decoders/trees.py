"""Binary trees over spans of words, batched: the inside algorithm, span marginals, and CKY.

A span is a pair of fence posts (i, j), 0 <= i < j <= n: the words i ... j-1. A binary tree over n words has
2n - 1 spans: the whole sentence, every single word, and two parts of every span wider than one word. Its
score is the sum of its spans' scores, `scores[b, i, j]` in (batch, posts, posts) with posts = longest
sentence + 1; entries with i >= j or beyond a sentence are never read.

Charts are kept twice: `by_start[b, i, w]` and `by_end[b, j, w]` hold the cell of width w that starts at i, or
ends at j. Both parts of all cells of one width are then plain slices, so the only Python loop is over widths.
"""

from typing import Any

import torch
from torch import Tensor


def log_partition(scores: Tensor, lengths: Tensor) -> Tensor:
    """log of the summed exp(score) of all binary trees (the inside algorithm; Zhang et al. 2020, Eq. 5).

    Differentiable; the gradient is the span marginals, found by the outside pass rather than by recording
    every step, so that memory is quadratic, not cubic, in the sentence length.

    Args:
        scores: (batch, posts, posts).
        lengths: (batch,) words of each sentence, at least 1.

    Returns:
        (batch,) log partition.
    """
    return _Inside.apply(scores, lengths)  # type: ignore[no-untyped-call]


def span_marginals(scores: Tensor, lengths: Tensor) -> Tensor:
    """Probability of every span under the distribution over binary trees; (batch, posts, posts), 0 outside
    the sentence."""
    by_start, by_end, inner = _inside(scores)
    return _outside(by_start, by_end, inner, lengths, torch.ones_like(scores[:, 0, 0]))


def cky(scores: Tensor, lengths: Tensor) -> Tensor:
    """The best binary tree of every sentence.

    Args:
        scores: (batch, posts, posts).
        lengths: (batch,) words of each sentence, at least 1.

    Returns:
        (batch, posts, posts) bool, true for the spans of the best tree. Ties go to the leftmost split.
    """
    batch, posts, _ = scores.shape
    diagonals = _diagonals(scores)  # (batch, posts, width)
    by_start, by_end = torch.zeros_like(diagonals), torch.zeros_like(diagonals)
    split = torch.zeros_like(diagonals, dtype=torch.long)
    for width in range(1, posts):
        starts = posts - width
        best = diagonals[:, :starts, width]
        if width > 1:
            inner, where = _halves(by_start, by_end, width).max(-1)  # (batch, starts)
            best = best + inner
            split[:, :starts, width] = where + 1  # width of the left part
        by_start[:, :starts, width] = best
        by_end[:, width:, width] = best

    in_tree = torch.zeros_like(diagonals, dtype=torch.bool)  # by start and width
    rows = torch.arange(batch, device=scores.device)
    in_tree[rows, 0, lengths] = True
    for width in range(posts - 1, 1, -1):
        row, start = in_tree[:, :, width].nonzero(as_tuple=True)
        left_width = split[row, start, width]
        in_tree[row, start, left_width] = True
        in_tree[row, start + left_width, width - left_width] = True
    row, start, width_of = in_tree.nonzero(as_tuple=True)
    tree = torch.zeros_like(scores, dtype=torch.bool)
    tree[row, start, start + width_of] = True
    return tree


def _diagonals(scores: Tensor) -> Tensor:
    """scores[b, i, j] -> [b, i, j - i]; 0 where j would lie beyond the last post."""
    posts = scores.shape[1]
    start = torch.arange(posts, device=scores.device)
    end = start[:, None] + start  # (start, width)
    inside = (end < posts) & (start > 0)
    gathered = scores.gather(2, end.clamp(max=posts - 1).expand(scores.shape))
    return gathered.masked_fill(~inside, 0)


def _halves(by_start: Tensor, by_end: Tensor, width: int) -> Tensor:
    """Left part plus right part of every cell of this width, for every split; (batch, starts, width - 1), by
    width of the left part."""
    starts = by_start.shape[1] - width
    return by_start[:, :starts, 1:width] + by_end[:, width:, 1:width].flip(-1)


def _inside(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log of the summed exp(score) of all trees over each span, by start and by end, and the same without the
    span's own score."""
    posts = scores.shape[1]
    diagonals = _diagonals(scores)  # (batch, posts, width)
    by_start, by_end, inner = (torch.zeros_like(diagonals) for _ in range(3))
    for width in range(1, posts):
        starts = posts - width
        cell = diagonals[:, :starts, width]
        if width > 1:
            inner[:, :starts, width] = _halves(by_start, by_end, width).logsumexp(-1)
            cell = cell + inner[:, :starts, width]
        by_start[:, :starts, width] = cell
        by_end[:, width:, width] = cell
    return by_start, by_end, inner


def _outside(by_start: Tensor, by_end: Tensor, inner: Tensor, lengths: Tensor, weight: Tensor) -> Tensor:
    """Span marginals times each sentence's weight (batch,), from the inside charts; (batch, posts, posts)."""
    batch, posts, _ = by_start.shape
    rows = torch.arange(batch, device=by_start.device)
    outer_start, outer_end = torch.zeros_like(by_start), torch.zeros_like(by_end)
    outer_start[rows, 0, lengths] = weight
    for width in range(posts - 1, 1, -1):
        starts = posts - width
        cell = outer_start[:, :starts, width] + outer_end[:, width:, width]  # (batch, starts)
        share = (_halves(by_start, by_end, width) - inner[:, :starts, width, None]).exp() * cell[..., None]
        outer_start[:, :starts, 1:width] += share
        outer_end[:, width:, 1:width] += share.flip(-1)
    post = torch.arange(posts, device=by_start.device)
    width_of = (post - post[:, None]).clamp(min=0)  # (start, end)
    marginal = outer_start.gather(2, width_of.expand(by_start.shape))
    marginal = marginal + outer_end.gather(2, width_of.T.expand(by_start.shape)).transpose(1, 2)
    return marginal.masked_fill(width_of == 0, 0)


class _Inside(torch.autograd.Function):
    """log Z forward; marginals times the incoming gradient backward."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, lengths: Tensor) -> Tensor:
        by_start, by_end, inner = _inside(scores)
        ctx.save_for_backward(by_start, by_end, inner, lengths)
        return by_start[torch.arange(len(scores), device=scores.device), 0, lengths]  # (batch,)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        by_start, by_end, inner, lengths = ctx.saved_tensors
        return _outside(by_start, by_end, inner, lengths, gradient), None
