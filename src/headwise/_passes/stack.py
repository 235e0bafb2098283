"""Sharing lower layers between lesions: a lesion changes nothing below the lowest layer it touches."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from torch import nn

from headwise.heads import Heads

# of this thread or task: what it skips (blocks, and what they hand on), and the recordings it has open
_skipped: ContextVar[tuple[tuple[frozenset[nn.Module], Any], ...]] = ContextVar(
    "headwise_skipped", default=()
)
_recorded: ContextVar[tuple[dict[int, Any], ...]] = ContextVar("headwise_recorded", default=())
_lock = threading.Lock()  # of stand-ins, which threads share


@dataclass(frozen=True)
class Stack:
    """The blocks of a model, one after the other.

    Attributes:
        blocks: the modules in the order of the pass.
        block_of: for each site, which block it lies in.
    """

    blocks: tuple[nn.Module, ...]
    block_of: tuple[int, ...]

    def share(self, lowest: int) -> float:
        """The share of blocks that lie below block `lowest`, 0–1."""
        return lowest / len(self.blocks)


def find_stack(heads: Heads) -> Stack | str:
    """The model's blocks, or in words why its lower layers cannot be shared."""
    paths = list(dict.fromkeys(site.layer_path for site in heads.sites))
    if any(site.n_calls > 1 for site in heads.sites):
        return "its layers share one module"
    if "" in paths:
        return "the block of an attention layer could not be identified"
    if len({(path.rpartition(".")[0]) for path in paths}) > 1:
        return "its blocks lie in more than one list (an encoder and a decoder, say)"
    blocks = tuple(heads.model.get_submodule(path) for path in paths)
    parent = heads.model.get_submodule(paths[0].rpartition(".")[0])
    if not isinstance(parent, nn.ModuleList) or list(parent) != list(blocks):
        return "its blocks are not all the entries of one list, in order"
    return Stack(blocks, tuple(paths.index(site.layer_path) for site in heads.sites))


@contextmanager
def recording(stack: Stack | str | None, blocks: Sequence[int] | None = None) -> Iterator[dict[int, Any]]:
    """Keeps what the blocks of these numbers (default: all) return in a pass: {block: output}; nothing where
    there is no stack."""
    if not isinstance(stack, Stack):
        yield {}
        return
    outputs: dict[int, Any] = {}
    if blocks is None:
        blocks = range(len(stack.blocks))

    def keep(block: int) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if any(mine is outputs for mine in _recorded.get()):
                outputs[block] = output

        return hook

    token = _recorded.set((*_recorded.get(), outputs))
    handles = [stack.blocks[block].register_forward_hook(keep(block)) for block in blocks]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
        _recorded.reset(token)


class StandIn:
    """What is called instead of a block's `forward` while some thread or task skips the block; for all others
    it runs the block."""

    headwise = True  # nothing of the user's

    def __init__(self, block: nn.Module) -> None:
        self.block, self.before, self.users = block, block.__dict__.get("forward"), 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for skipped, output in reversed(_skipped.get()):
            if self.block in skipped:
                return output
        if self.before:
            return self.before(*args, **kwargs)
        return type(self.block).forward(self.block, *args, **kwargs)


@contextmanager
def skipping(stack: Stack, below: int, output: Any) -> Iterator[None]:
    """Inside, the blocks under `below` do no work: each hands on `output`, which block `below` − 1 once
    returned.

    The model's own code still runs from its embeddings to its head, so whatever it does between and after the
    blocks is kept. Passes of other threads and tasks through the same model run all blocks.
    """
    skipped = stack.blocks[:below]
    token = _skipped.set((*_skipped.get(), (frozenset(skipped), output)))
    try:
        with _lock:
            for block in skipped:
                if not isinstance(block.__dict__.get("forward"), StandIn):
                    # an instance attribute hides the class's method and leaves no trace
                    block.__dict__["forward"] = StandIn(block)
                block.__dict__["forward"].users += 1
        yield
    finally:
        with _lock:
            for block in skipped:
                stand_in = block.__dict__["forward"]
                stand_in.users -= 1
                if not stand_in.users:
                    del block.__dict__["forward"]
                    if stand_in.before:
                        block.__dict__["forward"] = stand_in.before
        _skipped.reset(token)
