"""Direct logit effect: what each head itself adds to a logit difference, the final norm held fixed.

The logits are W_U · norm(r), and r, the residual stream after the last block, is a sum: the embedding, what every head of every layer
writes, and what the feed-forward layers write. With the norm's statistics held at their values the norm is linear, so every part has
its own contribution, and the contributions sum to the logits. That is checked in every pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headwise.heads import (
    Heads,
    Pass,
    Site,
    UnsupportedModel,
    is_norm,
    plain_weight,
    read_pass,
    root_of,
    weight_axes,
)

NEAR = 1e-3  # relative; passes are in single precision


@dataclass(frozen=True)
class Contributions:
    """The parts of a logit difference, in float64.

    Attributes:
        heads: (batch, n, layers, heads); NaN for heads that write to another stream (a T5 encoder's), 0 beyond a layer's heads.
        blocks: what the feed-forward layers write, (batch, n, blocks).
        embedding: (batch, n).
        bias: of output projections, final norm and logits, (batch, n).
        total: the model's own logit difference, (batch, n).
    """

    heads: Tensor
    blocks: Tensor
    embedding: Tensor
    bias: Tensor
    total: Tensor

    @property
    def sum(self) -> Tensor:
        """All parts together: equal to `total` up to rounding."""
        return self.heads.nan_to_num().sum((-2, -1)) + self.blocks.sum(-1) + self.embedding + self.bias


@dataclass
class _Seen:
    """What was seen at the columns of one pass, each (batch, n, width)."""

    columns: Tensor
    passed: Pass = field(default_factory=Pass)
    heads: dict[int, Tensor] = field(default_factory=dict)
    given: dict[str, Tensor] = field(default_factory=dict)  # block -> its input
    made: dict[str, Tensor] = field(default_factory=dict)  # module -> its output
    norms: list[tuple[nn.Module, Tensor, Tensor]] = field(default_factory=list)  # in the order of the pass

    def at(self, site: Site, x: Tensor) -> Tensor:
        """As an edit of head outputs: keeps them."""
        kept = self.pick(self.passed.rows(site, x).flatten(2))
        self.heads[site.index] = kept.view(*kept.shape[:2], site.n_heads, site.head_dim)
        return x

    def start(self, arguments: dict[str, Any]) -> None:
        self.passed = read_pass(arguments)

    def pick(self, x: Any) -> Tensor:
        state: Tensor = x if isinstance(x, Tensor) else x[0]
        columns = self.columns.to(state.device)
        return (
            state[torch.arange(len(columns), device=state.device)[:, None], columns].detach().double().cpu()
        )

    def fits(self, x: Any) -> bool:
        state = x if isinstance(x, Tensor) else x[0] if isinstance(x, tuple) and x else None
        return (
            isinstance(state, Tensor)
            and state.ndim == 3
            and len(state) == len(self.columns)
            and state.shape[1] > int(self.columns.max())
        )


def direct_logits(
    heads: Heads, inputs: Mapping[str, Any], columns: Tensor, plus: Tensor, minus: Tensor | None = None
) -> Contributions:
    """Every head's own contribution to the logit of token `plus` minus that of `minus`.

    Args:
        heads: of a language model whose blocks add to a residual stream.
        inputs: keyword arguments of one pass.
        columns: the positions (padding included) whose logits are taken apart, (batch, n); of the decoder in an encoder-decoder.
        plus, minus: tokens (batch, n); without `minus`, the mean over the vocabulary is taken off.

    Raises:
        UnsupportedModel: the model has no unembedding, its blocks do more than add to a stream, or its norm is of an unknown form.
    """
    root: Any = root_of(heads.model)
    unembedding: Any = root.get_output_embeddings()
    if unembedding is None or not isinstance(unembedding.weight, Tensor):
        raise UnsupportedModel(
            f"{type(root).__name__} has no unembedding: open it with its language-model head"
        )
    paired = bool(root.config.is_encoder_decoder)
    sites = [site for site in heads.sites if site.kind != "self"] if paired else list(heads.sites)
    seen = _Seen(columns)
    logits = _pass(heads, inputs, sites, unembedding, seen)
    weight, bias = (
        plain_weight("the unembedding", unembedding.weight).double().cpu(),
        getattr(unembedding, "bias", None),
    )
    offset = torch.zeros(len(weight), dtype=torch.float64) if bias is None else bias.detach().double().cpu()
    direction = weight[plus] - (weight[minus] if minus is not None else weight.mean(0))  # (batch, n, width)
    shift = offset[plus] - (offset[minus] if minus is not None else offset.mean())
    total = logits.gather(-1, plus[..., None])[..., 0]
    total = total - (logits.gather(-1, minus[..., None])[..., 0] if minus is not None else logits.mean(-1))

    blocks = list(dict.fromkeys(site.layer_path for site in sites))
    reads, constant = _through_norm(seen, direction, seen.made[blocks[-1]])
    written = torch.zeros(*columns.shape, len(blocks), dtype=torch.float64)
    own = torch.full((*columns.shape, *heads.shape), float("nan"), dtype=torch.float64)
    constant = constant + shift
    for number, path in enumerate(blocks):
        rest = seen.made[path] - seen.given[path]
        for site in (site for site in sites if site.layer_path == path):
            rest = rest - seen.made[site.path]
            projection: Any = heads.model.get_submodule(site.path)
            axes = weight_axes(projection)
            assert axes is not None
            output = (
                plain_weight(site.path, projection.weight).movedim(axes[1], 0)[: site.width].double().cpu()
            )
            output = output.view(site.n_heads, site.head_dim, -1)
            own[:, :, site.index] = 0
            own[:, :, site.index, : site.n_heads] = torch.einsum(
                "bnhd,hdw,bnw->bnh", seen.heads[site.index], output, reads
            )
            if getattr(projection, "bias", None) is not None:
                constant = constant + reads @ projection.bias.detach().double().cpu()
        _check_rest(seen, path, rest)
        written[..., number] = (rest * reads).sum(-1)
    found = Contributions(own, written, (seen.given[blocks[0]] * reads).sum(-1), constant, total)
    if not torch.allclose(found.sum, total, rtol=NEAR, atol=NEAR * max(1.0, float(total.abs().max()))):
        raise UnsupportedModel(
            f"the parts of the residual stream of {type(root).__name__} do not sum to its logits"
        )
    return found


def _pass(
    heads: Heads, inputs: Mapping[str, Any], sites: list[Site], unembedding: nn.Module, seen: _Seen
) -> Tensor:
    """Runs the model, fills `seen`, and gives the logits at the columns, before any cap."""
    model, handles = heads.model, []
    paths = {site.layer_path for site in sites}
    if "" in paths or any(site.n_calls > 1 for site in sites):
        raise UnsupportedModel("the blocks of its layers are shared, or not known")

    def note(path: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if seen.fits(output):
                seen.made[path] = seen.pick(output)
                if is_norm(module) and args:
                    seen.norms.append((module, seen.pick(args[0]), seen.made[path]))

        return hook

    def entered(path: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            seen.given[path] = seen.pick(args[0] if args else kwargs["hidden_states"])

        return hook

    for path, module in model.named_modules():
        inside = any(path == block or path.startswith(f"{block}.") for block in paths)
        if inside or is_norm(module):
            handles.append(module.register_forward_hook(note(path)))
        if path in paths:
            handles.append(module.register_forward_pre_hook(entered(path), with_kwargs=True))
    found: dict[str, Tensor] = {}

    def unembedded(module: nn.Module, args: Any, output: Any) -> None:
        found["read"], found["logits"] = seen.pick(args[0]), seen.pick(output)

    handles.append(unembedding.register_forward_hook(unembedded))
    try:
        with torch.no_grad(), heads.edited(seen):
            model(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    seen.given["unembedding"] = found["read"]
    return found["logits"]


def _through_norm(seen: _Seen, direction: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """The direction as the residual stream before the final norm has it, (batch, n, width), and what the norm itself adds, (batch, n).

    The norm is f(r) = t · γ ⊙ (r − m · mean r) + β: β, m and γ are found by what it makes of three vectors, t from its input.
    """
    read = seen.given["unembedding"]
    found = None
    for entry in (entry for entry in seen.norms if entry[2].shape == read.shape):
        scale = (read * entry[2]).sum() / entry[
            2
        ].square().sum()  # T5 scales the states before it unembeds them
        if _near(entry[2] * scale, read):
            found = *entry, scale
    if found is None:
        raise UnsupportedModel("what enters the unembedding is not the output of a norm")
    norm, given, made, scale = found
    if not _near(given, last):
        raise UnsupportedModel("the final norm reads something other than the last block's output")
    width = given.shape[-1]
    parameter = next(norm.parameters(), None)

    def of(vector: Tensor) -> Tensor:
        x = vector if parameter is None else vector.to(parameter.device, parameter.dtype)
        with torch.no_grad():
            out: Tensor = norm(x[None, None])[0, 0].double().cpu()
        return out

    zero_mean = torch.ones(width)
    zero_mean[-1] = 1 - width
    shift = of(torch.zeros(width))
    gain = (of(zero_mean) - shift) / zero_mean.double()
    centred = bool((of(torch.ones(width)) - shift).abs().max() < NEAR * gain.abs().max())
    inner = gain * (given - given.mean(-1, keepdim=True) if centred else given)
    factor = ((made - shift) * inner).sum(-1, keepdim=True) / inner.square().sum(-1, keepdim=True)
    if not _near(factor * inner + shift, made):
        raise UnsupportedModel(
            f"{type(norm).__name__} is not a norm that is linear once its statistics are held fixed"
        )
    reads = scale * factor * gain * direction
    return reads - reads.mean(-1, keepdim=True) if centred else reads, scale * (direction @ shift)


def _check_rest(seen: _Seen, path: str, rest: Tensor) -> None:
    """Raises unless what a block adds beside attention is what one of its modules puts out: its feed-forward layer."""
    inner = [
        made for name, made in seen.made.items() if name.startswith(f"{path}.") and made.shape == rest.shape
    ]
    if float(rest.abs().max()) > NEAR and not any(_near(made, rest) for made in inner):
        raise UnsupportedModel(
            f"{path} does not add the output of attention and that of a feed-forward layer to its input, for instance because norms follow them"
        )


def _near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=NEAR, atol=NEAR * max(1e-6, float(other.abs().max())))
