"""Weights cast for mixed precision all at once.

Under autocast every linear layer casts its own weights, and its gradients back: two dozen small kernels per
layer of an encoder and step, which is a good part of a replayed step. Here one operation casts the weights of
all layers before a forward pass, and one casts all gradients back. Values are those of autocast.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D


class _Cast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # a weight that the pass does not use keeps no gradient
        return tuple(_all_as(weights, dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        back = iter(_all_as([gradient for gradient in gradients if gradient is not None], torch.float32))
        return (None, *(None if gradient is None else next(back) for gradient in gradients))


def _all_as(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    if copies:
        torch._foreach_copy_(copies, list(tensors))
    return copies


@contextmanager
def cast_together(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Within the context the linear layers of `model` have their float32 weights in `dtype`; gradients reach
    the float32 ones."""
    slots: list[tuple[nn.Module, str, nn.Parameter]] = []
    for module in model.modules():
        if type(module) in (nn.Linear, Conv1D):
            for name, weight in module._parameters.items():
                if weight is not None and weight.dtype == torch.float32:
                    slots.append((module, name, weight))
    weights = list({id(weight): weight for _, _, weight in slots}.values())  # tied ones once
    cast: dict[int, Any] = {}
    if weights:
        copies = _Cast.apply(dtype, *weights)  # type: ignore[no-untyped-call]
        cast = dict(zip(map(id, weights), copies, strict=True))
    try:
        for module, name, weight in slots:
            module._parameters[name] = cast[id(weight)]
        yield
    finally:
        for module, name, weight in slots:
            module._parameters[name] = weight


def cast_while_captured(model: nn.Module, precision: str) -> AbstractContextManager[None]:
    """While a step is captured in bf16, the weights are cast all at once; otherwise autocast casts them one
    by one."""
    if precision != "bf16" or not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return nullcontext()
    return cast_together(model, torch.bfloat16)
