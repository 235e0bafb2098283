"""Gates: multiply head outputs by a tensor (the mask variable ξ of the papers)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.heads._sites import Site
from headwise.heads._use.positions import Pass, read_pass


class Gates:
    """Multiplies every head's output by its gate.

    Args:
        gates: (layers, heads), (batch, layers, heads) or (batch, tokens, layers, heads); where it does not require gradients
            it is copied, so that later changes of the tensor have no effect inside the block.
        sites: the model's sites.
        skip: leave sites alone whose gates are all one (and need no gradient).
    """

    def __init__(self, gates: Tensor, sites: Sequence[Site], skip: bool) -> None:
        self.gates = gates if gates.requires_grad else gates.clone()
        self.batch = gates.shape[0] if gates.ndim > 2 else None
        self.skipped: frozenset[int] = frozenset()
        if skip and not gates.requires_grad:
            ones = (gates == 1).flatten(0, -3).all(0) if gates.ndim > 2 else gates == 1  # (layers, heads)
            rows = ones.tolist()  # read at once: a device is waited for once, not once a layer
            self.skipped = frozenset(site.index for site in sites if all(rows[site.index][: site.n_heads]))
        self.alike = self.batch is None  # for every row
        self._pass = Pass()
        self._rows: dict[tuple[int, torch.device, torch.dtype], Tensor] = {}

    def start(self, arguments: dict[str, Any]) -> None:
        """A pass begins: gates per row need to know its rows."""
        if self.batch is not None:
            self._pass = read_pass(arguments)

    def at(self, site: Site, x: Tensor) -> Tensor:
        """x: (..., heads × head_dim)."""
        if site.index in self.skipped:
            return x
        if self.batch is None and not self.gates.requires_grad and not torch.compiler.is_compiling():
            return x * self._row(site, x)
        gate = _of(self.gates, site).to(x.device, x.dtype)  # (heads,), (batch, heads) or (batch, tokens, heads)
        if self.batch is not None:
            if x.ndim == 2:
                self._pass.together(site, x, self.batch)
            gate = per_row(site, x, gate if gate.ndim == 3 else gate[:, None])
        return on_heads(site, x, lambda heads: heads * gate[..., None])

    def _row(self, site: Site, x: Tensor) -> Tensor:
        """The gates of one layer as one number per column, (heads × head_dim,): kept, so that gating is one multiplication."""
        key = site.index, x.device, x.dtype
        if key not in self._rows:
            with torch.inference_mode(False):  # kept, and perhaps used again in a training
                row = _of(self.gates, site).to(x.device, x.dtype).repeat_interleave(site.head_dim)
                self._rows[key] = torch.cat((row, row.new_ones(site.rest))) if site.rest else row
        return self._rows[key]


def on_heads(site: Site, x: Tensor, change: Any) -> Tensor:
    """Applies `change` to x seen as (..., heads, head_dim), and leaves columns that are not heads unchanged."""
    heads = x[..., : site.width] if site.rest else x
    changed = change(heads.reshape(*heads.shape[:-1], site.n_heads, site.head_dim)).flatten(-2)
    return torch.cat((changed, x[..., site.width :]), -1) if site.rest else changed


def per_row(site: Site, x: Tensor, values: Tensor) -> Tensor:
    """Fits values (batch, 1 or tokens, ...) to the axes of x before its last: (*x.shape[:-1] or broadcastable, ...).

    Raises:
        HeadwiseError: x has another number of rows or tokens.
    """
    batch, tokens = values.shape[:2]
    leading = x.shape[:-1] if site.batch_first else (x.shape[1], x.shape[0])
    count = leading.numel() if isinstance(leading, torch.Size) else leading[0] * leading[1]
    if count % batch or (tokens > 1 and count != batch * tokens):
        raise HeadwiseError(
            f"gates for {batch} rows{f' of {tokens} tokens' if tokens > 1 else ''} met an input {tuple(x.shape)} at layer {site.index} "
            f"({site.path}): give one row of gates per row of the batch, and per-token gates for exactly its tokens"
        )
    if not site.batch_first:
        return values.transpose(0, 1)  # (1 or tokens, batch, ...)
    if leading[0] == batch:  # (batch, tokens, ...) or (batch, height, width, ...)
        shape = (batch, *leading[1:]) if tokens > 1 else (batch, *[1] * (len(leading) - 1))
        return values.reshape(*shape, *values.shape[2:])
    # Rows were cut up (windows) or run together with tokens: (batch × anything, ...).
    return values.expand(batch, count // batch, *values.shape[2:]).reshape(*leading, *values.shape[2:])


def _of(gates: Tensor, site: Site) -> Tensor:
    return gates[..., site.index, : site.n_heads]  # (..., heads)


def check_gates(gates: Any, shape: tuple[int, int]) -> Tensor:
    """Returns `gates` if it is a tensor whose last axes are `shape`, with at most batch and tokens in front; integers as floats.

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
