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

from headwise.heads._hooks import COPIER, drop_new_hooks, eagerly, hook_numbers

ABSENT = object()


def devices_of(model: nn.Module) -> list[torch.device]:
    """The accelerators a model's parameters and buffers lie on."""
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    return sorted((device for device in devices if device.type not in ("cpu", "meta")), key=str)


def forked(model: nn.Module, draws: bool = True) -> AbstractContextManager[None]:
    """A random state of its own inside, if passes of the model draw at all: torch's state is every thread's,
    and going back to an earlier one repeats what others drew in between."""
    if not draws:
        return nullcontext()
    devices = devices_of(model)
    return torch.random.fork_rng(
        devices=[device.index or 0 for device in devices],
        device_type=devices[0].type if devices else "cuda",
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
    tables: list[tuple[MutableMapping[str, Any], dict[str, Any]]] = []  # as they will be, and as they are
    hooks: list[tuple[nn.Module, set[int]]] = []  # transformers sets some in a pass, and an attribute says so
    for module in model.modules():
        tables += [(table, dict(table)) for table in (vars(module), module._buffers, module._modules)]
        hooks.append((module, hook_numbers(module)))
    contents = [(buffer, buffer.clone()) for buffer in model.buffers() if buffer.device.type != "meta"]
    try:
        with forked(model), torch.inference_mode(False), eagerly():
            model.eval()
            yield
    finally:
        for present, past in tables:
            _restore(present, past)
        for module, numbers in hooks:
            drop_new_hooks(module, numbers)
        with torch.no_grad():
            for buffer, content in contents:
                if not torch.equal(buffer, content):
                    buffer.copy_(content)


def _restore(present: MutableMapping[str, Any], past: dict[str, Any]) -> None:
    """Puts back what has changed, and nothing else: other threads may be running the model."""
    for name, value in list(present.items()):
        if name not in past and not _belongs_to_a_block(name, value):
            del present[name]
    for name, value in past.items():
        if present.get(name, ABSENT) is not value and not _belongs_to_a_block(name, value):
            present[name] = value


def _belongs_to_a_block(name: str, value: Any) -> bool:
    """Whether an attribute belongs to an open block, which ends by itself."""
    return name == COPIER or bool(getattr(type(value), "headwise", False))
