"""Models with a soft prompt (PEFT's prompt tuning and its kin): virtual tokens before each text, which are none of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads._inputs import root_of
from headwise.heads._use.generation import generation_of

if TYPE_CHECKING:
    from headwise.heads._use.blocks import Block

TEXTS = ("input_ids", "inputs_embeds")


def text_arguments(model: nn.Module, entry: nn.Module, arguments: dict[str, Any], blocks: Iterable[Block]) -> dict[str, Any]:
    """The arguments of a pass with columns for the virtual tokens that the model will put before each text, as if they were padding.

    Raises:
        HeadwiseError: a block must know which tokens are virtual, and nothing says so.
    """
    config = getattr(model, "active_peft_config", None) if hasattr(model, "peft_config") else None
    if config is None or not config.is_prompt_learning:
        return arguments
    if getattr(model.forward, "__self__", None) is model.base_model:  # inside disable_adapter()
        return arguments
    root: Any = root_of(model)
    hidden = root.config.is_encoder_decoder or (entry is not model and generation_of(root) is not None)
    if hidden and any(block.needs == "tokens" for block in blocks):
        raise HeadwiseError(
            f"{type(root).__name__} has a soft prompt ({config.peft_type}), and nothing says where its virtual tokens stand in generate() or "
            "in an encoder-decoder: run the text in a pass of its own, record with pooling='all', or choose tokens='all'"
        )
    if hidden or entry is not model or config.peft_type == "PREFIX_TUNING":  # a prefix lies in the cache
        return arguments
    texts = {name: value for name in TEXTS if isinstance(value := arguments.get(name), Tensor)}
    if not texts:
        return arguments
    text = next(iter(texts.values()))
    mask = arguments.get("attention_mask")
    columns = {**texts, "attention_mask": text.new_ones(text.shape[:2], dtype=torch.long) if mask is None else mask}
    virtual = config.num_virtual_tokens
    wider = {name: torch.cat((t.new_zeros(t.shape[0], virtual, *t.shape[2:]), t), 1) for name, t in columns.items()}
    return {**arguments, **wider}
