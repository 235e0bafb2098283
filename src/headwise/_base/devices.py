"""Devices by name."""

from typing import Any

import torch

from headwise.errors import HeadwiseError


def checked_device(name: Any) -> torch.device:
    """The device of that name.

    Raises:
        HeadwiseError: there is no such device here.
    """
    here = ["cpu", "cuda", *(f"cuda:{number}" for number in range(1, torch.cuda.device_count()))]
    if not torch.cuda.device_count():
        here.remove("cuda")
    if torch.backends.mps.is_available():
        here.append("mps")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise HeadwiseError(f"no device {name!r}; there is: {', '.join(here)}") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise HeadwiseError(f"device is {name!r}, but torch finds no such GPU; there is: {', '.join(here)}")
    return device
