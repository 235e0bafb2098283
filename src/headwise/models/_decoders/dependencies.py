"""Dependency parsing: biaffine arcs and relations (Dozat & Manning 2017), with tree decoding."""

from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.models._decoders.arcs import projective_tree, spanning_tree
from headwise.models._decoders.biaffine import Biaffine, Role
from headwise.models._decoders.counts import DecodedLater
from headwise.models._decoders.output import DecoderOutput, TaskLike
from headwise.models._decoders.words import pool_words

TREES = {"spanning": spanning_tree, "projective": projective_tree}


class DependencyDecoder(nn.Module):
    """A head and a relation for every word; the root is a vector of its own.

    Args:
        dim: width of the encoder.
        classes: number of relations.
        arc, relation: widths of the vectors that choose heads, and relations.
        dropout: on word, head and dependent vectors.
        tree: "spanning" (any tree) or "projective" (no crossing arcs).
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        arc: int = 500,
        relation: int = 100,
        dropout: float = 0.33,
        tree: str = "spanning",
    ) -> None:
        super().__init__()
        if tree not in TREES:
            raise HeadwiseError(f"tree decoding {tree!r} is unknown; choose one of {', '.join(TREES)}")
        self.tree = tree
        self.dropout = nn.Dropout(dropout)
        self.root = nn.Parameter(torch.randn(dim) * 0.02)
        self.arc_dependent, self.arc_head = Role(dim, arc, dropout), Role(dim, arc, dropout)
        self.relation_dependent = Role(dim, relation, dropout)
        self.relation_head = Role(dim, relation, dropout)
        self.arc, self.relation = Biaffine(arc), Biaffine(relation, classes)

    def forward(self, states: Tensor, batch: Any) -> DecoderOutput:
        """From token states (batch, tokens, dim) to the mean over words of the losses of head and relation,
        and counts (right head and relation, words, words, right head), punctuation left out."""
        lengths = batch.n_words
        vectors = pool_words(states, batch)  # (batch, words, dim)
        root = self.root.to(vectors.dtype).expand(len(vectors), 1, -1)
        vectors = self.dropout(torch.cat([root, vectors], 1))
        # (batch, dependent, head)
        scores = self.arc(self.arc_dependent(vectors), self.arc_head(vectors)).squeeze(1).float()
        node = torch.arange(scores.shape[1], device=scores.device)
        masked = scores.masked_fill((node > lengths[:, None])[:, None], -torch.inf)
        dependents, heads_as = self.relation_dependent(vectors), self.relation_head(vectors)

        head, relation, counted = batch.labels.unbind(2)  # (batch, words), (-100, -100, 0) beyond a sentence
        row = torch.arange(len(scores), device=scores.device)[:, None]

        def named(heads: Tensor) -> Tensor:
            """Scores of relations if the words hang from these heads; (batch, words, relations)."""
            pairs = dependents[:, 1:].flatten(0, 1), heads_as[row, heads].flatten(0, 1)
            return self.relation.pairs(*pairs).float().view(*heads.shape, -1)

        def losses(logits: Tensor, gold: Tensor) -> Tensor:
            """One loss per word, 0 where gold is -100."""
            return nn.functional.cross_entropy(logits.flatten(0, 1), gold.flatten(), reduction="none")

        both = losses(masked[:, 1:], head) + losses(named(head.clamp(min=0)), relation)
        loss = both.view_as(head).sum(1) / lengths

        def decode() -> Tensor:
            heads = TREES[self.tree](scores, lengths)[:, 1:]
            right = (heads == head) & counted.bool()
            alike = named(heads).argmax(-1) == relation
            return torch.stack([right & alike, counted, counted, right], 2).long().sum(1)  # (batch, 4)

        return DecodedLater(loss, decode, scores)


def build(
    task: TaskLike, dim: int, *, config: Any = None, pooling: str | None = None, **options: Any
) -> DependencyDecoder:
    """The decoder of a task of kind "dependencies"; `config` and `pooling` matter to whole-text decoders
    only."""
    return DependencyDecoder(dim, len(task.classes), **options)
