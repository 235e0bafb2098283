"""Models with a soft prompt (PEFT's prompt tuning and its kin): virtual tokens before each text, which are
none of it."""

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
# Their virtual tokens stand in the cache, not among the tokens of a pass
CACHED = ("PREFIX_TUNING", "CARTRIDGE")


def soft_prompt(model: nn.Module) -> Any:
    """The configuration of the soft prompt that passes of a PEFT model now have; None: they have none."""
    if not hasattr(model, "peft_config"):
        return None
    config = getattr(model, "active_peft_config", None)
    if config is None or not config.is_prompt_learning:
        return None
    if getattr(model.forward, "__self__", None) is model.base_model:  # inside disable_adapter()
        return None
    return config


def virtual_tokens(model: nn.Module) -> int:
    """How many virtual tokens a pass of the model now puts before the tokens of each text."""
    config = soft_prompt(model)
    if config is None or config.peft_type in CACHED:
        return 0
    return int(config.num_virtual_tokens)


def with_virtual_columns(mask: Tensor, virtual: int) -> Tensor:
    """A tensor (rows, tokens, ...) with zeros before each text, one for each of its `virtual` tokens."""
    return torch.cat((mask.new_zeros(mask.shape[0], virtual, *mask.shape[2:]), mask), 1)


def text_arguments(
    model: nn.Module, entry: nn.Module, arguments: dict[str, Any], blocks: Iterable[Block]
) -> dict[str, Any]:
    """The arguments of a pass with columns for the virtual tokens that the model will put before each text,
    as if they were padding.

    Raises:
        HeadwiseError: a block must know which tokens are virtual, and nothing says so.
    """
    config = soft_prompt(model)
    if config is None:
        return arguments
    root: Any = root_of(model)
    hidden = root.config.is_encoder_decoder or (entry is not model and generation_of(root) is not None)
    if hidden and any(block.needs == "tokens" for block in blocks):
        raise HeadwiseError(
            f"{type(root).__name__} has a soft prompt ({config.peft_type.value}), and nothing says where its "
            "virtual tokens stand in generate() or in an encoder-decoder: run the text in a pass of its "
            "own, record with pooling='all', or choose tokens='all'"
        )
    if hidden or entry is not model or config.peft_type in CACHED:
        return arguments
    texts = [name for name in TEXTS if isinstance(arguments.get(name), Tensor)]
    if not texts:
        return arguments
    wider = dict(arguments)
    if wider.get("attention_mask") is None:
        text = wider[texts[0]]
        wider["attention_mask"] = text.new_ones(text.shape[:2], dtype=torch.long)
    for name in (*texts, "attention_mask"):
        wider[name] = with_virtual_columns(wider[name], config.num_virtual_tokens)
    return wider
