"""Gates: multiply head outputs by a tensor (the mask variable ξ of the papers), or select them by one of
truth values."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads._sites import Site
from headwise.heads._use.generation import Generation, generation_of
from headwise.heads._use.positions import Pass, read_pass


class Gates:
    """Multiplies every head's output by its gate; gates of truth values select: a closed head puts out 0,
    even in place of NaN.

    Args:
        gates: (layers, heads), (batch, layers, heads) or (batch, tokens, layers, heads); where it does not
            require gradients it is copied, so that later changes of the tensor have no effect inside the
            block.
        sites: the model's sites.
        skip: leave sites alone whose gates are all one (and need no gradient).
        root: the model whose `generate()` repeats rows for its beams.
    """

    needs = ""

    def __init__(
        self, gates: Tensor, sites: Sequence[Site], skip: bool, root: nn.Module | None = None
    ) -> None:
        self.gates = gates if gates.requires_grad else gates.clone()
        self.selects = gates.dtype == torch.bool
        self.batch = gates.shape[0] if gates.ndim > 2 else None
        self.root = root
        self.skipped: frozenset[int] = frozenset()
        if skip and not gates.requires_grad:
            # Read at once: a device is waited for once, not once a layer
            ones = (gates == 1).reshape(-1, *gates.shape[-2:]).all(0).tolist()  # (layers, heads)
            self.skipped = frozenset(site.index for site in sites if all(ones[site.index][: site.n_heads]))
        self.alike = self.batch is None  # for every row
        if not self.alike:
            self.needs = "rows"
        self._pass = Pass()
        self._generation: Generation | None = None
        self._rows: dict[tuple[int, torch.device, torch.dtype], Tensor] = {}

    def start(self, arguments: dict[str, Any]) -> None:
        """A pass begins: gates per row need to know its rows."""
        if self.batch is not None:
            self._pass = read_pass(arguments)
            self._generation = generation_of(self.root)

    def apply(self, site: Site, x: Tensor) -> Tensor:
        """x: (..., heads × head_dim)."""
        if site.index in self.skipped:
            return x
        kind = torch.bool if self.selects else x.dtype
        if self.batch is None and not self.gates.requires_grad and not torch.compiler.is_compiling():
            row = self._row(site, x.device, kind)
            return torch.where(row, x, 0) if self.selects else x * row
        # (heads,), (batch, heads) or (batch, tokens, heads)
        gate = _site_gates(self.gates, site).to(x.device, kind)
        if gate.ndim == 2:
            gate = gate[:, None]
        if self.batch is not None:
            gate = self._by_row(site, x, gate)
        gate = gate[..., None]
        return on_heads(site, x, lambda heads: torch.where(gate, heads, 0) if self.selects else heads * gate)

    def _row(self, site: Site, device: torch.device, kind: torch.dtype) -> Tensor:
        """The gates of one layer as one number per column, (heads × head_dim,): kept, so that gating is one
        operation."""
        key = site.index, device, kind
        if key not in self._rows:
            with torch.inference_mode(False):  # kept, and perhaps used again in a training
                row = _site_gates(self.gates, site).to(device, kind).repeat_interleave(site.head_dim)
                self._rows[key] = torch.cat((row, row.new_ones(site.rest)))
        return self._rows[key]

    def _by_row(self, site: Site, x: Tensor, gate: Tensor) -> Tensor:
        """Gates (batch, 1 or tokens, heads) that fit x.

        Raises:
            HeadwiseError: x has other rows or tokens.
        """
        rows, tokens = self._pass.count(site, x), gate.shape[1]
        if rows != self.batch:
            gate = self._prompt_gates(site, gate, rows)
        if tokens > 1 and site.batch_first and x.ndim > 2 and x.shape[0] != rows:
            raise HeadwiseError(
                f"layer {site.index} ({site.path}) cuts each row up, so which token is which is unknown: "
                "give gates (batch, layers, heads)"
            )
        return per_row(site, x, gate)

    def _prompt_gates(self, site: Site, gate: Tensor, rows: int) -> Tensor:
        """Gates of `rows` prompts from those of their beams: `generate()` runs an encoder once for each
        prompt, then repeats its output.

        Raises:
            HeadwiseError: the pass has other rows, or the beams of a prompt have different gates here.
        """
        count, generation = gate.shape[0], self._generation
        advice = "give one row of gates for each row of the batch, or gates (layers, heads) for all of them"
        if generation is not None and rows == generation.rows and count % rows == 0:
            beams = gate.reshape(rows, -1, *gate.shape[1:])  # (prompts, beams, ...)
            if torch.equal(beams, beams[:, :1].expand_as(beams)):
                return beams[:, 0]
            advice = (
                "here each prompt is read once for all its beams, so their gates must be the same in this "
                "layer"
            )
        elif generation is not None and rows % count == 0:
            advice = (
                "generate() repeats each prompt for its beams and returned sequences, one after the other, "
                f"so repeat its gates: gates.repeat_interleave({rows // count}, 0)"
            )
        raise HeadwiseError(
            f"gates for {count} rows met a pass of {rows} rows at layer {site.index} ({site.path}): {advice}"
        )


def on_heads(site: Site, x: Tensor, change: Any) -> Tensor:
    """Applies `change` to x seen as (..., heads, head_dim); columns that are not heads stay unchanged."""
    heads = x[..., : site.width] if site.rest else x
    changed = change(heads.reshape(*heads.shape[:-1], site.n_heads, site.head_dim)).flatten(-2)
    if not site.rest:
        return changed
    return torch.cat((changed, x[..., site.width :]), -1)


def per_row(site: Site, x: Tensor, values: Tensor) -> Tensor:
    """Fits values (batch, 1 or tokens, ...) to the axes of x before its last: (*x.shape[:-1] or
    broadcastable, ...).

    Raises:
        HeadwiseError: x has another number of tokens.
    """
    batch, tokens = values.shape[:2]
    leading = x.shape[:-1]
    if not site.batch_first:
        leading = torch.Size((x.shape[1], x.shape[0]))
    count = leading.numel()
    if tokens > 1 and count != batch * tokens:
        raise HeadwiseError(
            f"gates for {batch} rows of {tokens} tokens met an input {tuple(x.shape)} at layer {site.index} "
            f"({site.path}): give gates (batch, tokens, layers, heads) for exactly its tokens, or (batch, "
            "layers, heads) for all of them"
        )
    if not site.batch_first:
        return values.transpose(0, 1)  # (1 or tokens, batch, ...)
    if leading[0] == batch:  # (batch, tokens, ...) or (batch, height, width, ...)
        axes = leading[1:] if tokens > 1 else [1] * (len(leading) - 1)
        return values.reshape(batch, *axes, *values.shape[2:])
    # Rows were cut up (windows) or run together with tokens: (batch × anything, ...).
    return values.expand(batch, count // batch, *values.shape[2:]).reshape(*leading, *values.shape[2:])


def _site_gates(gates: Tensor, site: Site) -> Tensor:
    return gates[..., site.index, : site.n_heads]  # (..., heads)


def check_gates(gates: Any, shape: tuple[int, int]) -> Tensor:
    """Returns `gates` if it is a tensor whose last axes are `shape`, with at most batch and tokens in front;
    integers as floats.

    Raises:
        HeadwiseError: it is something else; says what.
    """
    if not isinstance(gates, Tensor):
        raise HeadwiseError(
            f"gates are a torch tensor; got {type(gates).__name__}: use torch.as_tensor(gates, "
            "dtype=torch.float32)"
        )
    if gates.ndim not in (2, 3, 4) or tuple(gates.shape[-2:]) != shape:
        layers, heads = shape
        raise HeadwiseError(
            f"gates of shape {tuple(gates.shape)} do not fit this model of {layers} layers and {heads} "
            f"heads: expected ({layers}, {heads}), (batch, {layers}, {heads}) or (batch, tokens, {layers}, "
            f"{heads}). Were they made for another model?"
        )
    if gates.is_floating_point() or gates.dtype == torch.bool:
        return gates
    return gates.to(torch.get_default_dtype())
