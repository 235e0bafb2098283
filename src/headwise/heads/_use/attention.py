"""Attention maps: eager attention while recording, and back."""

import threading
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

VISIBLE_ATTENTION = ("eager", "sdpa")  # implementations whose calls can be watched
# by id: configurations in open blocks, the implementation they had before the first, and how many blocks
_switched: dict[int, tuple[Any, Any, int]] = {}
_lock = threading.Lock()


@contextmanager
def implementation(model: nn.Module, name: str, instead_of: Callable[[str], bool]) -> Iterator[None]:
    """Attention by implementation `name` inside the block, if any part of the model now has one that
    `instead_of` accepts.

    Once the last such block has ended, whichever thread's it is, every part has its own back.
    """
    # Outermost first
    configs = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    root: Any = root_of(model)
    with _lock:
        for config in configs:
            _, before, blocks = _switched.get(id(config), (config, config._attn_implementation, 0))
            _switched[id(config)] = config, before, blocks + 1
    try:
        with _lock:
            present = [config._attn_implementation for config in configs]
            if any(instead_of(one) for one in present if one is not None):
                root.set_attn_implementation(name)
        yield
    finally:
        with _lock:
            for config in configs:  # setting an outer one also sets those inside, which follow
                _, before, blocks = _switched.pop(id(config))
                if blocks > 1:
                    _switched[id(config)] = config, before, blocks - 1
                elif config._attn_implementation != before:
                    config._attn_implementation = before


def eager(model: nn.Module) -> AbstractContextManager[None]:
    """Attention written out in full inside the block."""
    return implementation(model, "eager", lambda own: own != "eager")


def visible(model: nn.Module) -> AbstractContextManager[None]:
    """Attention that can be watched inside the block: flash and flex attention give way to sdpa."""
    return implementation(model, "sdpa", lambda own: own not in VISIBLE_ATTENTION)


@contextmanager
def maps_on(tape: Tape, model: nn.Module, sites: Sequence[Site]) -> Iterator[None]:
    """Puts the attention maps of every site on `tape`.

    Raises:
        HeadwiseError: some layer's slices are not one attention map each.
    """
    check_maps(sites)
    with eager(model), Watcher(on_probabilities=tape.seen):
        yield
