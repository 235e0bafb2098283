"""Where several `Heads` of one model meet: their hooks are on the same projections, and their blocks act in
the order they were opened in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from headwise.heads._use.taps import Tap, Taps


def taps_on(module: nn.Module) -> list[tuple[Taps, Tap]]:
    """Every `Heads` that has a hook on a projection, first the one whose hook torch calls first; it acts for
    all."""
    return [hook.tap for hook in module._forward_pre_hooks.values() if hasattr(hook, "tap")]
