"""Open `with` blocks, and whose they are: a block belongs to the thread or asyncio task that opened it, and to what that one starts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads._inputs import root_of
from headwise.heads._sites import Site

if TYPE_CHECKING:
    from headwise.heads._use.taps import Taps


class Edit(Protocol):
    """What a context does to a site's head outputs."""

    def at(self, site: Site, x: Tensor) -> Tensor:
        """Takes the projection's input (..., heads × head_dim) and returns what replaces it."""

    def start(self, arguments: dict[str, Any]) -> None:
        """A forward pass begins; `arguments` are the named arguments of the model's forward."""


class Block:
    """One open `with`: its edit, and the projections it has been applied to."""

    def __init__(self, taps: Taps, edit: Edit) -> None:
        self.taps, self.edit = taps, edit
        self.thread = threading.get_ident()
        self.open = True
        self.fired = {tap.path: False for tap in taps.taps}


class Here:
    """A thread's place in its present pass through a model."""

    def __init__(self) -> None:
        self.blocks: tuple[Block, ...] = ()  # as `opened` says, for compiled code, which cannot read context variables
        self.running: nn.Module | None = None  # the entry through which the pass came in
        self.calls: dict[str, int] = {}  # projection -> calls so far, where layers share weights
        self.again: tuple[Block, ...] | None = None  # during a backward pass: the blocks of the pass whose layer is repeated


_open: ContextVar[tuple[Block, ...]] = ContextVar("headwise_open", default=())


def opened(taps: Taps) -> tuple[Block, ...]:
    """The blocks of `taps` that are open in this thread or task, oldest first."""
    found = _open.get()
    return tuple(block for block in found if block.taps is taps and block.open) if found else ()


@contextmanager
def holding(block: Block) -> Iterator[None]:
    """Opens a block in this thread or task; tasks that it starts inherit it until it is closed."""
    _open.set((*_open.get(), block))
    try:
        yield
    finally:
        block.open = False
        _open.set(tuple(other for other in _open.get() if other.open))


@contextmanager
def aside(taps: Taps) -> Iterator[None]:
    """Inside, no block of `taps` is open in this thread or task."""
    before = _open.get()
    _open.set(tuple(block for block in before if block.taps is not taps))
    try:
        yield
    finally:
        _open.set(before)


def refuse_if_open(model: nn.Module) -> None:
    """Raises a HeadwiseError if a block of another `Heads` is open here on modules of `model`: its passes would be edited."""
    found = [block for block in _open.get() if block.open]
    if not found:
        return
    modules = set(model.modules())
    if any(tap.module in modules for block in found for tap in block.taps.taps):
        raise HeadwiseError(
            f"Heads of this {type(root_of(model)).__name__} cannot be found inside a block (gated, silenced, recorded) of another Heads of it, "
            "whose edits would be taken for the model: build Heads(model) before the block, and use it inside"
        )


def in_backward() -> bool:
    """Whether autograd is running: what runs forward then is gradient checkpointing repeating a layer."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
