"""Compiled code (`torch.compile`) knows the hooks that were set when it was made, and no later ones: inside
blocks it runs as written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from headwise._base.switches import Switch


def anything_compiled() -> bool:
    """Whether this process has compiled code, of whatever model; where torch does not say, yes."""
    conversion = sys.modules.get("torch._dynamo.convert_frame")
    return conversion is not None and bool(getattr(getattr(conversion, "input_codes", None), "seen", True))


def forget_compiled() -> None:
    """Drops all compiled code of this process, so that it is made again, with the hooks there are now."""
    if anything_compiled():
        torch._dynamo.reset()


def _force_eager() -> Callable[[], object]:
    stance = torch.compiler.set_stance("force_eager")
    return _by_itself(lambda: stance.__exit__(None, None, None))


def _by_itself(function: Callable[[], Any]) -> Callable[[], Any]:
    """The function, left alone where code is being compiled: a stance cannot be taken there."""
    alone: Callable[[], Any] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return alone


eagerly = Switch(lambda: _by_itself(_force_eager)())  # compiled code of this process runs as it is written
