"""Running a model without leaving a trace: modes, attributes, buffers and random state come back as they were."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from headwise.heads._hooks import COPIER


def devices_of(model: nn.Module) -> list[torch.device]:
    """The accelerators a model's parameters and buffers lie on."""
    found = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    return sorted((d for d in found if d.type not in ("cpu", "meta")), key=str)


def _attributes(module: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name != COPIER}


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
    """Evaluation mode inside; afterwards modules, their attributes, modes and buffers, and the random state, are as before."""
    before = [(module, _attributes(module), dict(module._buffers), dict(module._modules)) for module in model.modules()]
    contents = [(buffer, buffer.clone()) for buffer in model.buffers() if buffer.device.type != "meta"]
    devices = devices_of(model)
    device_type = devices[0].type if devices else "cuda"
    try:
        with (
            torch.random.fork_rng(devices=[d.index or 0 for d in devices], device_type=device_type),
            torch.inference_mode(False),
            torch.compiler.set_stance("force_eager"),
        ):
            model.eval()
            yield
    finally:
        for module, attributes, buffers, children in before:
            attributes |= {
                name: value for name, value in vars(module).items() if name == COPIER
            }  # as long as the hooks it goes with
            states: tuple[tuple[Any, Any], ...] = (
                (module.__dict__, attributes),
                (module._buffers, buffers),
                (module._modules, children),
            )
            for present, past in states:
                present.clear()
                present.update(past)
        with torch.no_grad():
            for buffer, content in contents:
                if not torch.equal(buffer, content):
                    buffer.copy_(content)
