"""Shares of attention, summed up layer by layer as the pass goes by: no map is kept, and the model keeps the
attention it has."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise._base.progress import track
from headwise.behaviour._inputs import Reader, Reading
from headwise.behaviour._patterns import PATTERNS, Pattern, Rows, shares, uniform
from headwise.behaviour._settings import Roles
from headwise.heads import Course, Heads, QueryRows, Site, in_backward, rows_on

AT_ONCE = 1 << 24  # numbers of attention that exist at once, for all heads of a layer
ACROSS = "in cross-attention queries and keys are different sequences"
BACKWARD = "a causal layer sees nothing after the query"


class Watch:
    """An edit that changes nothing and adds up the shares of every head.

    Args:
        heads: of the model.
        roles: names in `PATTERNS`.
        settings: window and exclusions.
        first: queries before this one are left out.
    """

    def __init__(self, heads: Heads, roles: Sequence[str], settings: Roles, first: int = 0) -> None:
        self.heads, self.roles, self.settings, self.first = heads, tuple(roles), settings, first
        self.rows = QueryRows([0], Course(heads.model))
        self.reading: Reading | None = None
        layers, widest = heads.shape
        self.values = np.full((len(self.roles), layers, widest), np.nan)
        self.chances = np.full((len(self.roles), layers), np.nan)
        self.forward = np.zeros(layers, dtype=bool)  # whether the layer ever looked ahead of a query
        self._text_count = 0
        self._share_sums = np.zeros_like(self.values)
        # shares of even attention by the layer's kind, and by whether it looks ahead
        self._even_sums: dict[tuple[str, bool], NDArray[np.float64]] = defaultdict(
            lambda: np.zeros(len(self.roles))
        )

    def start(self, arguments: dict[str, Any]) -> None:
        """A pass begins."""
        self.rows.start(arguments)

    def apply(self, site: Site, x: Tensor) -> Tensor:
        """Adds up the attention that led to x, and returns x."""
        if in_backward() or self.reading is None:
            return x
        batch, tokens = self.rows.course.passed.rows(site, x).shape[:2]
        queries, keys = self.reading.queries_and_keys(site.kind)
        latest = self.rows.latest
        step = max(1, AT_ONCE // max(1, batch * site.n_heads * keys.ids.shape[1]))
        sums = torch.zeros(2, len(self.roles), batch, site.n_heads, dtype=torch.float64)
        for start in range(self.first, tokens, step):
            self.rows.queries, self.rows.latest = torch.arange(start, min(start + step, tokens)), latest
            columns = self.rows._columns(site.kind, tokens)
            maps = self.rows.take(site, batch, tokens)
            if maps is None or not bool((columns >= 0).any()):
                continue
            order = list(site.head_order or range(site.n_heads))
            rows = Rows(columns.to(maps.device), queries, keys, self.settings.window)
            maps = maps[:, order].nan_to_num()
            if site.kind != "cross":
                self.forward[site.index] |= bool((maps * (rows.ahead > 0)[:, None]).any())
            self._add_shares(sums, site.kind, maps, rows)
        self._share_sums[:, site.index, : site.n_heads] += _sum_over_texts(sums)
        return x

    def _add_shares(self, sums: Tensor, kind: str, maps: Tensor, rows: Rows) -> None:
        """Adds Σ(A⊙P) and ΣA of every role that a layer of this kind may have to `sums`, (2, roles, batch,
        heads)."""
        settings = self.settings
        for number, role in enumerate(self.roles):
            if kind != "cross" or PATTERNS[role].across:
                hit_and_all = shares(role, maps, rows, settings.exclude_first, settings.exclude_current)
                sums[:, number] += torch.stack(hit_and_all).double().cpu()

    def read(self, reading: Reading) -> None:
        """One batch."""
        self.reading = reading
        with rows_on(self.rows, self.heads.model, self.heads.sites), self.heads.edited(self):
            self.heads.model(**reading.inputs)
        self._text_count += len(reading.tokens.ids)
        for kind in {site.kind for site in self.heads.sites}:
            for forward in (False, True):
                self._even_sums[kind, forward] += self._even_shares(reading, kind, forward)

    def _even_shares(self, reading: Reading, kind: str, forward: bool) -> NDArray[np.float64]:
        """Every role's share of even attention, summed over the texts of the batch, (roles,)."""
        queries, keys = reading.queries_and_keys(kind)
        batch, tokens = queries.ids.shape
        columns = torch.arange(tokens, device=queries.ids.device).expand(batch, -1)
        columns = columns.where(queries.real, -1)
        sums = torch.zeros(2, len(self.roles), batch, 1, dtype=torch.float64)
        step = max(1, AT_ONCE // max(1, batch * keys.ids.shape[1]))
        for start in range(self.first, tokens, step):
            rows = Rows(columns[:, start : start + step], queries, keys, self.settings.window)
            self._add_shares(sums, kind, uniform(rows, forward), rows)
        return _sum_over_texts(sums)[:, 0]

    def finish(self) -> dict[str, str]:
        """Fills `values` and `chances`; says for roles that are not defined everywhere why not."""
        reasons: dict[str, list[str]] = defaultdict(list)
        for site in self.heads.sites:
            forward = bool(self.forward[site.index])
            for number, role in enumerate(self.roles):
                reason = _why_undefined(PATTERNS[role], site, forward)
                if not reason:
                    sums = self._share_sums[number, site.index, : site.n_heads]
                    self.values[number, site.index, : site.n_heads] = sums / self._text_count
                    even = self._even_sums[site.kind, forward][number]
                    self.chances[number, site.index] = even / self._text_count
                elif reason not in reasons[role]:
                    reasons[role].append(reason)
        return {role: "; ".join(of_role) for role, of_role in reasons.items()}


def _why_undefined(pattern: Pattern, site: Site, forward: bool) -> str:
    if site.kind == "cross":
        return "" if pattern.across else ACROSS
    return BACKWARD if pattern.forward and not forward else ""


def _sum_over_texts(sums: Tensor) -> NDArray[np.float64]:
    """The sum over texts of their shares Σ(A⊙P) ÷ ΣA, (roles, heads); NaN where nothing was to be seen."""
    return (sums[0] / sums[1]).sum(1).numpy()


def attention_roles(
    heads: Heads, reader: Reader, rows: Sequence[Sequence[int]], roles: Sequence[str], settings: Roles
) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, str]]:
    """Shares of attention of every head, mean over texts.

    Returns:
        values (roles, layers, heads), chance levels (roles, layers), and notes on roles that some layers do
        not have.
    """
    watch = Watch(heads, roles, settings)
    batches = reader.batches(rows, settings.batch_size)
    total = -(-len(rows) // settings.batch_size)
    with torch.no_grad():
        for reading in track(batches, "reading attention", total, quiet=settings.quiet):
            watch.read(reading)
    notes = watch.finish()
    return watch.values, watch.chances, notes
