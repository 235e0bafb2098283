"""Whether passes of a model draw random numbers, in evaluation mode too.

torch's random state belongs to all threads. Going back to an earlier one repeats what another thread has
drawn since, so that is done only for the few models that draw themselves.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from headwise.heads._restoration import devices_of

FUSED = "attention"  # draws where it drops out, which it does not in evaluation mode


class Chance:
    """Attributes: drawn: whether the pass drew random numbers."""

    drawn = False


@contextmanager
def noticing_draws(model: nn.Module, again: Callable[[], Any]) -> Iterator[Chance]:
    """Notices whether the pass inside draws random numbers; if it does, the random state is afterwards as
    before.

    Args:
        model: what runs.
        again: the same pass once more. It runs if the random state has moved, which may be another thread's
            doing.
    """
    chance, before = Chance(), _states(model)
    yield chance
    if all(map(torch.equal, before, _states(model))):
        return
    with _Drawing() as drawing:  # type: ignore[no-untyped-call]
        again()
    chance.drawn = drawing.drawn
    if chance.drawn:
        torch.set_rng_state(before[0])
        for device, state in zip(devices_of(model), before[1:], strict=True):
            getattr(torch, device.type).set_rng_state(state, device)


class _Drawing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notices operations of this thread that draw random numbers."""

    drawn = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.drawn |= torch.Tag.nondeterministic_seeded in func.tags and FUSED not in str(func)
        return func(*args, **(kwargs or {}))


def _states(model: nn.Module) -> list[Tensor]:
    """The random states of the CPU and of the accelerators a model lies on."""
    states = [torch.get_rng_state()]
    for device in devices_of(model):
        states.append(getattr(torch, device.type).get_rng_state(device))
    return states
