"""Named entities: every span scored by a biaffine form of its first and last word (Yu et al. 2020), decoded
flat."""

from typing import Any

import torch
from torch import Tensor, nn

from headwise.models._decoders.biaffine import Biaffine, Role
from headwise.models._decoders.counts import DecodedLater, match_counts, real_rows, table
from headwise.models._decoders.output import DecoderOutput, TaskLike
from headwise.models._decoders.words import pool_words


class SpanDecoder(nn.Module):
    """Labelled spans that do not overlap.

    Args:
        dim: width of the encoder.
        classes: number of span labels; "no span" is one more form.
        width: of the start and end vectors.
        dropout: on word, start and end vectors.
    """

    def __init__(self, dim: int, classes: int, width: int = 150, dropout: float = 0.2) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.start, self.end = Role(dim, width, dropout), Role(dim, width, dropout)
        self.score = Biaffine(width, classes + 1)  # form 0: no span

    def forward(self, states: Tensor, batch: Any) -> DecoderOutput:
        """From token states (batch, tokens, dim) to the cross-entropy over all spans of a sentence per word,
        and span counts."""
        lengths = batch.n_words
        vectors = self.dropout(pool_words(states, batch))  # (batch, words, dim)
        # (batch, classes + 1, first, last)
        logits = self.score(self.start(vectors), self.end(vectors)).float()
        # (gold spans,), owner -1 in rows that fill a padded batch
        owner, start, end, label = batch.labels.unbind(1)
        gold = torch.zeros(len(logits) + 1, *logits.shape[2:], dtype=torch.long, device=logits.device)
        gold[owner, start, end - 1] = label + 1  # of owner -1: into the sentence too many
        gold = gold[:-1]
        real = possible(lengths, logits.shape[2])  # (batch, first, last)
        losses = nn.functional.cross_entropy(logits, gold, reduction="none").masked_fill(~real, 0)
        loss = losses.sum((1, 2)) / lengths

        def decode() -> Tensor:
            # (batch, first, last); how much better than no span
            best, form = (logits - logits[:, :1]).max(1)
            row, first, last = flat_spans(best.masked_fill(~real, 0))
            predicted = table(row, first, last + 1, form[row, first, last] - 1)
            counts = match_counts(predicted, table(*real_rows(batch.labels).unbind(1)), len(logits))
            return torch.from_numpy(counts).to(logits.device)

        return DecodedLater(loss, decode, logits)


def possible(lengths: Tensor, longest: int) -> Tensor:
    """(batch, first, last) bool: spans that lie within their sentence."""
    word = torch.arange(longest, device=lengths.device)
    return (word[:, None] <= word) & (word < lengths[:, None, None])


def flat_spans(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Spans that do not overlap, the best first (the greedy reading of Yu et al. 2020); all sentences
    together.

    Args:
        scores: (batch, words, words) by first and last word; only positive scores are spans.

    Returns:
        row, first word and last word (inclusive) of every chosen span.
    """
    batch, words, _ = scores.shape
    word = torch.arange(words, device=scores.device)
    first, last = (grid.flatten() for grid in torch.meshgrid(word, word, indexing="ij"))
    rows, spans = choose_flat(scores.flatten(1), first.expand(batch, -1), last.expand(batch, -1))
    return rows, first[spans], last[spans]


def choose_flat(scores: Tensor, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """The same for candidate spans: takes the best, drops what overlaps it, and so on while a score is
    positive.

    Args:
        scores: (rows, candidates); only positive scores are taken. Ties go to the earlier candidate.
        first, last: (rows, candidates) first and last word (inclusive).

    Returns:
        row and candidate number of every chosen span.
    """
    scores = scores.clone()
    live = torch.arange(len(scores), device=scores.device)  # rows that may have further spans
    rows, spans = [], []
    while scores.shape[1]:
        best, which = scores[live].max(1)
        on = best > 0
        live, which = live[on], which[on]
        if len(live) == 0:
            break
        rows.append(live)
        spans.append(which)
        low, high = first[live, which, None], last[live, which, None]
        overlap = (first[live] <= high) & (last[live] >= low)  # the chosen span itself included
        scores[live] = scores[live].masked_fill(overlap, 0)
    empty = torch.zeros(0, dtype=torch.long, device=scores.device)
    return torch.cat([empty, *rows]), torch.cat([empty, *spans])


def build(
    task: TaskLike, dim: int, *, config: Any = None, pooling: str | None = None, **options: Any
) -> SpanDecoder:
    """The decoder of a task of kind "spans"; `config` and `pooling` matter to whole-text decoders only."""
    return SpanDecoder(dim, len(task.classes), **options)
