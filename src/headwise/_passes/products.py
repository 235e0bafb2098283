"""Matrix products of passes without gradients by oneDNN, on processors where MKL leaves their widest
registers unused.

torch gives float32 products on a CPU to MKL. On an AMD EPYC (Zen 5) MKL reaches the speed of half-wide
registers, while oneDNN, which is part of torch too, takes 0.45 of its time in the same precision: results
differ only by the order of summation. Measured there alone; on other processors without AVX-512, and on
Intel's, for which MKL is made, nothing changes.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

# Multiplications from which it pays: a call of oneDNN costs 10 µs more than one of MKL, and the first of
# every shape 0.3 ms.
WORTH = 8_000_000
ROWS = 16  # fewer are hardly a matrix: reading the weights is then all the work
PLAIN = (Tensor, torch.nn.Parameter)  # not quantised, sharded or otherwise more than numbers


class OneDNN(TorchFunctionMode):
    """Inside, in this thread alone, large enough float32 products with weights run in oneDNN; every other
    call runs as it would."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is linear and not kwargs and 2 <= len(args) <= 3:
            x, weight, bias = (*args, None)[:3]
            if _pays(x, weight, bias):
                return _product(x, weight, bias)
        elif func is torch.addmm and not kwargs and len(args) == 3:
            bias, x, weight = args  # GPT-2's `Conv1D`, whose weights are stored transposed
            if type(weight) in PLAIN and weight.ndim == 2 and _pays(x, weight.T, bias):
                return _product(x, weight.T, bias)
        return func(*args, **(kwargs or {}))


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def _pays(x: Any, weight: Any, bias: Any) -> bool:
    """Whether this is a product x (..., in) with weight (out, in) that oneDNN computes faster; bias (out,) or
    None."""
    for tensor in (x, weight) if bias is None else (x, weight, bias):
        if type(tensor) not in PLAIN or tensor.dtype != torch.float32 or tensor.device.type != "cpu":
            return False
    if weight.ndim != 2 or x.ndim < 2 or x.shape[-1] != weight.shape[1]:
        return False
    if bias is not None and bias.shape != weight.shape[:1]:
        return False
    if x.numel() < ROWS * x.shape[-1] or x.numel() * weight.shape[0] < WORTH:
        return False
    if not (weight.is_contiguous() or weight.T.is_contiguous()):
        return False
    return not (torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling())


def quick_products(device: torch.device) -> AbstractContextManager[Any]:
    """Inside, passes without gradients on `device` take the faster of torch's two libraries for products."""
    if device.type == "cpu" and faster() and torch.backends.mkldnn.enabled and not torch.is_grad_enabled():
        return OneDNN()
    return nullcontext()


@cache
def faster() -> bool:
    """Whether oneDNN is the faster one here: torch has both, and the processor has AVX-512 and is not
    Intel's."""
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if (
        not both
        or torch.backends.cpu.get_cpu_capability() != "AVX512"
        or not hasattr(torch.ops.mkldnn, "_linear_pointwise")
    ):
        return False
    try:
        return "GenuineIntel" not in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False  # not Linux: whose processor it is is not known
