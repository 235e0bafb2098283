"""What a model with a soft prompt says of its texts alone: virtual tokens are not read, pooled, classified or
predicted.

PEFT puts the columns of virtual tokens before those of a text, and leaves them in what the model returns.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads import root_of, soft_prompt, virtual_tokens, with_virtual_columns
from headwise.models._pooling import default_pooling


def text_columns(encoder: nn.Module, values: Tensor) -> Tensor:
    """Values (rows, tokens, ...) of a pass, those of the text's own tokens."""
    return values[:, virtual_tokens(encoder) :]


def text_maps(encoder: nn.Module, maps: Tensor) -> Tensor:
    """Attention maps (..., queries, keys) of a pass, from and to the text's own tokens."""
    config = soft_prompt(encoder)
    return maps if config is None else maps[..., virtual_tokens(encoder) :, config.num_virtual_tokens :]


def token_states(encoder: Any, inputs: Mapping[str, Any], **options: Any) -> Tensor:
    """States of a text's own tokens, (rows, tokens, dim), from a pass of the encoder.

    Raises:
        HeadwiseError: a PEFT model with a task's head gives no states.
    """
    output = encoder(**inputs, **options)
    states = getattr(output, "last_hidden_state", None)
    if states is None and soft_prompt(encoder) is not None:
        raise HeadwiseError(
            f"{type(encoder).__name__} has a soft prompt and a task's head, so it gives no token states: put "
            "the prompt on the encoder alone (transformers.AutoModel, and task_type='FEATURE_EXTRACTION' in "
            "its PEFT configuration)"
        )
    return text_columns(encoder, output.last_hidden_state)


def real_columns(encoder: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
    """Which columns of a pass hold a text's own tokens, (rows, columns) bool; virtual tokens do not, nor does
    padding."""
    return with_virtual_columns(inputs["attention_mask"].bool(), virtual_tokens(encoder))


@contextmanager
def classified_at_the_end(encoder: nn.Module, inputs: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside, a left-to-right classifier with a soft prompt reads each text's last token.

    Such a pass has vectors in place of token numbers, so that transformers reads the last column, padding or
    not.

    Raises:
        HeadwiseError: the batch is padded, and where the model reads it is unknown.
    """
    mask, root = inputs["attention_mask"].bool(), root_of(encoder)
    if not virtual_tokens(encoder) or default_pooling(root.config) != "last" or bool(mask[:, -1].all()):
        yield
        return
    score = getattr(root, "score", None)
    if not isinstance(score, nn.Module):
        raise HeadwiseError(
            f"{type(root).__name__} has a soft prompt, so that it may take padding for the last token of a "
            "text: read one text at a time (batch_size=1)"
        )
    last = virtual_tokens(encoder) + mask.shape[1] - 1 - mask.int().flip(1).argmax(1)  # (rows,)

    def last_states(module: nn.Module, args: tuple[Any, ...]) -> Any:
        states = args[0]
        states = states[torch.arange(len(states), device=states.device), last.to(states.device)]
        return (states[:, None], *args[1:])

    handle = score.register_forward_pre_hook(last_states)
    try:
        yield
    finally:
        handle.remove()


def check_without_soft_prompt(model: nn.Module, figures: str) -> None:
    """Raises a HeadwiseError if passes of the model have virtual tokens; `figures` cannot be determined with
    them."""
    config = soft_prompt(model)
    if config is not None:
        raise HeadwiseError(
            f"{type(root_of(model)).__name__} has a soft prompt ({config.peft_type.value}), and {figures} "
            "are defined for texts alone: give the model without it (model.get_base_model()), or one with "
            "LoRA"
        )
