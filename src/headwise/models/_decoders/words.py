"""From sub-words to words: pooled states and merged attention maps.

A batch has n sentences in `rows` rows: a sentence longer than the encoder reads at once is several rows,
windows that overlap. `words` (rows, tokens) numbers the words a row owns (-1 elsewhere) and `owner` (rows,)
names each row's sentence, so every word is pooled from the one window in which it has most context.
"""

from typing import Any

import torch
from torch import Tensor


def membership(words: Tensor, longest: int) -> Tensor:
    """(rows, longest, tokens) bool: which tokens a word consists of.

    Args:
        words: (rows, tokens) word numbers, -1 for none.
        longest: words to make room for.
    """
    return words[:, None, :] == torch.arange(longest, device=words.device)[:, None]


def word_room(batch: Any) -> int:
    """Words to make room for; read from the device only where the batch does not know (made by hand)."""
    room = getattr(batch, "room", None)
    if room is None:
        return int(batch.n_words.max())
    return int(room.words)


def pool_words(states: Tensor, batch: Any) -> Tensor:
    """Word vector = mean of its sub-words' states.

    Args:
        states: (rows, tokens, dim).
        batch: a batch of a word-level task.

    Returns:
        (n, words, dim), words being the longest sentence (more in a padded batch); zeros beyond a sentence.
    """
    member = membership(batch.words, word_room(batch)).to(states.dtype)  # (rows, words, tokens)
    return _gather_rows(member @ states / member.sum(-1, keepdim=True).clamp(min=1), batch)


def merge_attention(attention: Tensor, batch: Any) -> Tensor:
    """Attention between words: from a word the mean over its sub-words, to a word the sum over its sub-words.

    In a long sentence a word looks at the words of the window that owns it; what lies outside gets 0.

    Args:
        attention: (rows, ..., tokens from, tokens to).
        batch: a batch of a word-level task.

    Returns:
        (n, ..., words from, words to). A word's row sums to 1 less what it gives to special tokens.
    """
    longest = word_room(batch)
    source = membership(batch.words, longest).to(attention.dtype)  # (rows, words, tokens)
    target = membership(batch.context_words, longest).to(attention.dtype)
    between = (1,) * (attention.dim() - 3)
    source = source.reshape(len(source), *between, *source.shape[1:])
    target = target.reshape(len(target), *between, *target.shape[1:])
    merged = source @ (attention @ target.transpose(-1, -2)) / source.sum(-1, keepdim=True).clamp(min=1)
    return _gather_rows(merged, batch)


def _gather_rows(values: Tensor, batch: Any) -> Tensor:
    """Rows of one sentence added up: each word is zero in all rows but the one that owns it."""
    if len(values) == len(batch.n_words):  # no sentence has two windows
        return values
    return values.new_zeros(len(batch.n_words), *values.shape[1:]).index_add(0, batch.owner, values)
