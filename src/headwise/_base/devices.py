"""Devices by name."""

from typing import Any

import torch

from headwise.errors import HeadwiseError


def checked_device(name: Any) -> torch.device:
    """The device of that name.

    Raises:
        HeadwiseError: there is no such device here.
    """
    here = [f"cuda:{i}" if i else "cuda" for i in range(torch.cuda.device_count())]
    here += ["mps"] if torch.backends.mps.is_available() else []
    try:
        device = torch.device(name)
    except RuntimeError:
        raise HeadwiseError(f"no device {name!r}; there is: {', '.join(['cpu', *here])}") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise HeadwiseError(
            f"device is {name!r}, but torch finds no such GPU; there is: {', '.join(['cpu', *here])}"
        )
    return device
