"""Reading a model while it stays as it is: passes run on a twin of it, so that other threads may run or train
the model meanwhile.

Where a twin cannot be made, the model itself is read and put back as it was, in one thread at a time: then
others see it in evaluation mode.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from headwise.heads._hooks import eagerly
from headwise.heads._inputs import root_of
from headwise.heads._restoration import evaluating, forked, unchanged
from headwise.heads._twins import Bound, Twins
from headwise.heads._use.blocks import open_blocks
from headwise.heads._use.generation import Watch

turn = threading.RLock()  # to read a model that has no twin; never held around a user's block
# Frozen twins, and whether their passes draw random numbers
_frozen: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def twins_of(*originals: Any, blocks: bool = True, frozen: bool = False) -> tuple[Any, ...] | None:
    """The twins of models and of `Heads`; None if one cannot have a twin.

    Args:
        originals: models, and `Heads` of theirs.
        blocks: whether the blocks that are open in this thread hold for passes of the twins, too.
        frozen: whether no weight of theirs asks for a gradient.
    """
    models = list(map(model_of, originals))
    with torch.inference_mode(False), torch.no_grad():
        try:
            twins = Twins(models, frozen)
            copies = tuple(map(twins.twin, originals))
            if blocks:
                _carry_blocks(twins)
        except Bound:
            return None
    if frozen:
        for model in models:
            _frozen[twins.twin(model)] = drawing(*originals)
    for original, copy in zip(originals, copies, strict=True):
        if not isinstance(original, nn.Module):
            copy.original = original.original or original
    return copies


def model_of(original: Any) -> nn.Module:
    """A model, or that of `Heads`."""
    model: nn.Module = original if isinstance(original, nn.Module) else original.model
    return model


def drawing(*originals: Any) -> bool:
    """Whether passes of these models draw random numbers, as far as `Heads` among them know."""
    return any(getattr(original, "draws", False) for original in originals)


def frozen_twin(model: nn.Module) -> AbstractContextManager[None] | None:
    """A random state of its own for passes of a model that is a frozen twin, and so nobody else's; None if it
    is not."""
    if model not in _frozen:
        return None
    return forked(model, _frozen[model])


@contextmanager
def twinned(*originals: Any) -> Iterator[tuple[Any, ...]]:
    """Twins of models and `Heads` in evaluation mode; blocks that are open in this thread hold for their
    passes, too."""
    twins = twins_of(*originals)
    if twins is not None:
        with forked(model_of(twins[0]), drawing(*originals)):
            yield twins
        return
    with turn, ExitStack() as modes:
        for model in dict.fromkeys(map(model_of, originals)):
            modes.enter_context(evaluating(model))
        yield originals


@contextmanager
def undisturbed(*originals: Any) -> Iterator[tuple[Any, ...]]:
    """Twins of models and `Heads` as they are outside any block, for a pass of ours: compiled code runs as it
    is written."""
    twins = twins_of(*originals, blocks=False)
    if twins is not None:
        with forked(model_of(twins[0]), drawing(*originals)), torch.inference_mode(False), eagerly():
            yield twins
        return
    with turn, ExitStack() as state:
        for model in dict.fromkeys(map(model_of, originals)):
            state.enter_context(unchanged(model))
        for original in originals:
            if not isinstance(original, nn.Module):
                state.enter_context(original._taps.alone())
        yield originals


def _carry_blocks(twins: Twins) -> None:
    """Makes the blocks hold that are open in this thread or task on modules of the models."""
    for taps in dict.fromkeys(block.taps for block in open_blocks()):
        if not any(twins.holds(tap.module) for tap in taps.taps):
            continue
        twins.twin(taps).follow(taps)
        root: Any = root_of(taps.model)
        if isinstance(vars(root).get("generate"), Watch):
            attributes = vars(twins.twin(root))
            generate = attributes.get("generate") or MethodType(type(root).generate, twins.twin(root))
            attributes["generate"] = Watch(root, generate)
