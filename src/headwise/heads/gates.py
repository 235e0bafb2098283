"""Gates: multiply head outputs by a tensor (the mask variable ξ of the papers)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.heads.sites import Site


class Gates:
    """Multiplies every head's output by its gate.

    Args:
        gates: (layers, heads), (batch, layers, heads) or (batch, tokens, layers, heads); where it does not require gradients
            it is copied, so that later changes of the tensor have no effect inside the block.
        skip: leave sites alone whose gates are all one (and need no gradient).
    """

    def __init__(self, gates: Tensor, sites: Sequence[Site], skip: bool) -> None:
        self.gates = gates if gates.requires_grad else gates.clone()
        self.batch = gates.shape[0] if gates.ndim > 2 else None
        self.tokens = gates.shape[1] if gates.ndim == 4 else None
        ones = () if gates.requires_grad or not skip else [s.index for s in sites if bool((_of(gates, s) == 1).all())]
        self.skipped = frozenset(ones)

    def start(self, arguments: dict[str, Any]) -> None:
        """Gates know nothing of the pass."""

    def at(self, site: Site, x: Tensor) -> Tensor:
        """x: (..., heads × head_dim)."""
        if site.index in self.skipped:
            return x
        gate = _of(self.gates, site).to(x.device, x.dtype)
        if self.batch is None:
            return (x.unflatten(-1, (site.n_heads, site.head_dim)) * gate[:, None]).flatten(-2)  # (..., heads, 1)
        return by_row(site, x, gate if self.tokens else gate[:, None])


def by_row(site: Site, x: Tensor, gate: Tensor) -> Tensor:
    """Multiplies x (batch × anything, heads × head_dim) by gate (batch, 1 or tokens, heads)."""
    batch, tokens = gate.shape[:2]
    rows = x if site.batch_first else x.transpose(0, 1)
    count = rows.numel() // site.width
    if count % batch or (tokens > 1 and count != batch * tokens):
        raise HeadwiseError(
            f"gates for {batch} rows{f' of {tokens} tokens' if tokens > 1 else ''} met an input {tuple(x.shape)} at layer {site.index} "
            f"({site.path}): give one row of gates per row of the batch, and per-token gates for exactly its tokens"
        )
    heads = rows.reshape(batch, -1, site.n_heads, site.head_dim)  # (batch, tokens, heads, head_dim)
    gated = (heads * gate[..., None]).reshape(rows.shape)
    return gated if site.batch_first else gated.transpose(0, 1)


def _of(gates: Tensor, site: Site) -> Tensor:
    return gates[..., site.index, : site.n_heads]  # (..., heads)


def check_gates(gates: Any, shape: tuple[int, int]) -> Tensor:
    """Returns `gates` if it is a floating tensor whose last axes are `shape`, with at most batch and tokens in front.

    Raises:
        HeadwiseError: it is something else; says what.
    """
    if not isinstance(gates, Tensor):
        raise HeadwiseError(
            f"gates are a torch tensor; got {type(gates).__name__}: use torch.as_tensor(gates, dtype=torch.float32)"
        )
    if gates.ndim not in (2, 3, 4) or tuple(gates.shape[-2:]) != shape:
        layers, heads = shape
        raise HeadwiseError(
            f"gates of shape {tuple(gates.shape)} do not fit this model of {layers} layers and {heads} heads: expected ({layers}, {heads}), "
            f"(batch, {layers}, {heads}) or (batch, tokens, {layers}, {heads}). Were they made for another model?"
        )
    return gates if gates.is_floating_point() else gates.to(torch.get_default_dtype())
