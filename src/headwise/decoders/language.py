"""Token-level outputs of plain transformers models: language modelling, minimal pairs, and tags read at the first sub-word.

The loss of an example is the mean over its predicted tokens. An example may be several rows of a batch (windows of a long
text, the two sentences of a minimal pair); `batch.owner` says which row belongs to which example.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from headwise.decoders.output import DecoderOutput

IGNORED = -100  # a position whose token is not predicted


def token_output(logits: Tensor, gold: Tensor, batch: Any) -> DecoderOutput:
    """Losses and counts from token logits.

    Args:
        logits: (rows, tokens, vocabulary).
        gold: (rows, tokens), token numbers, -100 where nothing is predicted.
        batch: says which rows belong to which of its n examples.

    Returns:
        loss (n,): mean negative log-likelihood in nats; prediction (n, 3): tokens right, tokens, summed negative log-likelihood.
    """
    counted = gold != IGNORED  # (rows, tokens)
    right = (logits.detach().argmax(dim=-1) == gold) & counted
    nll = by_example(_nll(logits, gold), batch)  # (n,)
    tokens = by_example(counted.sum(dim=1).float(), batch)
    prediction = torch.stack([by_example(right.sum(dim=1).float(), batch), tokens, nll.detach()], dim=1)  # (n, 3)
    return DecoderOutput(nll / tokens.clamp(min=1), prediction, logits)


def _nll(logits: Tensor, gold: Tensor) -> Tensor:
    """Summed negative log-likelihood of each row, (rows,)."""
    return cross_entropy(logits.transpose(1, 2), gold, reduction="none", ignore_index=IGNORED).sum(dim=1)


def by_example(values: Tensor, batch: Any) -> Tensor:
    """Sums of rows (rows,) over the examples they belong to, (n,)."""
    return values.new_zeros(len(batch)).index_add(0, batch.owner, values)


def next_token_gold(batch: Any) -> Tensor:
    """What each position but the last has to predict, (rows, tokens - 1): the next token, -100 where that is no text.

    Under left padding the first real token follows padding, so nothing predicts it, as under right padding.
    """
    after_real = batch.inputs["attention_mask"][:, :-1].bool()
    return torch.where(after_real, batch.labels[:, 1:], IGNORED)


def next_token_output(logits: Tensor, batch: Any) -> DecoderOutput:
    """A left-to-right model on raw text; logits (rows, tokens, vocabulary)."""
    return token_output(logits[:, :-1], next_token_gold(batch), batch)


def masked_token_output(logits: Tensor, batch: Any) -> DecoderOutput:
    """A masked model on text whose masked positions `batch.labels` (rows, tokens) names; -100 elsewhere."""
    return token_output(logits, batch.labels, batch)


def minimal_pair_output(logits: Tensor, batch: Any) -> DecoderOutput:
    """Which sentence of each pair a left-to-right model finds more probable; rows are good, bad, good, bad, ...

    Returns:
        loss (n,): −log of the probability of the good sentence against the bad one; prediction (n,): 0 where the good one is
        more probable, else 1; logits (n, 2): the two log-probabilities.
    """
    log_p = -_nll(logits[:, :-1], next_token_gold(batch)).view(-1, 2)  # (n, 2)
    good, bad = log_p.unbind(dim=1)
    return DecoderOutput(softplus(bad - good), (bad >= good).long(), log_p)


def tag_output(logits: Tensor, batch: Any) -> DecoderOutput:
    """One tag per word, read at the word's first sub-word, as transformers' token classifiers are trained.

    Args:
        logits: (rows, tokens, tags).
        batch: `words` (rows, tokens) holds word numbers or -1; `labels` (n, words) tags, -100 beyond a sentence.

    Returns:
        loss (n,): mean over words; prediction (n, 3): words right, words, words.
    """
    words: Tensor = batch.words
    first = words >= 0  # (rows, tokens)
    first[:, 1:] &= words[:, 1:] != words[:, :-1]
    gold = batch.labels[batch.owner].gather(1, words.clamp(min=0))  # (rows, tokens)
    output = token_output(logits, gold.masked_fill(~first, IGNORED), batch)
    right, count = output.prediction[:, 0], output.prediction[:, 1]
    return DecoderOutput(output.loss, torch.stack([right, count, count], dim=1), logits)
