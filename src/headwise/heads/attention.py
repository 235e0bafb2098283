"""Attention maps: eager attention while recording, and back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from headwise.errors import HeadwiseError
from headwise.heads.inputs import root_of
from headwise.heads.recording import Tape
from headwise.heads.sites import Site
from headwise.heads.watching import Watcher


@contextmanager
def eager(model: nn.Module) -> Iterator[None]:
    """Attention written out in full inside the block; afterwards every part of the model has its implementation back."""
    parts = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    before = [(part.config, part.config._attn_implementation) for part in parts]  # outermost first
    root: Any = root_of(model)
    try:
        if any(implementation != "eager" for _, implementation in before):
            root.set_attn_implementation("eager")
        yield
    finally:
        for config, implementation in before:  # setting an outer one also sets those inside, which follow
            config._attn_implementation = implementation


@contextmanager
def maps_on(tape: Tape, model: nn.Module, sites: Sequence[Site]) -> Iterator[None]:
    """Puts the attention maps of every site on `tape`.

    Raises:
        HeadwiseError: some layer's slices are not one attention map each.
    """
    unclear = [site for site in sites if site.head_order is None]
    if unclear:
        raise HeadwiseError(
            f"layer {unclear[0].index} ({unclear[0].path}) has no attention map per head: its heads are made of several softmaxes, "
            "or in an order that cannot be told; record without attention=True"
        )
    with eager(model), Watcher(on_probabilities=tape.seen):
        yield
