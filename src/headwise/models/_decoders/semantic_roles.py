"""Semantic roles end to end: predicates and argument spans are ranked, pruned, and paired (He et al. 2018).

phi(p, a, l) = phi_p(p) + phi_a(a) + phi_l(p, a) for a predicate word p, an argument span a and a role l; phi
of "no role" is 0. Three things keep it small: spans are ranked by a biaffine form of their first and last
word, so no vector is made for the n² spans; only the best `spans` × n spans and `predicates` × n words are
paired; and phi_l is a biaffine form of narrow vectors.
"""

from math import ceil
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headwise.models._decoders.biaffine import Biaffine, Role
from headwise.models._decoders.counts import DecodedLater, match_counts, real_rows, table
from headwise.models._decoders.output import DecoderOutput, TaskLike
from headwise.models._decoders.spans import choose_flat, possible
from headwise.models._decoders.words import pool_words


class Evidence(NamedTuple):
    """What candidates are scored from."""

    predicate: Tensor  # (batch, words) phi_p
    span: Tensor  # (batch, words, words) phi_a by first and last word
    as_predicate: Tensor  # (batch, words, width)
    as_start: Tensor  # (batch, words, width)
    as_end: Tensor  # (batch, words, width)
    real: Tensor  # (batch, words, words) bool
    lengths: Tensor  # (batch,)


class Candidates(NamedTuple):
    """The pairs that are looked at; `chosen` tells true candidates from filling."""

    word: Tensor  # (batch, P)
    word_on: Tensor  # (batch, P) bool
    first: Tensor  # (batch, K)
    last: Tensor  # (batch, K)
    span_on: Tensor  # (batch, K) bool


class RoleDecoder(nn.Module):
    """Predicates, their arguments and the arguments' roles.

    The loss is the cross-entropy of every candidate pair's role, plus two terms that teach the ranking (is
    the word a predicate, is the span an argument of any). For the loss the true predicates and spans are
    always among the candidates; for decoding they are not.

    Args:
        dim: width of the encoder.
        classes: number of roles; role 0 is "V", which the predicates themselves carry: here its place means
            "no role".
        width: of the vectors that rank and that are paired.
        predicates, spans: candidates kept, as shares of the number of words.
        dropout: on word vectors and roles.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        width: int = 200,
        predicates: float = 0.4,
        spans: float = 1.0,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.predicates, self.spans = predicates, spans
        self.dropout = nn.Dropout(dropout)
        self.start, self.end, self.predicate = (Role(dim, width, dropout) for _ in range(3))
        self.pair_start, self.pair_end, self.pair_predicate = (Role(dim, width, dropout) for _ in range(3))
        self.rank_span, self.rank_predicate = Biaffine(width), nn.Linear(width, 1)
        self.role = Biaffine(width, classes - 1)

    def forward(self, states: Tensor, batch: Any) -> DecoderOutput:
        """From token states (batch, tokens, dim) to the loss per word, and counts of (predicate, span,
        role)."""
        vectors = self.dropout(pool_words(states, batch))  # (batch, words, dim)
        evidence = self.evidence(vectors, batch.n_words)
        loss = self.loss(evidence, batch.labels, getattr(batch, "room", None))

        def decode() -> Tensor:
            row, word, first, last, role = self.decode(evidence)
            predicted = table(row, word, first, last + 1, role)
            gold = table(*real_rows(batch.labels).unbind(1))
            gold = gold[gold[:, 4] > 0]  # "V" marks predicates and is not counted, as in the CoNLL scorer
            return torch.from_numpy(match_counts(predicted, gold, len(loss))).to(loss.device)

        return DecodedLater(loss, decode, evidence.span)

    def evidence(self, vectors: Tensor, lengths: Tensor) -> Evidence:
        """Ranking scores and pairing vectors of a batch of word vectors (batch, words, dim)."""
        return Evidence(
            self.rank_predicate(self.predicate(vectors)).squeeze(-1).float(),
            self.rank_span(self.start(vectors), self.end(vectors)).squeeze(1).float(),
            self.pair_predicate(vectors),
            self.pair_start(vectors),
            self.pair_end(vectors),
            possible(lengths, vectors.shape[1]),
            lengths,
        )

    def loss(self, evidence: Evidence, labels: Tensor, room: Any = None) -> Tensor:
        """(batch,) per word; labels (rows, 5): sentence, predicate, start, end, role; sentence -1 in rows
        that fill a padded batch.

        Args:
            room: of the batch: how many predicates and arguments a sentence has at most; None: that is
                counted on the device.
        """
        owner, word, start, end, role = labels.unbind(1)
        last = end - 1
        # What belongs to no sentence (owner -1) goes into one too many, which is cut off.
        argument_owner = owner.masked_fill(role == 0, -1)
        batch, words = evidence.predicate.shape
        is_predicate = evidence.predicate.new_zeros(batch + 1, words)
        is_span = evidence.span.new_zeros(batch + 1, words, words)
        # Made on the device: a Python number put at indexed places is copied from the host, which no CUDA
        # graph captures.
        true = is_span.new_ones(())
        is_predicate[owner, word] = true
        is_span[argument_owner, start, last] = true
        is_predicate, is_span = is_predicate[:-1], is_span[:-1]
        word_loss = nn.functional.binary_cross_entropy_with_logits(
            evidence.predicate, is_predicate, reduction="none"
        )
        span_loss = nn.functional.binary_cross_entropy_with_logits(evidence.span, is_span, reduction="none")
        diagonal = evidence.real.diagonal(dim1=1, dim2=2)  # real words
        ranking = word_loss.masked_fill(~diagonal, 0).sum(1)
        ranking = ranking + span_loss.masked_fill(~evidence.real, 0).sum((1, 2))

        pool = self.candidates(evidence, is_predicate.bool(), is_span.bool(), room)
        scores = self.pair_scores(evidence, pool)  # (batch, P, K, classes)
        # Where each gold word and span stands among the candidates; both are always there.
        word_place = torch.zeros(batch, words, dtype=torch.long, device=owner.device)
        span_place = torch.zeros(batch, words, words, dtype=torch.long, device=owner.device)
        everyone = torch.arange(batch, device=owner.device)[:, None]
        word_place[everyone, pool.word] = torch.arange(pool.word.shape[1], device=owner.device)
        span_place[everyone, pool.first, pool.last] = torch.arange(pool.first.shape[1], device=owner.device)
        gold = torch.zeros(batch + 1, *scores.shape[1:3], dtype=torch.long, device=owner.device)
        words_at, spans_at = word_place[argument_owner, word], span_place[argument_owner, start, last]
        gold[argument_owner, words_at, spans_at] = role
        gold = gold[:-1]
        pair_loss = nn.functional.cross_entropy(scores.movedim(-1, 1), gold, reduction="none")
        both = pool.word_on[:, :, None] & pool.span_on[:, None, :]
        return (ranking + pair_loss.masked_fill(~both, 0).sum((1, 2))) / evidence.lengths

    def candidates(
        self,
        evidence: Evidence,
        words_in: Tensor | None = None,
        spans_in: Tensor | None = None,
        room: Any = None,
    ) -> Candidates:
        """The best words and spans; those marked in `words_in` (batch, words) and `spans_in` (batch, words,
        words) come first.

        How many are kept depends on the sentence's own length (and gold) alone, never on its neighbours in
        the batch. `room` says how many there can be; without it they are counted on the device.
        """
        spans = evidence.span.detach().masked_fill(~evidence.real, -torch.inf)
        words = evidence.predicate.detach().masked_fill(~evidence.real.diagonal(dim1=1, dim2=2), -torch.inf)
        keep_words = (evidence.lengths * self.predicates).ceil().long()
        keep_spans = (evidence.lengths * self.spans).ceil().long()
        if words_in is not None and spans_in is not None:
            words, spans = words.masked_fill(words_in, torch.inf), spans.masked_fill(spans_in, torch.inf)
            keep_words = keep_words.maximum(words_in.sum(1))
            keep_spans = keep_spans.maximum(spans_in.sum((1, 2)))
        longest = spans.shape[2]
        if room is None:
            most_words, most_spans = int(keep_words.max()), int(keep_spans.max())
        else:  # one more than the share of the longest sentence: the device may round it up
            most_words = max(ceil(longest * self.predicates) + 1, room.predicates)
            most_spans = max(ceil(longest * self.spans) + 1, room.arguments)
        word, word_on = _best(words, keep_words, most_words)
        flat, span_on = _best(spans.flatten(1), keep_spans, most_spans)
        return Candidates(word, word_on, flat // longest, flat % longest, span_on)

    def pair_scores(self, evidence: Evidence, pool: Candidates) -> Tensor:
        """phi of every candidate pair and role, 0 for no role in place 0; (batch, P, K, classes)."""
        row = torch.arange(len(evidence.lengths), device=evidence.lengths.device)[:, None]
        spans = evidence.as_start[row, pool.first] + evidence.as_end[row, pool.last]  # (batch, K, width)
        words = evidence.as_predicate[row, pool.word]  # (batch, P, width)
        role = self.role(words, spans).float().movedim(1, -1)  # (batch, P, K, roles)
        word_ranks, span_ranks = evidence.predicate[row, pool.word], evidence.span[row, pool.first, pool.last]
        ranks = word_ranks[:, :, None] + span_ranks[:, None, :]
        role = role + ranks[..., None]
        return torch.cat([torch.zeros_like(role[..., :1]), role], -1)

    def decode(self, evidence: Evidence) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Row, predicate word, first and last word (inclusive) and role of every argument; a predicate's
        arguments do not overlap."""
        pool = self.candidates(evidence)
        best, role = self.pair_scores(evidence, pool)[..., 1:].max(-1)  # (batch, P, K)
        best = best.masked_fill(~(pool.word_on[:, :, None] & pool.span_on[:, None, :]), 0)
        batch, p, k = best.shape
        first = pool.first[:, None, :].expand(batch, p, k).reshape(-1, k)
        last = pool.last[:, None, :].expand(batch, p, k).reshape(-1, k)
        pair, span = choose_flat(best.reshape(-1, k), first, last)
        row, word = pair // p, pair % p
        return row, pool.word[row, word], first[pair, span], last[pair, span], role[row, word, span] + 1


def _best(scores: Tensor, keep: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The best places of (batch, n) scores, and which of them are within the row's own `keep` and real;
    (batch, `most` at most) both."""
    most = min(most, scores.shape[1])
    value, order = scores.sort(dim=1, descending=True, stable=True)
    on = (torch.arange(most, device=scores.device) < keep[:, None]) & (value[:, :most] > -torch.inf)
    return order[:, :most], on


def build(
    task: TaskLike, dim: int, *, config: Any = None, pooling: str | None = None, **options: Any
) -> RoleDecoder:
    """The decoder of a task of kind "roles"; `config` and `pooling` matter to whole-text decoders only."""
    return RoleDecoder(dim, len(task.classes), **options)
