"""Token-level outputs of plain transformers models: language modelling, minimal pairs, and tags by the first sub-word.

The loss of an example is the mean over its predicted tokens, so that long texts do not outweigh short ones (methods agree on
this for every token-level task).
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from headwise.decoders.output import DecoderOutput

IGNORED = -100  # a position whose token is not predicted


def token_output(logits: Tensor, gold: Tensor) -> DecoderOutput:
    """Losses and counts from token logits.

    Args:
        logits: (batch, tokens, vocabulary).
        gold: (batch, tokens), token numbers, -100 where nothing is predicted.

    Returns:
        loss (batch,): mean negative log-likelihood in nats; prediction (batch, 3): tokens right, tokens, summed
        negative log-likelihood.
    """
    counted = gold != IGNORED  # (batch, tokens)
    nll = cross_entropy(logits.transpose(1, 2), gold, reduction="none", ignore_index=IGNORED)  # (batch, tokens)
    tokens, total = counted.sum(dim=1), nll.sum(dim=1)  # (batch,)
    right = ((logits.detach().argmax(dim=-1) == gold) & counted).sum(dim=1)
    prediction = torch.stack([right.float(), tokens.float(), total.detach()], dim=1)  # (batch, 3)
    return DecoderOutput(total / tokens.clamp(min=1), prediction, logits)


def next_token_gold(batch: Any) -> Tensor:
    """The next token at every position, (batch, tokens - 1); -100 where it is padding."""
    ids, mask = batch.inputs["input_ids"], batch.inputs["attention_mask"]
    both = (mask[:, 1:] * mask[:, :-1]).bool()  # under left padding the first real token has no predecessor
    return torch.where(both, ids[:, 1:], IGNORED)


def next_token_output(logits: Tensor, batch: Any) -> DecoderOutput:
    """A left-to-right model on raw text; logits (batch, tokens, vocabulary)."""
    return token_output(logits[:, :-1], next_token_gold(batch))


def masked_token_output(logits: Tensor, batch: Any) -> DecoderOutput:
    """A masked model on text whose masked positions `batch.labels` (batch, tokens) names; -100 elsewhere."""
    return token_output(logits, batch.labels)


def tag_output(logits: Tensor, batch: Any) -> DecoderOutput:
    """One tag per word, read at the word's first sub-word, as transformers' token classifiers are trained.

    Args:
        logits: (batch, tokens, tags).
        batch: `words` (batch, tokens) holds word numbers or -1, `labels` one integer array per sentence.

    Returns:
        loss (batch,): mean over words; prediction (batch, 3): words right, words, words.
    """
    words: Tensor = batch.words
    first = words >= 0  # (batch, tokens)
    first[:, 1:] &= words[:, 1:] != words[:, :-1]
    gold = torch.full_like(words, IGNORED)
    for row, labels in enumerate(batch.labels):
        tags = torch.as_tensor(labels, device=words.device)
        gold[row, first[row]] = tags[words[row, first[row]]]
    output = token_output(logits, gold)
    right, count = output.prediction[:, 0], output.prediction[:, 1]
    return DecoderOutput(output.loss, torch.stack([right, count, count], dim=1), logits)
