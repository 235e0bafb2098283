"""Running a model itself without leaving a trace: modes, attributes, buffers and random state come back as
they were.

Only for models that cannot have a twin (see `headwise.heads._reading`), and for models that are nobody
else's.
"""

from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from headwise.heads._compiled import eagerly
from headwise.heads._hooks import COPIER, drop_new_hooks, hook_numbers

ABSENT = object()


def devices_of(model: nn.Module) -> list[torch.device]:
    """The accelerators a model's parameters and buffers lie on."""
    found = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    return sorted((d for d in found if d.type not in ("cpu", "meta")), key=str)


def forked(model: nn.Module, draws: bool = True) -> AbstractContextManager[None]:
    """A random state of its own inside, if passes of the model draw at all: torch's state is every thread's,
    and going back to an earlier one repeats what others drew in between."""
    if not draws:
        return nullcontext()
    devices = devices_of(model)
    return torch.random.fork_rng(
        devices=[d.index or 0 for d in devices], device_type=devices[0].type if devices else "cuda"
    )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards each module's mode is as before."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards modules, their attributes, hooks, modes and buffers, and the random
    state, are as before."""
    before = [
        (module, dict(vars(module)), dict(module._buffers), dict(module._modules))
        for module in model.modules()
    ]
    # Transformers sets some in a pass, and an attribute says so
    hooks = [(module, hook_numbers(module)) for module in model.modules()]
    contents = [(buffer, buffer.clone()) for buffer in model.buffers() if buffer.device.type != "meta"]
    try:
        with forked(model), torch.inference_mode(False), eagerly():
            model.eval()
            yield
    finally:
        for module, attributes, buffers, children in before:
            for present, past in (
                (vars(module), attributes),
                (module._buffers, buffers),
                (module._modules, children),
            ):
                _restore(present, past)
        for module, numbers in hooks:
            drop_new_hooks(module, numbers)
        with torch.no_grad():
            for buffer, content in contents:
                if not torch.equal(buffer, content):
                    buffer.copy_(content)


def _restore(present: MutableMapping[str, Any], past: MutableMapping[str, Any]) -> None:
    """Puts back what has changed, and nothing else: other threads may be running the model."""
    for name in [name for name in list(present) if name not in past and not _of_a_block(name, present[name])]:
        del present[name]
    for name, value in past.items():
        if present.get(name, ABSENT) is not value and not _of_a_block(name, value):
            present[name] = value


def _of_a_block(name: str, value: Any) -> bool:
    """Whether an attribute belongs to an open block, which ends by itself."""
    return name == COPIER or bool(getattr(type(value), "headwise", False))
