"""Attention maps: eager attention while recording, and back."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from headwise.heads._find.observation import Watcher
from headwise.heads._inputs import root_of
from headwise.heads._sites import Site
from headwise.heads._use.attention_rows import check_maps
from headwise.heads._use.recording import Tape

VISIBLE = ("eager", "sdpa")  # implementations whose calls can be watched


@contextmanager
def implementation(model: nn.Module, name: str, instead_of: Callable[[str], bool]) -> Iterator[None]:
    """Attention by implementation `name` inside the block, if any part of the model now has one that `instead_of` accepts.

    Afterwards every part has its own back.
    """
    parts = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    before = [(part.config, part.config._attn_implementation) for part in parts]  # outermost first
    root: Any = root_of(model)
    try:
        if any(instead_of(own) for _, own in before if own is not None):
            root.set_attn_implementation(name)
        yield
    finally:
        for config, own in before:  # setting an outer one also sets those inside, which follow
            if config._attn_implementation != own:
                config._attn_implementation = own


def eager(model: nn.Module) -> AbstractContextManager[None]:
    """Attention written out in full inside the block."""
    return implementation(model, "eager", lambda own: own != "eager")


def visible(model: nn.Module) -> AbstractContextManager[None]:
    """Attention that can be watched inside the block: flash and flex attention give way to sdpa."""
    return implementation(model, "sdpa", lambda own: own not in VISIBLE)


@contextmanager
def maps_on(tape: Tape, model: nn.Module, sites: Sequence[Site]) -> Iterator[None]:
    """Puts the attention maps of every site on `tape`.

    Raises:
        HeadwiseError: some layer's slices are not one attention map each.
    """
    check_maps(sites)
    with eager(model), Watcher(on_probabilities=tape.seen):
        yield
