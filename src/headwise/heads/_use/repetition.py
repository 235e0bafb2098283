"""Layers that gradient checkpointing repeats during the backward pass, last first, on a GPU in threads of
autograd: which blocks are theirs.

A layer's input, which the checkpoint keeps alive, tells which pass and which of a shared layer's calls is
being repeated. Up to transformers 5.22 the layer itself is called again; from 5.23 on its forward alone,
whose parts see the layer's input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads._inputs import tensors_in
from headwise.heads._use.blocks import Block, Here, in_backward, opened

if TYPE_CHECKING:
    from headwise.heads._use.taps import Taps


class Repetition:
    """The passes through the layer of one projection.

    Attributes:
        path: of the projection.
        layer: the layer.
        passes: address of the layer's input -> number of the projection's first call, the blocks then open,
            and how many passes each had begun.
        inlets: the parts of the layer that are given the layer's own input.
    """

    def __init__(self, path: str, layer: nn.Module) -> None:
        self.path, self.layer = path, layer
        self.passes: dict[int, tuple[int, tuple[Block, ...], tuple[int, ...]]] = {}
        self.inlets: set[nn.Module] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "passes": {}}

    def hooks(self, taps: Taps) -> Iterator[tuple[nn.Module, Any]]:
        """Modules, and the hook that each is to have before its calls."""

        def at_layer(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
            if torch.compiler.is_compiling() or module is not self.layer:
                return
            here, address = taps._here(), _address((*args, *(kwargs or {}).values()))
            here.repeated.pop(self.path, None)
            if in_backward():
                self._recall(taps, here, address)
            elif address is not None:
                here.inputs[self.path] = address
                blocks = opened(taps)
                begun = tuple(block.passes for block in blocks)
                self.passes[address] = here.calls.get(self.path, 0), blocks, begun

        def at_inner_module(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
        ) -> None:
            if torch.compiler.is_compiling():
                return
            here, address = taps._here(), _address((*args, *(kwargs or {}).values()))
            if in_backward():
                if module in self.inlets:
                    self._recall(taps, here, address)
            elif address is not None and address == here.inputs.get(self.path):
                self.inlets.add(module)

        yield self.layer, at_layer
        for module in _inner_modules(self.layer):
            yield module, at_inner_module

    def _recall(self, taps: Taps, here: Here, address: int | None) -> None:
        if address in self.passes:
            here.calls[self.path], blocks, begun = self.passes[address]
            for block, number in zip(blocks, begun, strict=True):
                if block.needs == "tokens" and block.changes and block.passes != number:
                    raise HeadwiseError(
                        f"{self.path} is repeated during a backward pass, but another pass has begun since, "
                        "and this block goes by the tokens of the present one: with gradient checkpointing "
                        "run each backward pass before the next forward pass"
                    )
            here.repeated[self.path] = blocks
        elif not opened(taps) and taps.live:
            raise unknown_pass(self.path)


def watch_backward(output: Any, blocks: Sequence[Block]) -> None:
    """Has the backward pass from this output refused once a block is closed that changed what its layers
    compute: they are repeated."""
    changing = [block for block in blocks if block.changes]

    def check(gradient: Tensor) -> None:
        if not all(block.open for block in changing):
            raise HeadwiseError(
                "this backward pass repeats layers (gradient checkpointing), and the block that changed "
                "them in the forward pass is closed, so they would be repeated without its changes: run the "
                "backward pass inside the block"
            )

    if changing:
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(check)  # type: ignore[no-untyped-call]


def unknown_pass(path: str) -> HeadwiseError:
    """The refusal to repeat a layer for a pass that nobody remembers."""
    return HeadwiseError(
        f"{path} is repeated during a backward pass, and the thread whose pass it belongs to is unknown: "
        "turn gradient checkpointing on by model.gradient_checkpointing_enable(), and run forward and "
        "backward inside one block"
    )


def _inner_modules(layer: nn.Module) -> Iterator[nn.Module]:
    """The modules that a layer calls; a list of modules is not called, but what it holds."""
    for child in layer.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _inner_modules(child)
        else:
            yield child


def _address(values: Sequence[Any]) -> int | None:
    """Where the first tensor among `values` lies in memory; None if it lies nowhere (inside vmap)."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    try:
        return tensors[0].data_ptr() if tensors else None
    except RuntimeError:
        return None
