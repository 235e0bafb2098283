"""Passes that leave no trace: evaluation mode and frozen weights inside, everything as it was outside."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from headwise.heads import evaluating, forked, frozen_twin, turn


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, no weight asking for a gradient, and a random state of its own; of a twin, both are so
    from the start.

    Afterwards each module's mode, each weight's `requires_grad` and the random state are as before; `.grad`
    is never touched, since with frozen weights a backward pass reaches only the gates. Freezing also halves
    the work and the memory of that pass.
    """
    if (chance := frozen_twin(model)) is not None:
        with chance:
            yield
        return
    with turn:
        asking = [weight for weight in model.parameters() if weight.requires_grad]
        try:
            with forked(model), evaluating(model):
                for weight in asking:
                    weight.requires_grad_(False)
                yield
        finally:
            for weight in asking:
                weight.requires_grad_(True)
