"""Attention results as leaves of the autograd graph, and what gradients say about where their heads went."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.heads._find.observation import AttentionResult


@dataclass(frozen=True)
class Split:
    """How the last axis of a projection's input is made of heads.

    Attributes:
        n_heads, head_dim: the first n_heads × head_dim columns are heads.
        order: number of the attention head at each slice; None if a slice is made of several, or the order is
            unclear.
    """

    n_heads: int
    head_dim: int
    order: tuple[int, ...] | None


@dataclass(frozen=True, eq=False)
class Leaf:
    """An attention result on its way to a projection.

    Attributes:
        result: the result.
        tensor: what the model continues with, a leaf that requires gradients.
        where: path of the innermost module running when it appeared.
        merged: how heads are already laid out along the last axis; None while they have an axis of their own.
    """

    result: AttentionResult
    tensor: Tensor
    where: str
    merged: Split | None = None

    @classmethod
    def from_result(cls, result: AttentionResult, where: str) -> Leaf:
        return cls(result, result.value.detach().requires_grad_(), where)

    def split(self, merged: Split) -> Leaf:
        """The same result once its heads lie side by side."""
        return replace(self, merged=merged)

    def renewed(self, tensor: Tensor) -> Leaf:
        """The same result, followed from a later tensor on."""
        return replace(self, tensor=tensor.detach().requires_grad_())

    def reaches(self, x: Tensor) -> bool:
        """Whether `x` depends on this result."""
        cotangent = torch.ones_like(x)
        gradients = torch.autograd.grad(x, self.tensor, cotangent, retain_graph=True, allow_unused=True)
        return gradients[0] is not None

    def units(self, gradient: Tensor) -> Tensor:
        """Where a gradient is not zero, as a boolean over everything but head_dim (and the queries, where
        that axis is known)."""
        if self.merged is not None:
            heads = gradient[..., : self.merged.n_heads * self.merged.head_dim]
            return heads.reshape(-1, self.merged.n_heads, self.merged.head_dim).ne(0).any(-1).any(0)
        touched = gradient.ne(0).any(-1)
        if self.result.einsum or touched.ndim < 2:
            return touched
        return touched.any(-1)


def split_heads(x: Tensor, feeding: list[Leaf]) -> Split | None:
    """How the last axis of `x` is made of the heads of `feeding`; None if its slices are not heads."""
    value = feeding[0].result.value
    merged = feeding[0].merged
    widths = [merged.head_dim if merged else value.shape[-1]]
    if value.ndim == 4:
        # A projection per head may lie in between: then only their number is known
        widths.append(x.shape[-1] // value.shape[1])
    if len(feeding) > 1:
        # Heads of several results (differential attention)
        widths.append(sum(leaf.result.value.shape[-1] for leaf in feeding))
    for head_dim in dict.fromkeys(widths):
        if head_dim and x.shape[-1] % head_dim == 0:
            split = _split(x, head_dim, feeding)
            if split is not None:
                return split
    return None


def _split(x: Tensor, head_dim: int, feeding: list[Leaf]) -> Split | None:
    """Splits `x` into slices of `head_dim`; None if some head feeds two slices, or slices without heads come
    first."""
    everywhere = _marks(x, head_dim, feeding, slice(None))
    n_heads = int(everywhere.any(1).sum())
    if n_heads == 0 or not bool(everywhere[:n_heads].any(1).all()) or bool((everywhere.sum(0) > 1).any()):
        return None
    if _numbered(feeding) and not _constant(x, head_dim, feeding, everywhere):
        return None
    return Split(n_heads, head_dim, _order(everywhere[:n_heads], feeding))


def _marks(x: Tensor, head_dim: int, feeding: list[Leaf], rows: slice) -> Tensor:
    """For each slice, the units of all leaves that feed it at these rows (all axes of x but its last, run
    together): (slices, units)."""
    touched = []
    # A norm takes an even one to nothing
    uneven = torch.arange(1, head_dim + 1, device=x.device).sqrt().to(x.dtype)
    for start in range(0, x.shape[-1], head_dim):
        cotangent = torch.zeros_like(x).reshape(-1, x.shape[-1])
        cotangent[rows, start : start + head_dim] = uneven
        leaves = [leaf.tensor for leaf in feeding]
        gradients = torch.autograd.grad(
            x, leaves, cotangent.view(x.shape), retain_graph=True, allow_unused=True
        )
        units = []
        for leaf, gradient in zip(feeding, gradients, strict=True):
            if gradient is None:
                gradient = torch.zeros_like(leaf.tensor)
            units.append(leaf.units(gradient).flatten())
        touched.append(torch.cat(units))
    return torch.stack(touched)


def _constant(x: Tensor, head_dim: int, feeding: list[Leaf], everywhere: Tensor) -> bool:
    """Whether a slice holds the same heads at one token as at all: else heads also lie along another axis of
    x."""
    count = x.shape[:-1].numel()
    for row in (0, count // 2, count - 1):  # a token that is padding shows nothing
        here = _marks(x, head_dim, feeding, slice(row, row + 1))
        if bool(here.any()):
            shape = (len(here), feeding[0].tensor.shape[0], -1)  # (slices, batch, heads)
            return torch.equal(everywhere.view(shape).any(1), here.view(shape).any(1))
    return True


def _numbered(feeding: list[Leaf]) -> bool:
    """Whether one result with an axis of heads, (batch, heads, queries, head_dim), feeds all."""
    leaf = feeding[0]
    return len(feeding) == 1 and leaf.merged is None and not leaf.result.einsum and leaf.tensor.ndim == 4


def _order(marks: Tensor, feeding: list[Leaf]) -> tuple[int, ...] | None:
    """Which attention head stands at each slice, where one result (batch, heads, queries, head_dim) or (batch
    × heads, ...) feeds all."""
    leaf, n_heads = feeding[0], marks.shape[0]
    if leaf.merged is not None:
        return leaf.merged.order
    if len(feeding) > 1 or leaf.result.einsum or marks.shape[1] % n_heads:
        return None
    per_row = marks.view(n_heads, -1, n_heads).any(1)  # (slices, heads): folded over the batch (and windows)
    if not bool((per_row.sum(1) == 1).all()):
        return None
    return tuple(int(i) for i in per_row.int().argmax(1))
