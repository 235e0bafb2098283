"""Where a head of some role looks: patterns P over queries and keys, as boolean rows.

Previous token, duplicate token and induction are those of TransformerLens' `detect_head`; a pattern looks
back only, whatever the layer may see.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.behaviour._settings import SINK


@dataclass(frozen=True)
class Tokens:
    """The tokens that queries or keys stand for, padded.

    Attributes:
        ids: (batch, tokens).
        real: (batch, tokens) bool.
        delimiters, rare: which tokens are delimiters, and the rarest of their text, (batch, tokens) bool.
    """

    ids: Tensor
    real: Tensor
    delimiters: Tensor
    rare: Tensor

    @property
    def first(self) -> Tensor:
        """Column of each row's first real token, (batch,)."""
        return self.real.int().argmax(1)

    def to(self, device: torch.device) -> "Tokens":
        """The same on a device."""
        return Tokens(*(value.to(device) for value in (self.ids, self.real, self.delimiters, self.rare)))


@dataclass(frozen=True)
class Rows:
    """Some queries of a batch, and all keys.

    Attributes:
        columns: of the queries, (batch, n); -1 where a row has no such query.
        queries, keys: the two sequences; the same one in self-attention.
        window: tokens on either side that are local.
    """

    columns: Tensor
    queries: Tokens
    keys: Tokens
    window: int

    @property
    def ahead(self) -> Tensor:
        """By how many tokens each key is ahead of each query, (batch, n, keys)."""
        return torch.arange(self.keys.ids.shape[1], device=self.columns.device) - self.columns[..., None]

    @property
    def query_ids(self) -> Tensor:
        """The token of each query, (batch, n)."""
        return self.queries.ids.gather(1, self.columns.clamp(min=0))


def _offset(distance: int) -> Callable[[Rows], Tensor]:
    return lambda rows: rows.ahead == distance


def _duplicate(rows: Rows) -> Tensor:
    return (rows.keys.ids[:, None] == rows.query_ids[..., None]) & (rows.ahead < 0)


def _induction(rows: Rows) -> Tensor:
    """Key k where token k − 1 is an earlier copy of the query's token."""
    after = _duplicate(rows) & rows.keys.real[:, None]
    return torch.nn.functional.pad(after, (1, 0))[..., :-1] & (rows.ahead <= 0)


def _first(rows: Rows) -> Tensor:
    keys = torch.arange(rows.keys.ids.shape[1], device=rows.columns.device)
    return (keys == rows.keys.first[:, None])[:, None].expand_as(rows.ahead)


@dataclass(frozen=True)
class Pattern:
    """A role as a pattern.

    Attributes:
        where: P, (batch, n, keys) bool.
        across: whether it means something where queries and keys are different sequences.
        detector: whether attention to the first token or to the query may be left out, as `detect_head`
            allows.
        later: whether the first query is left out.
        above: count queries with more attention than this on the pattern, instead of attention; 0: attention.
        forward: whether it needs a layer that sees what comes after the query.
    """

    where: Callable[[Rows], Tensor]
    across: bool = False
    detector: bool = False
    later: bool = False
    above: float = 0.0
    forward: bool = False


PATTERNS: dict[str, Pattern] = {
    "previous-token": Pattern(_offset(-1), detector=True),
    "duplicate-token": Pattern(_duplicate, detector=True),
    "induction": Pattern(_induction, detector=True),
    "previous-token-text": Pattern(_offset(-1), detector=True),
    "duplicate-token-text": Pattern(_duplicate, detector=True),
    "induction-text": Pattern(_induction, detector=True),
    "sink": Pattern(_first, across=True, later=True),
    "sink-share": Pattern(_first, across=True, later=True, above=SINK),
    "self": Pattern(_offset(0)),
    "next-token": Pattern(_offset(1), forward=True),
    "local": Pattern(lambda rows: (rows.ahead.abs() <= rows.window) & (rows.ahead != 0)),
    "delimiter": Pattern(lambda rows: rows.keys.delimiters[:, None].expand_as(rows.ahead), across=True),
    "rare-token": Pattern(lambda rows: rows.keys.rare[:, None].expand_as(rows.ahead), across=True),
}


def shares(
    role: str, maps: Tensor, rows: Rows, exclude_first: bool, exclude_current: bool
) -> tuple[Tensor, Tensor]:
    """What the attention of queries adds to a role: Σ(A⊙P) and ΣA over them, each (batch, heads).

    Args:
        role: one of `PATTERNS`.
        maps: attention (batch, heads, n, keys), 0 at queries that are not there and at padding.
        rows: which queries they are.
        exclude_first, exclude_current: take attention to the first token, or to the query itself, as 0.
    """
    pattern = PATTERNS[role]
    counted = rows.columns >= 0  # (batch, n)
    if pattern.detector and exclude_first:
        maps = maps.masked_fill(_first(rows)[:, None], 0.0)
    if pattern.detector and exclude_current:
        maps = maps.masked_fill((rows.ahead == 0)[:, None], 0.0)
    if pattern.later and rows.queries is rows.keys:
        counted = counted & (rows.columns > rows.queries.first[:, None])
    where = pattern.where(rows) & rows.keys.real[:, None] & counted[..., None]
    hits = torch.einsum("bhnk,bnk->bhn", maps, where.to(maps.dtype))
    counts = counted[:, None].to(maps.dtype).expand_as(hits)
    if pattern.above:
        return (hits > pattern.above).to(maps.dtype).sum(-1), counts.sum(-1)
    return hits.sum(-1), (maps.sum(-1) * counts).sum(-1)


def uniform(rows: Rows, forward: bool) -> Tensor:
    """Attention spread evenly over all that a query may see, (batch, 1, n, keys)."""
    seen = rows.keys.real[:, None] & (rows.columns >= 0)[..., None]
    if not forward and rows.queries is rows.keys:
        seen = seen & (rows.ahead <= 0)
    even = seen.double()
    return (even / even.sum(-1, keepdim=True).clamp(min=1))[:, None]
