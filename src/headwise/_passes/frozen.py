"""Passes of a frozen model: they leave no trace, and gradients reach head outputs alone.

Some quantised layers compute in integers, and end every gradient: those are refused.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads import evaluating, forked, frozen_twin, turn

PLAIN = (Tensor, nn.Parameter)


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


@contextmanager
def with_gradients(model: nn.Module) -> Iterator[None]:
    """Gradients inside.

    Raises:
        HeadwiseError: a layer of the model hands none back, so that derivatives would be those of another
            model.
    """
    refuse_one_way(model)
    with torch.enable_grad():
        yield


def refuse_one_way(model: nn.Module) -> None:
    """Tries one layer of each kind whose weights are quantised (plain weights always hand gradients back)."""
    tried = set()
    for path, module in model.named_modules():
        weight: Any = getattr(module, "weight", None)
        if not isinstance(weight, Tensor) or (type(weight) in PLAIN and weight.is_floating_point()):
            continue
        kind = (type(module), type(weight), weight.dtype)
        if kind not in tried and _ends_gradients(module, weight, model):
            raise HeadwiseError(
                f"{path} ({type(module).__name__} with weights as {type(weight).__name__} of {weight.dtype}) "
                "hands no true gradient back, and this method needs the gradients of head outputs: choose "
                "one that needs none, such as 'ablation' or 'shapley', or open the model without quantising "
                "it"
            )
        tried.add(kind)


def _ends_gradients(module: nn.Module, weight: Tensor, model: nn.Module) -> bool:
    """Whether the gradient of a linear layer differs from what its output does when its input moves: of all
    of it, or of a part."""
    width = getattr(module, "in_features", None)
    if not isinstance(width, int):
        return False
    dtype = next(
        (p.dtype for p in model.parameters() if type(p) is nn.Parameter and p.is_floating_point()),
        torch.float32,
    )
    angles = torch.linspace(-3, 3, width, dtype=torch.float32, device=weight.device)
    x, step = (wave.to(dtype).view(1, width) for wave in ((7 * angles).sin(), (5 * angles).cos()))
    with torch.enable_grad():
        try:
            before = module.forward(x.requires_grad_())
            change = (module.forward(x + step) - before).detach().float()
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
            return False  # it wants something else than a row of numbers: its own pass will say what
        if not before.requires_grad:
            return True
        (gradient,) = torch.autograd.grad((before.float() * change).sum(), x, allow_unused=True)
    if gradient is None:
        return True
    moved, expected = float((gradient.float() * step.float()).sum()), float(change.square().sum())
    return abs(moved - expected) > 0.5 * expected
