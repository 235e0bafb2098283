"""Token-level outputs of plain transformers models: language modelling, minimal pairs, and tags read at the
first sub-word.

The loss of an example is the mean over its predicted tokens. An example may be several rows of a batch
(windows of a long text, the two sentences of a minimal pair); `batch.owner` says which row belongs to which
example.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad, softplus

from headwise.models._decoders.output import DecoderOutput
from headwise.tasks import IGNORED, KINDS

# Logits worked on at once: on a CPU few enough to stay in its cache, since fresh memory costs more than the
# arithmetic.
AT_ONCE = {"cpu": 1 << 19, "cuda": 1 << 24}


def token_output(logits: Tensor, gold: Tensor, batch: Any, sizes: Tensor | None = None) -> DecoderOutput:
    """Losses and counts from token logits.

    Args:
        logits: (rows, tokens, vocabulary), or (predicted, vocabulary) at the positions alone where `gold` has
            a token, row after row.
        gold: (rows, tokens), token numbers, -100 where nothing is predicted.
        batch: says which rows belong to which of its n examples.
        sizes: (rows, tokens) bytes of what is predicted; None: not known.

    Returns:
        loss (n,): mean negative log-likelihood in nats; prediction (n, 4): tokens right, tokens, summed
        negative log-likelihood, bytes.
    """
    counted = gold != IGNORED  # (rows, tokens)
    summed, right = _by_row(logits, gold, counted)
    nll = sum_by_example(summed, batch)  # (n,)
    tokens = sum_by_example(counted.sum(dim=1).float(), batch)
    if sizes is None:
        size = torch.zeros_like(tokens)
    else:
        size = sum_by_example((sizes * counted).sum(dim=1).to(tokens.dtype), batch)
    prediction = torch.stack([sum_by_example(right, batch), tokens, nll.detach(), size], dim=1)  # (n, 4)
    return DecoderOutput(nll / tokens.clamp(min=1), prediction, logits)


def _by_row(logits: Tensor, gold: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's summed negative log-likelihood and number of tokens right, (rows,).

    The classes lie next to each other in memory, and few positions are worked on at once: transposed logits
    take several times as long, and a second copy of all of them might not fit.
    """
    rows = torch.arange(len(gold), device=gold.device)[:, None].expand_as(gold)
    if logits.ndim == 2:
        rows, gold = rows[counted], gold[counted]  # (predicted,)
    else:
        rows, gold = rows.reshape(-1), gold.reshape(-1)
    summed = torch.zeros(counted.shape[0], device=logits.device)
    right = torch.zeros_like(summed)
    step = max(1, AT_ONCE.get(logits.device.type, AT_ONCE["cuda"]) // logits.shape[-1])
    for scores, tokens, row in _portions(logits, gold, rows, step):
        tokens, row = tokens.to(scores.device), row.to(scores.device)
        scores = scores.float()
        losses = cross_entropy(scores, tokens, reduction="none", ignore_index=IGNORED)
        summed = summed.index_add(0, row, losses)
        right = right.index_add(0, row, _right(scores.detach(), tokens).float())
    return summed, right


def _right(logits: Tensor, gold: Tensor) -> Tensor:
    """Where the first of the largest logits (positions, classes) is that of `gold`, (positions,) bool."""
    if logits.device.type != "cpu" or torch.compiler.is_compiling():
        return logits.argmax(dim=-1) == gold
    # on a CPU the largest value is found several times faster than its place, which is needed only where
    # `gold` has that value
    right = logits.gather(1, gold.clamp(min=0)[:, None])[:, 0] == logits.amax(dim=-1)
    right &= gold != IGNORED
    right[right.clone()] = logits[right].argmax(dim=-1) == gold[right]
    return right


def _portions(
    logits: Tensor, gold: Tensor, rows: Tensor, step: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """(logits, gold, row) of some positions at a time."""
    tokens = 1 if logits.ndim == 2 else logits.shape[1]
    size = max(1, step // max(tokens, 1))  # positions, or rows, at a time
    # split, not sliced: the gradient of a slice is as large as all logits
    for number, portion in enumerate(torch.split(logits, size)):
        positions = slice(number * size * tokens, (number + 1) * size * tokens)
        yield portion.reshape(-1, logits.shape[-1]), gold[positions], rows[positions]


@contextmanager
def projecting_only(model: Any, predicted: Tensor) -> Iterator[None]:
    """Inside, a language model's last projection, the costly one, works on the positions `predicted` (rows,
    tokens) alone.

    The model's logits are then (1, predicted, vocabulary), row after row.
    """
    positions, thread = predicted.reshape(-1).nonzero()[:, 0], get_ident()

    def select(module: nn.Module, args: tuple[Any, ...]) -> Any:
        states = args[0]
        if get_ident() != thread or states.shape[:-1].numel() != predicted.numel():
            return None
        states = states.reshape(-1, states.shape[-1]).index_select(0, positions.to(states.device))
        return (states[None], *args[1:])

    handle = model.get_output_embeddings().register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()


def sum_by_example(values: Tensor, batch: Any) -> Tensor:
    """Sums of rows (rows,) over the examples they belong to, (n,)."""
    return values.new_zeros(len(batch)).index_add(0, batch.owner, values)


def next_token_gold(batch: Any) -> Tensor:
    """What each position has to predict, (rows, tokens): the next token, -100 where that is not text, and at
    the last position.

    Under left padding the first real token follows padding, so nothing predicts it, as under right padding.
    """
    after_real = batch.inputs["attention_mask"][:, :-1].bool()
    return pad(torch.where(after_real, batch.labels[:, 1:], IGNORED), (0, 1), value=IGNORED)


def gold_tokens(kind: str, batch: Any) -> Tensor:
    """What each position has to predict, (rows, tokens), -100 where nothing."""
    labels: Tensor = batch.labels
    if KINDS[kind].reads == "contrast":
        return contrast_gold(batch)
    if KINDS[kind].masks:
        return labels
    return next_token_gold(batch)


def next_token_output(logits: Tensor, batch: Any) -> DecoderOutput:
    """A left-to-right model on raw text; logits (rows, tokens, vocabulary), or (predicted, vocabulary)."""
    sizes = None if batch.sizes is None else pad(batch.sizes[:, 1:], (0, 1))
    return token_output(logits, next_token_gold(batch), batch, sizes)


def masked_token_output(logits: Tensor, batch: Any) -> DecoderOutput:
    """A masked model on text whose masked positions `batch.labels` (rows, tokens) names; -100 elsewhere."""
    return token_output(logits, batch.labels, batch, batch.sizes)


def minimal_pair_output(logits: Tensor, batch: Any) -> DecoderOutput:
    """Which sentence of each pair a left-to-right model finds more probable; rows are good, bad, good, bad,
    ...

    Returns:
        loss (n,): −log of the probability of the good sentence against the bad one; prediction (n,): 0 where
        the good one is more probable, else 1; logits (n, 2): the two log-probabilities.
    """
    gold = next_token_gold(batch)
    log_p = -_by_row(logits, gold, gold != IGNORED)[0].view(-1, 2)  # (n, 2)
    good, bad = log_p.unbind(dim=1)
    return DecoderOutput(softplus(bad - good), (bad >= good).long(), log_p)


def contrast_gold(batch: Any) -> Tensor:
    """The right answer after the last real token of each row, (rows, tokens), -100 elsewhere."""
    real = batch.inputs["attention_mask"].bool()
    last = real & (real.flip(1).cumsum(1).flip(1) == 1)
    return torch.where(last, batch.labels[batch.owner, :1], IGNORED)


def answer_differences(logits: Tensor, batch: Any) -> Tensor:
    """Logit of the right answer minus that of the other one, after each row, (rows,).

    Args:
        logits: (rows, tokens, vocabulary), or (rows, vocabulary) after the last tokens alone.
        batch: labels (n, 2), the two answers of each example.
    """
    if logits.ndim == 3:
        logits = logits[contrast_gold(batch) != IGNORED]
    pair = logits.float().gather(1, batch.labels[batch.owner].to(logits.device))  # (rows, 2)
    return pair[:, 0] - pair[:, 1]


def contrast_output(logits: Tensor, batch: Any) -> DecoderOutput:
    """Which of two answers a left-to-right model gives to a prompt; rows are clean, corrupted, clean,
    corrupted, ...

    Returns:
        loss (n,): −log of the probability of the right answer against the other one; prediction (n,): the
        difference of their logits; both after the clean prompt. logits (n, 2): the differences after both
        prompts.
    """
    both = answer_differences(logits, batch).view(-1, 2)
    return DecoderOutput(softplus(-both[:, 0]), both[:, 0], both)


def tag_output(logits: Tensor, batch: Any) -> DecoderOutput:
    """One tag per word, read at the word's first sub-word, as transformers' token classifiers are trained.

    Args:
        logits: (rows, tokens, tags).
        batch: `words` (rows, tokens) holds word numbers or -1; `labels` (n, words) tags, -100 beyond a
            sentence.

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
