"""Passes that leave no trace: evaluation mode and frozen weights inside, everything as it was outside."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from headwise.heads._restoration import devices_of, evaluating


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, no weight asking for a gradient, and a random state of its own.

    Afterwards each module's mode, each weight's `requires_grad` and the random state are as before; `.grad` is never touched,
    since with frozen weights a backward pass reaches only the gates. Freezing also halves the work and the memory of that pass.
    """
    asking = [weight for weight in model.parameters() if weight.requires_grad]
    devices = devices_of(model)
    try:
        kind = devices[0].type if devices else "cuda"
        with torch.random.fork_rng([d.index or 0 for d in devices], device_type=kind), evaluating(model):
            for weight in asking:
                weight.requires_grad_(False)
            yield
    finally:
        for weight in asking:
            weight.requires_grad_(True)
