"""Reading chosen heads, and stopping the model once the last of them has spoken.

The model is not cut: a hook raises after the highest site, and the pass ends there. Layers above are never
computed; whatever the model would do with its result does not happen.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from headwise.heads import Heads, HeadSet, Hooks, Site, Tape, check_pooling, in_backward


class _Enough(Exception):
    """All that is needed has been read."""


class _Reader:
    """An edit that keeps the outputs of some sites and ends the pass after the last."""

    def __init__(self, sites: tuple[Site, ...], needed: set[int], pooling: str, detach: bool) -> None:
        self.tape = Tape(sites, check_pooling(pooling), detach)
        self.needed, self.last = needed, max(needed)

    def start(self, arguments: dict[str, Any]) -> None:
        self.tape.start(arguments)

    def apply(self, site: Site, x: Tensor) -> Tensor:
        if site.index in self.needed:
            self.tape.apply(site, x)
        if site.index == self.last and not in_backward():  # not when a layer is run again for its gradient
            raise _Enough
        return x


def head_outputs(
    heads: Heads, head_set: HeadSet, inputs: Mapping[str, Any], pooling: str, *, detach: bool = True
) -> Tensor:
    """Concatenated outputs of chosen heads, in the order of the set; only the layers up to the highest of
    them are computed.

    Args:
        heads: of the model to run.
        head_set: which heads.
        inputs: keyword arguments of one forward pass.
        pooling: "cls", "last" or "mean": (batch, dim); "all": (batch, tokens, dim). dim is the sum of the
            heads' widths.
        detach: cut the result from the autograd graph.
    """
    by_layer = heads.check(head_set).layers()
    reader = _Reader(heads.sites, set(by_layer), pooling, detach)
    # in this order: layers that were not reached must not count as missed
    with suppress(_Enough), heads.edited(reader):
        heads.model(**inputs)
    outputs = []
    for layer, numbers in by_layer.items():
        outputs.append(reader.tape.layer(layer)[..., list(numbers), :].flatten(-2))
    return torch.cat([output.to(outputs[0].device) for output in outputs], dim=-1)


def final_state(result: Any, width: int) -> Tensor | None:
    """What a model makes of its last layer, the final norm included: (batch, tokens, width).

    None if it projects it to another width, as some OPT do: that is no hidden state.
    """
    state = getattr(result, "last_hidden_state", None)
    if state is None:
        state = result[0]
    fits = isinstance(state, Tensor) and state.ndim == 3 and state.shape[-1] == width
    return state if fits else None


def layer_output(
    heads: Heads, layer: int, inputs: Mapping[str, Any], pooling: str, *, detach: bool = True
) -> Tensor:
    """The hidden state after one layer; layers above it are not computed. That of the last layer is read
    after the model's final norm.

    Args:
        heads: of the model to run.
        layer: a site's number; the output of the block it belongs to is read.
        inputs, pooling, detach: as in `head_outputs`.
    """
    site, top = heads.sites[layer], heads.sites[-1]
    last = (site.layer_path, site.call) == (top.layer_path, top.call)
    tape = Tape(heads.sites, check_pooling(pooling), detach)

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        if in_backward() or not heads._taps.acting(watching):  # or a pass of another thread
            return
        calls[0] += 1
        if calls[0] > site.call:
            tape.hidden_at(site, output)
            if not last:
                raise _Enough

    calls, watching = [0], _Watching(tape)
    block = heads.model.get_submodule(site.layer_path)
    hooks = Hooks()
    hooks.after(block, hook)
    try:
        with suppress(_Enough), heads.edited(watching):
            result = heads.model(**inputs)
    finally:
        hooks.remove()
    state = tape._hidden[layer][0]
    final = final_state(result, state.shape[-1]) if last else None
    if final is None:
        return state
    return tape.pooled(final.detach() if detach else final)


class _Watching:
    """An edit that only tells a tape how each pass begins."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape

    def start(self, arguments: dict[str, Any]) -> None:
        self.tape.start(arguments)

    def apply(self, site: Site, x: Tensor) -> Tensor:
        return x
