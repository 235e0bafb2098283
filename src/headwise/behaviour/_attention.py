"""Shares of attention, summed up layer by layer as the pass goes by: no map is kept, and the model keeps the attention it has."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise._base.progress import track
from headwise.behaviour._inputs import Reader, Reading
from headwise.behaviour._patterns import PATTERNS, Rows, shares, uniform
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
        self._texts = 0
        self._sums = np.zeros_like(self.values)
        self._even: dict[tuple[str, bool], NDArray[np.float64]] = {}

    def start(self, arguments: dict[str, Any]) -> None:
        """A pass begins."""
        self.rows.start(arguments)

    def at(self, site: Site, x: Tensor) -> Tensor:
        """Adds up the attention that led to x, and returns x."""
        if in_backward() or self.reading is None:
            return x
        batch, tokens = self.rows.course.passed.rows(site, x).shape[:2]
        queries, keys = self.reading.of(site.kind)
        latest = self.rows.latest
        step = max(1, AT_ONCE // max(1, batch * site.n_heads * keys.ids.shape[1]))
        found = torch.zeros(2, len(self.roles), batch, site.n_heads, dtype=torch.float64)
        for start in range(self.first, tokens, step):
            self.rows.wanted, self.rows.latest = torch.arange(start, min(start + step, tokens)), latest
            columns = self.rows._columns(site.kind, tokens)
            maps = self.rows.take(site, batch, tokens)
            if maps is None or not bool((columns >= 0).any()):
                continue
            order = list(site.head_order or range(site.n_heads))
            part = Rows(columns.to(maps.device), queries, keys, self.settings.window)
            maps = maps[:, order].nan_to_num()
            if site.kind != "cross":
                self.forward[site.index] |= bool((maps * (part.ahead > 0)[:, None]).any())
            for number, role in enumerate(self.roles):
                if site.kind != "cross" or PATTERNS[role].across:
                    found[:, number] += torch.stack(self._shares(role, maps, part)).double().cpu()
        total = (found[0] / found[1]).sum(1).numpy()  # (roles, heads); NaN where nothing was to be seen
        self._sums[:, site.index, : site.n_heads] += total
        return x

    def _shares(self, role: str, maps: Tensor, part: Rows) -> tuple[Tensor, Tensor]:
        return shares(role, maps, part, self.settings.exclude_first, self.settings.exclude_current)

    def read(self, reading: Reading) -> None:
        """One batch."""
        self.reading = reading
        with rows_on(self.rows, self.heads.model, self.heads.sites), self.heads.edited(self):
            self.heads.model(**reading.inputs)
        self._texts += len(reading.own.ids)
        for kind in {site.kind for site in self.heads.sites}:
            for forward in (False, True):
                self._even[kind, forward] = self._even.get(
                    (kind, forward), np.zeros(len(self.roles))
                ) + self._chance(kind, forward)

    def _chance(self, kind: str, forward: bool) -> NDArray[np.float64]:
        """Every role's share of even attention, summed over the texts of the batch, (roles,)."""
        assert self.reading is not None
        queries, keys = self.reading.of(kind)
        batch, tokens = queries.ids.shape
        columns = torch.arange(tokens, device=queries.ids.device).expand(batch, -1)
        columns = columns.where(queries.real, -1)
        found = torch.zeros(2, len(self.roles), batch, dtype=torch.float64)
        step = max(1, AT_ONCE // max(1, batch * keys.ids.shape[1]))
        for start in range(self.first, tokens, step):
            part = Rows(columns[:, start : start + step], queries, keys, self.settings.window)
            even = uniform(part, forward)
            for number, role in enumerate(self.roles):
                if kind != "cross" or PATTERNS[role].across:
                    found[:, number] += torch.stack(self._shares(role, even, part))[..., 0].cpu()
        return (found[0] / found[1]).sum(1).numpy()

    def finish(self) -> dict[str, str]:
        """Fills `values` and `chances`; says for roles that are not defined everywhere why not."""
        notes: dict[str, str] = {}
        for site in self.heads.sites:
            forward = bool(self.forward[site.index])
            for number, role in enumerate(self.roles):
                pattern = PATTERNS[role]
                why = ACROSS if site.kind == "cross" and not pattern.across else ""
                why = why or (BACKWARD if pattern.forward and site.kind != "cross" and not forward else "")
                if why:
                    notes[role] = "; ".join(
                        dict.fromkeys([*notes.get(role, "").split("; "), why])
                    ).removeprefix("; ")
                    continue
                self.values[number, site.index, : site.n_heads] = (
                    self._sums[number, site.index, : site.n_heads] / self._texts
                )
                self.chances[number, site.index] = self._even[site.kind, forward][number] / self._texts
        return notes


def attention_roles(
    heads: Heads, reader: Reader, rows: Sequence[Sequence[int]], roles: Sequence[str], settings: Roles
) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, str]]:
    """Shares of attention of every head, mean over texts.

    Returns:
        values (roles, layers, heads), chance levels (roles, layers), and notes on roles that some layers do not have.
    """
    watch = Watch(heads, roles, settings)
    total = -(-len(rows) // settings.batch_size)
    with torch.no_grad():
        for reading in track(
            reader.batches(rows, settings.batch_size), "reading attention", total, quiet=settings.quiet
        ):
            watch.read(reading)
    notes = watch.finish()
    return watch.values, watch.chances, notes
