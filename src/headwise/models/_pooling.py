"""One vector for a whole text: the first token, the last real token, or the mean of the real tokens."""

from typing import Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError

POOLINGS = ("cls", "last", "mean")


def pool(states: Tensor, attention_mask: Tensor | None, how: str) -> Tensor:
    """Reduces token states to one vector per text, under left and right padding alike.

    Args:
        states: (batch, tokens, dim).
        attention_mask: (batch, tokens), 1 for real tokens; None means that all are real.
        how: "cls" (first real token), "last" (last real token) or "mean" (of the real tokens).

    Returns:
        (batch, dim).
    """
    if how not in POOLINGS:
        raise HeadwiseError(f"pooling {how!r} is unknown; choose one of {', '.join(POOLINGS)}")
    if attention_mask is None:
        return {"cls": states[:, 0], "last": states[:, -1], "mean": states.mean(dim=1)}[how]
    if how == "mean":
        weight = attention_mask.to(states.dtype).unsqueeze(-1)  # (batch, tokens, 1)
        return (states * weight).sum(dim=1) / weight.sum(dim=1)
    # argmax finds the first 1; from the right it finds the last one
    if how == "cls":
        position = attention_mask.int().argmax(dim=1)  # (batch,)
    else:
        position = attention_mask.shape[1] - 1 - attention_mask.int().flip(1).argmax(dim=1)  # (batch,)
    return states[torch.arange(len(states), device=states.device), position]  # (batch, dim)


def default_pooling(config: Any) -> str:
    """The usual pooling of a model: [CLS] where it was pre-trained as a masked model, the last token for
    left-to-right models, the mean otherwise (the encoder half of T5 and the like).

    Args:
        config: the model's `PretrainedConfig`.
    """
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    if config.is_encoder_decoder:
        return "mean"
    if config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return "cls"
    if config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "last"
    return "mean"
