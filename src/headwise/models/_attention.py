"""Which attention kernel a pass runs with.

On Hopper cards torch prefers cuDNN's attention for half precision. cuDNN builds a plan for every new shape of
batch: measured on an H200, 65 ms for a forward pass and 140 to 1,100 ms with gradients, where the pass of a
small encoder takes a few. Batches of texts come in dozens of shapes, so that training, scoring and evaluation
spent most of their time on plans. The other kernels start at once, and on short texts they also run faster.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

LONG = 512  # tokens: beyond, a pass takes long enough for a plan to pay


@contextmanager
def without_plans(input_ids: Tensor) -> Iterator[None]:
    """Attention inside is never cuDNN's, if the rows of `input_ids` are at most `LONG` tokens; afterwards it
    may be as before.

    A backward pass uses the kernel of its forward pass, so it needs no context of its own.
    """
    flags: Any = torch.backends.cuda
    if (
        not input_ids.is_cuda
        or input_ids.shape[-1] > LONG
        or torch.compiler.is_compiling()
        or not flags.cudnn_sdp_enabled()
    ):
        yield
        return
    flags.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        flags.enable_cudnn_sdp(True)
