"""Direct logit effect: what each head itself adds to a logit difference, the final norm held fixed.

The logits are W_U · norm(r), and r, the residual stream after the last block, is a sum: the embedding, what
every head of every layer writes, and what the feed-forward layers write. With the norm's statistics held at
their values the norm is linear, so every part has its own contribution, and the contributions sum to the
logits. That is checked in every pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
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
        heads: (batch, n, layers, heads); NaN for heads that write to another stream (a T5 encoder's), 0
            beyond a layer's heads.
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
class _States:
    """The states at the columns of one pass, each (batch, n, width), in float64."""

    columns: Tensor
    course: Pass = field(default_factory=Pass)
    heads: dict[int, Tensor] = field(default_factory=dict)  # by layer, (batch, n, heads, head_dim)
    inputs: dict[str, Tensor] = field(default_factory=dict)  # by block
    outputs: dict[str, Tensor] = field(default_factory=dict)  # by module
    norms: list[tuple[nn.Module, Tensor, Tensor]] = field(
        default_factory=list
    )  # input, output; in their order
    unembedding_input: Tensor = field(default_factory=lambda: torch.empty(0))
    logits: Tensor = field(default_factory=lambda: torch.empty(0))  # before any cap

    def start(self, arguments: dict[str, Any]) -> None:
        """A pass begins."""
        self.course = read_pass(arguments)

    def apply(self, site: Site, x: Tensor) -> Tensor:
        """As an edit of head outputs: keeps them."""
        outputs = self.pick(self.course.rows(site, x).flatten(2))
        self.heads[site.index] = outputs.view(*outputs.shape[:2], site.n_heads, site.head_dim)
        return x

    def pick(self, output: Any) -> Tensor:
        """The columns of a module's output."""
        states = output if isinstance(output, Tensor) else output[0]
        columns = self.columns.to(states.device)
        rows = torch.arange(len(columns), device=states.device)[:, None]
        picked: Tensor = states[rows, columns].detach().double().cpu()
        return picked

    def fits(self, output: Any) -> bool:
        """Whether a module's output has states at the columns."""
        states = output[0] if isinstance(output, tuple) and output else output
        return (
            isinstance(states, Tensor)
            and states.ndim == 3
            and len(states) == len(self.columns)
            and states.shape[1] > int(self.columns.max())
        )

    def keep_output(self, path: str, module: nn.Module, args: Any, output: Any) -> None:
        """As a hook of a module."""
        if self.fits(output):
            self.outputs[path] = self.pick(output)
            if is_norm(module) and args:
                self.norms.append((module, self.pick(args[0]), self.outputs[path]))

    def keep_input(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        """As a hook of a block."""
        self.inputs[path] = self.pick(args[0] if args else kwargs["hidden_states"])

    def keep_logits(self, module: nn.Module, args: Any, output: Any) -> None:
        """As a hook of the unembedding."""
        self.unembedding_input, self.logits = self.pick(args[0]), self.pick(output)


def direct_logits(
    heads: Heads, inputs: Mapping[str, Any], columns: Tensor, plus: Tensor, minus: Tensor | None = None
) -> Contributions:
    """Every head's own contribution to the logit of token `plus` minus that of `minus`.

    Args:
        heads: of a language model whose blocks add to a residual stream.
        inputs: keyword arguments of one pass.
        columns: the positions (padding included) whose logits are taken apart, (batch, n); of the decoder in
            an encoder-decoder.
        plus, minus: tokens (batch, n); without `minus`, the mean over the vocabulary is taken off.

    Raises:
        UnsupportedModel: the model has no unembedding, its blocks do more than add to a stream, or its norm
            is of an unknown form.
    """
    root: Any = root_of(heads.model)
    unembedding: Any = root.get_output_embeddings()
    if unembedding is None or not isinstance(unembedding.weight, Tensor):
        raise UnsupportedModel(
            f"{type(root).__name__} has no unembedding: open it with its language-model head"
        )
    sites = list(heads.sites)
    if root.config.is_encoder_decoder:
        sites = [site for site in sites if site.kind != "self"]
    states = _pass(heads, inputs, sites, unembedding, columns)
    weight = plain_weight("the unembedding", unembedding.weight).double().cpu()
    bias = getattr(unembedding, "bias", None)
    offsets = torch.zeros(len(weight), dtype=torch.float64) if bias is None else bias.detach().double().cpu()
    logits = states.logits
    direction, constant = weight[plus], offsets[plus]  # (batch, n, width), (batch, n)
    total = logits.gather(-1, plus[..., None])[..., 0]
    if minus is None:
        direction, constant = direction - weight.mean(0), constant - offsets.mean()
        total = total - logits.mean(-1)
    else:
        direction, constant = direction - weight[minus], constant - offsets[minus]
        total = total - logits.gather(-1, minus[..., None])[..., 0]

    blocks = list(dict.fromkeys(site.layer_path for site in sites))
    reads, norm_constant = _through_norm(states, direction, states.outputs[blocks[-1]])
    constant = norm_constant + constant
    of_blocks = torch.zeros(*columns.shape, len(blocks), dtype=torch.float64)
    of_heads = torch.full((*columns.shape, *heads.shape), float("nan"), dtype=torch.float64)
    for number, path in enumerate(blocks):
        beside_heads = states.outputs[path] - states.inputs[path]
        for site in sites:
            if site.layer_path != path:
                continue
            beside_heads = beside_heads - states.outputs[site.path]
            of_heads[:, :, site.index] = 0
            of_heads[:, :, site.index, : site.n_heads] = torch.einsum(
                "bnhd,hdw,bnw->bnh", states.heads[site.index], output_weights(heads.model, site), reads
            )
            projection_bias: Any = getattr(heads.model.get_submodule(site.path), "bias", None)
            if projection_bias is not None:
                constant = constant + reads @ projection_bias.detach().double().cpu()
        _check_feed_forward(states, path, beside_heads)
        of_blocks[..., number] = (beside_heads * reads).sum(-1)
    embedding = (states.inputs[blocks[0]] * reads).sum(-1)
    contributions = Contributions(of_heads, of_blocks, embedding, constant, total)
    if not torch.allclose(
        contributions.sum, total, rtol=NEAR, atol=NEAR * max(1.0, float(total.abs().max()))
    ):
        raise UnsupportedModel(
            f"the parts of the residual stream of {type(root).__name__} do not sum to its logits"
        )
    return contributions


def output_weights(model: nn.Module, site: Site) -> Tensor:
    """W_O of every head of a site, (heads, head_dim, width), in float64.

    Raises:
        UnsupportedModel: the projection has no plain weight.
    """
    projection = model.get_submodule(site.path)
    axes, weight = weight_axes(projection), getattr(projection, "weight", None)
    if axes is None or not isinstance(weight, Tensor) or weight.ndim != 2:
        raise UnsupportedModel(f"{site.path} has no plain weight")
    rows = plain_weight(site.path, weight).movedim(axes[1], 0)[: site.width]  # (heads × head_dim, width)
    return rows.double().cpu().view(site.n_heads, site.head_dim, -1)


def _pass(
    heads: Heads, inputs: Mapping[str, Any], sites: list[Site], unembedding: nn.Module, columns: Tensor
) -> _States:
    """Runs the model and keeps its states at the columns."""
    blocks = {site.layer_path for site in sites}
    if "" in blocks or any(site.n_calls > 1 for site in sites):
        raise UnsupportedModel("the blocks of its layers are shared, or not known")
    states = _States(columns)
    handles = [unembedding.register_forward_hook(states.keep_logits)]
    for path, module in heads.model.named_modules():
        if path in blocks:
            entered = partial(states.keep_input, path)
            handles.append(module.register_forward_pre_hook(entered, with_kwargs=True))
        if is_norm(module) or any(f"{path}.".startswith(f"{block}.") for block in blocks):
            handles.append(module.register_forward_hook(partial(states.keep_output, path)))
    try:
        with torch.no_grad(), heads.edited(states):
            heads.model(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    return states


def _through_norm(states: _States, direction: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """The direction as the residual stream before the final norm has it, and what the norm itself adds.

    The norm is f(r) = t · γ ⊙ (r − m · mean r) + β: β, m and γ come from its outputs for three vectors, t
    from its input.

    Returns:
        (batch, n, width) and (batch, n).
    """
    norm, stream, output, scale = _final_norm(states)
    if not _near(stream, last):
        raise UnsupportedModel("the final norm reads something other than the last block's output")
    width = stream.shape[-1]
    parameter = next(norm.parameters(), torch.empty(0))

    def normed(vector: Tensor) -> Tensor:
        with torch.no_grad():
            result: Tensor = norm(vector.to(parameter.device, parameter.dtype)[None, None])
        return result[0, 0].double().cpu()

    zero_mean = torch.ones(width)
    zero_mean[-1] = 1 - width
    shift = normed(torch.zeros(width))
    gain = (normed(zero_mean) - shift) / zero_mean.double()
    centred = bool((normed(torch.ones(width)) - shift).abs().max() < NEAR * gain.abs().max())
    inner = gain * (stream - stream.mean(-1, keepdim=True) if centred else stream)
    factor = ((output - shift) * inner).sum(-1, keepdim=True) / inner.square().sum(-1, keepdim=True)
    if not _near(factor * inner + shift, output):
        raise UnsupportedModel(
            f"{type(norm).__name__} is not a norm that is linear once its statistics are held fixed"
        )
    reads = scale * factor * gain * direction
    if centred:
        reads = reads - reads.mean(-1, keepdim=True)
    return reads, scale * (direction @ shift)


def _final_norm(states: _States) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """The norm before the unembedding, its input and output, and by what its output is scaled, as T5 does."""
    read = states.unembedding_input
    for norm, stream, output in reversed(states.norms):
        if output.shape == read.shape:
            scale = (read * output).sum() / output.square().sum()
            if _near(output * scale, read):
                return norm, stream, output, scale
    raise UnsupportedModel("what enters the unembedding is not the output of a norm")


def _check_feed_forward(states: _States, block: str, addition: Tensor) -> None:
    """Raises unless what a block adds beside attention is the output of one of its modules: its feed-forward
    layer."""
    if float(addition.abs().max()) <= NEAR:
        return
    for path, output in states.outputs.items():
        if path.startswith(f"{block}.") and output.shape == addition.shape and _near(output, addition):
            return
    raise UnsupportedModel(
        f"{block} does not add the output of attention and that of a feed-forward layer to its input, "
        "for instance because norms follow them"
    )


def _near(values: Tensor, expected: Tensor) -> bool:
    return torch.allclose(values, expected, rtol=NEAR, atol=NEAR * max(1e-6, float(expected.abs().max())))
