"""Running a model without leaving a trace: modes, attributes, buffers and random state come back as they were."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def devices_of(model: nn.Module) -> list[torch.device]:
    """The accelerators a model's parameters and buffers lie on."""
    found = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    return sorted((d for d in found if d.type not in ("cpu", "meta")), key=str)


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards every module's attributes, mode and buffers, and the random state, are as before."""
    before = [(module, dict(module.__dict__), dict(module._buffers)) for module in model.modules()]
    contents = [(buffer, buffer.clone()) for buffer in model.buffers() if buffer.device.type != "meta"]
    devices = devices_of(model)
    device_type = devices[0].type if devices else "cuda"
    try:
        with torch.random.fork_rng(devices=[d.index or 0 for d in devices], device_type=device_type):
            model.eval()
            yield
    finally:
        for module, attributes, buffers in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)
        with torch.no_grad():
            for buffer, content in contents:
                if not torch.equal(buffer, content):
                    buffer.copy_(content)
