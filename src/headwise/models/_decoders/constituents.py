"""Constituency parsing: a CRF over spans, then a label for every span of the tree (Zhang, Zhou & Li 2020)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.models._decoders.biaffine import Biaffine, Role
from headwise.models._decoders.counts import DecodedLater, match_counts, real_rows, table
from headwise.models._decoders.output import DecoderOutput, TaskLike
from headwise.models._decoders.trees import cky, log_partition, span_marginals
from headwise.models._decoders.words import pool_words

# evalb's usual equivalence
SAME = {"PRT": "ADVP"}
JOINT = "+"  # joins the labels of a unary chain, top to bottom


class ConstituentDecoder(nn.Module):
    """Stage one scores unlabelled spans, stage two labels those of the tree; "no constituent" is label 0.

    A fence post between two words is read from both of them; at the sentence's ends a vector of its own
    stands for the missing word.

    Args:
        dim: width of the encoder.
        classes: names of the labels, unary chains joined by "+".
        span, label: widths of the vectors of stage one and stage two.
        dropout: on word and post vectors.
    """

    def __init__(
        self, dim: int, classes: Sequence[str], span: int = 500, label: int = 100, dropout: float = 0.33
    ) -> None:
        super().__init__()
        self.chains = unary_chains(classes)  # (classes, longest chain)
        self.dropout = nn.Dropout(dropout)
        self.edge = nn.Parameter(torch.randn(dim) * 0.02)
        self.span_left, self.span_right = Role(2 * dim, span, dropout), Role(2 * dim, span, dropout)
        self.label_left, self.label_right = Role(2 * dim, label, dropout), Role(2 * dim, label, dropout)
        self.span, self.label = Biaffine(span), Biaffine(label, len(classes) + 1)

    def forward(self, states: Tensor, batch: Any) -> DecoderOutput:
        """From token states (batch, tokens, dim) to the loss of tree and labels per word, and counts of
        labelled brackets with punctuation and the top node left out."""
        lengths = batch.n_words
        posts = self.posts(self.dropout(pool_words(states, batch)), lengths)  # (batch, posts, 2 dim)
        # (batch, posts, posts)
        scores = self.span(self.span_left(posts), self.span_right(posts)).squeeze(1).float()
        starting, ending = self.label_left(posts), self.label_right(posts)
        start, end, name = batch.trees.unbind(2)  # (batch, spans), name -100 beyond a tree
        row = torch.arange(len(scores), device=scores.device)[:, None]
        named = self.label.pairs(starting[row, start].flatten(0, 1), ending[row, end].flatten(0, 1)).float()
        # 0 where name is -100
        stage_two = nn.functional.cross_entropy(named, name.flatten(), reduction="none").view_as(name)
        of_tree = scores[row, start, end].masked_fill(name < 0, 0)
        loss = ((stage_two - of_tree).sum(1) + log_partition(scores, lengths)) / lengths

        def decode() -> Tensor:
            row, first, last = cky(span_marginals(scores, lengths), lengths).nonzero(as_tuple=True)
            labels = self.label.pairs(starting[row, first], ending[row, last]).argmax(-1) - 1
            predicted = table(row, first, last, labels)
            gold = table(*real_rows(batch.labels).unbind(1))
            counts = bracket_counts(predicted[predicted[:, 3] >= 0], gold, lengths.tolist(), self.chains)
            return torch.from_numpy(counts).to(scores.device)

        return DecodedLater(loss, decode, scores)

    def posts(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """The words on either side of every fence post; (batch, words + 1, 2 dim)."""
        batch, words, dim = vectors.shape
        edge = self.edge.to(vectors.dtype).expand(batch, 1, dim)
        before = torch.cat([edge, vectors], 1)
        after = torch.cat([vectors, edge], 1)
        # the post after the last word
        last = torch.arange(words + 1, device=lengths.device) == lengths[:, None]
        after = torch.where(last[..., None], edge, after)
        return torch.cat([before, after], -1)


def unary_chains(classes: Sequence[str]) -> NDArray[np.int64]:
    """(classes, longest chain) numbers of the labels in each joint label, -1 for none; labels evalb calls the
    same share a number."""
    chains = []
    for name in classes:
        chains.append([SAME.get(label, label) for label in name.split(JOINT)])
    number = {label: i for i, label in enumerate(sorted(set().union(*chains)))}
    table = np.full((len(chains), max(map(len, chains), default=1)), -1, dtype=np.int64)
    for row, chain in zip(table, chains, strict=True):
        row[: len(chain)] = [number[label] for label in chain]
    return table


def bracket_counts(
    predicted: NDArray[np.int64], gold: NDArray[np.int64], lengths: Sequence[int], chains: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Labelled brackets as evalb counts them: unary chains taken apart, words that do not count removed and
    spans renumbered.

    Args:
        predicted: (constituents, 4): sentence, start, end, class.
        gold: (constituents, 4), the same; a row (sentence, i, i+1, -1) says that word i (punctuation) does
            not count.
        lengths: words of each sentence.
        chains: see `unary_chains`.

    Returns:
        (batch, 3) correct, predicted, gold.
    """
    counts = np.ones((len(lengths), max(lengths)), dtype=np.int64)
    removed = gold[gold[:, 3] < 0]
    counts[removed[:, 0], removed[:, 1]] = 0
    # post -> post among counted words
    counted = np.concatenate([np.zeros((len(lengths), 1), dtype=np.int64), counts.cumsum(1)], 1)

    def brackets(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        sentence, start, end, name = rows.T
        spans = np.stack([sentence, counted[sentence, start], counted[sentence, end]], 1)
        labels = chains[name]  # (rows, longest chain)
        row, link = ((labels >= 0) & (spans[:, 1] < spans[:, 2])[:, None]).nonzero()
        return np.concatenate([spans[row], labels[row, link][:, None]], 1)

    return match_counts(brackets(predicted), brackets(gold[gold[:, 3] >= 0]), len(lengths))


def build(
    task: TaskLike, dim: int, *, config: Any = None, pooling: str | None = None, **options: Any
) -> ConstituentDecoder:
    """The decoder of a task of kind "constituents"; `config` and `pooling` matter to whole-text decoders
    only."""
    return ConstituentDecoder(dim, list(task.classes), **options)
