"""Open `with` blocks, and whose they are: a block belongs to the thread or asyncio task that opened it, and
to what that one starts."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence, Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads._inputs import root_of
from headwise.heads._sites import Site
from headwise.store import OPEN_BLOCKS

if TYPE_CHECKING:
    from headwise.heads._use.taps import Taps


class Edit(Protocol):
    """What a context does to a site's head outputs.

    An edit whose work depends on the arguments of the present pass says so by an attribute `needs`, "rows" or
    "tokens"; one that hands on what it gets by `changes = False`.
    """

    def apply(self, site: Site, x: Tensor) -> Tensor:
        """Takes the projection's input (..., heads × head_dim) and returns what replaces it."""

    def start(self, arguments: dict[str, Any]) -> None:
        """A forward pass begins; `arguments` are the named arguments of the model's forward."""


_numbers = count()


class Block:
    """One open `with`: its edit, and the projections it has been applied to.

    Attributes:
        number: blocks are numbered in the order they are opened in, of whatever `Heads`.
        passes: forward passes that have begun inside.
    """

    def __init__(self, taps: Taps, edit: Edit) -> None:
        self.taps, self.edit = taps, edit
        self.thread, self.number = threading.get_ident(), next(_numbers)
        self.open, self.passes = True, 0
        self.fired = {tap.path: False for tap in taps.taps}
        self.needs: str = getattr(edit, "needs", "")
        self.changes: bool = getattr(edit, "changes", True)

    def start(self, arguments: dict[str, Any]) -> None:
        """A forward pass begins."""
        if not torch.compiler.is_compiling():
            self.passes += 1
        self.edit.start(arguments)

    def end(self, output: Any) -> None:
        """A forward pass ended with `output`; of all edits only those that follow a cache have an `end`."""
        if hasattr(self.edit, "end"):
            self.edit.end(output)


class Here:
    """A thread's place in its present pass through a model."""

    def __init__(self) -> None:
        # As `opened` says, for compiled code, which cannot read context variables
        self.blocks: tuple[Block, ...] = ()
        self.running: nn.Module | None = None  # the entry through which the pass came in
        self.calls: dict[str, int] = {}  # projection -> calls so far, where layers share weights
        self.inputs: dict[str, int] = {}  # projection -> address of the input of its layer
        # Projection -> blocks of the pass whose layer a backward pass repeats
        self.repeated: dict[str, tuple[Block, ...]] = {}


_open: ContextVar[tuple[Block, ...]] = ContextVar("headwise_open", default=())


def opened(taps: Taps) -> tuple[Block, ...]:
    """The blocks of `taps`, and of those that they follow, that are open in this thread or task, oldest
    first."""
    blocks = _open.get()
    if not blocks:
        return ()
    owners = (taps, *taps.followed)
    return tuple(block for block in blocks if block.open and block.taps in owners)


def open_blocks() -> tuple[Block, ...]:
    """All blocks that are open in this thread or task, oldest first."""
    return tuple(block for block in _open.get() if block.open)


def opened_on(modules: AbstractSet[nn.Module]) -> tuple[Block, ...]:
    """The blocks, of whatever `Heads`, that are open on some of these modules in this thread or task."""
    blocks = []
    for block in open_blocks():
        if not modules.isdisjoint(tap.module for tap in block.taps.taps):
            blocks.append(block)
    return tuple(blocks)


def check_readable(model: nn.Module, path: str, blocks: Sequence[Block]) -> None:
    """Raises a HeadwiseError if a block needs the arguments of a pass that reached a projection past the
    model."""
    if any(block.needs for block in blocks):
        name = type(root_of(model)).__name__
        raise HeadwiseError(
            f"{path} was reached past {name}(...), by its forward() or by a part of it, so nothing says "
            f"which rows and tokens this pass has: call the {name} itself, or build Heads on the part; gates "
            "(layers, heads) and pooling='all' need no more"
        )


@contextmanager
def holding(block: Block) -> Iterator[None]:
    """Opens a block in this thread or task; tasks that it starts inherit it until it is closed."""
    _open.set((*_open.get(), block))
    try:
        yield
    finally:
        block.open = False
        _open.set(open_blocks())


@contextmanager
def aside(taps: Taps) -> Iterator[None]:
    """Inside, no block on the projections of `taps` is open in this thread or task, of whatever `Heads`."""
    before, edited = _open.get(), opened_on(taps.modules)
    _open.set(tuple(block for block in before if block not in edited))
    try:
        yield
    finally:
        _open.set(before)


def is_open_on(model: nn.Module) -> bool:
    """Whether a block is open in this thread or task on modules of `model`, so that its passes are edited."""
    return bool(open_blocks() and opened_on(set(model.modules())))


OPEN_BLOCKS.append(is_open_on)


def refuse_if_open(model: nn.Module) -> None:
    """Raises a HeadwiseError if a block of another `Heads` is open here on modules of `model`: its passes
    would be edited."""
    if is_open_on(model):
        raise HeadwiseError(
            f"Heads of this {type(root_of(model)).__name__} cannot be found inside a block (gated, silenced, "
            "recorded) of another Heads of it, whose edits would be taken for the model: build Heads(model) "
            "before the block, and use it inside"
        )


def in_backward() -> bool:
    """Whether autograd is running: what runs forward then is gradient checkpointing repeating a layer."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
