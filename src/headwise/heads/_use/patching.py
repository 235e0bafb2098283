"""Patches: heads put out what they put out in another pass, the *source*, each row of a batch with a patch of
its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from headwise.errors import HeadwiseError
from headwise.heads._headset import HeadSet
from headwise.heads._inputs import root_of
from headwise.heads._sites import Site
from headwise.heads._use.course import Course, with_rows
from headwise.heads._use.generation import following
from headwise.heads._use.positions import Pass
from headwise.heads._use.recording import Tape
from headwise.heads._use.replacement import reference_passes

if TYPE_CHECKING:
    from headwise.heads._heads import Heads

Patches = HeadSet | Sequence[HeadSet] | Tensor
Tokens = str | Sequence[int] | Sequence[tuple[int, int]] | Mapping[int, int] | Tensor


@contextmanager
def patched(
    heads: Heads,
    patches: Patches,
    source: Mapping[str, Any] | Tape,
    tokens: Tokens,
    rows: Iterable[int] | None,
    prompt: int | None,
) -> Iterator[None]:
    """See `Heads.patched`."""
    if not heads.rows_apart:
        raise HeadwiseError(
            f"{type(root_of(heads.model)).__name__} does not keep the rows of a batch apart, so a patch "
            "would reach other rows"
        )
    mask = _mask(heads, patches)  # (rows or 1, layers, heads)
    layers = mask.any(0).any(1).nonzero()[:, 0].tolist()
    if not layers:
        raise HeadwiseError("this patch names no head: nothing would be replaced")
    passes: dict[int, list[tuple[Tensor, Pass]]] = {}
    if isinstance(source, Tape):
        _check_source(heads, source)
        passes = {layer: source.passes(layer) for layer in layers}
    elif isinstance(source, Mapping):
        tapes = list(reference_passes(heads, source))
        for layer in layers:
            passes[layer] = [(tape.layer(layer), passed) for tape, passed in tapes]
    else:
        raise HeadwiseError(
            "the source of a patch is a batch of model inputs (keyword arguments) or a recording; got "
            f"{type(source).__name__}"
        )
    bank = {layer: Bank(heads.sites[layer], passes[layer]) for layer in layers}
    source_rows = None if rows is None else torch.as_tensor(list(rows))
    edit = Patched(mask, bank, _pairs(tokens), source_rows, Course(heads.model, prompt))
    with following(heads, edit, [heads.sites[layer] for layer in layers]):
        yield
        edit.check_reached()


class Bank:
    """What the heads of one layer put out in the source: (rows, tokens, heads, head_dim), and where each
    row's real tokens stand."""

    def __init__(self, site: Site, passes: Sequence[tuple[Tensor, Pass]]) -> None:
        tokens = max(outputs.shape[1] for outputs, _ in passes)
        columns, lengths = [], []
        for outputs, passed in passes:
            real = passed.real(site.kind, outputs.shape[1])
            if real is None:
                real = torch.ones(outputs.shape[:2], dtype=torch.bool)
            order = (~real.cpu()).int().argsort(dim=1, stable=True)  # columns of real tokens first, in order
            columns.append(pad(order, (0, tokens - order.shape[1])))
            lengths.append(real.sum(1).cpu())
        self.columns, self.lengths = torch.cat(columns), torch.cat(lengths)  # (rows, tokens), (rows,)
        padded = [pad(outputs, (0, 0, 0, 0, 0, tokens - outputs.shape[1])) for outputs, _ in passes]
        self.outputs = padded[0] if len(padded) == 1 else torch.cat(padded)
        # Each of the outputs, never of another copy
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def outputs_like(self, x: Tensor) -> Tensor:
        """The outputs where x is, and as it is."""
        key = x.device, x.dtype
        if key not in self._copies:
            self._copies[key] = self.outputs.to(*key)
        return self._copies[key]


class Patched:
    """Puts the source's outputs in place of those of some heads.

    Args:
        mask: which heads, (rows or 1, layers, heads) bool.
        bank: by layer what its heads put out in the source.
        pairs: positions (source, target), (rows or 1, n, 2); None: every token, one to one.
        rows: which row of the source each row of a pass gets; None: its own, or the only one.
        course: where the tokens of each pass stand.
    """

    needs = "tokens"

    def __init__(
        self, mask: Tensor, bank: dict[int, Bank], pairs: Tensor | None, rows: Tensor | None, course: Course
    ) -> None:
        self.bank, self.pairs, self.rows = bank, pairs, rows
        # (rows, heads) of each patch
        self.entries = {layer: mask[:, layer].nonzero(as_tuple=True) for layer in bank}
        self.n_rows = mask.shape[0]
        self.course = course
        self.reached: Tensor | None = None  # which pairs were ever met
        self._index: dict[tuple[int, int, torch.device], tuple[tuple[Tensor, ...], tuple[Tensor, ...]]] = {}
        self._columns: dict[tuple[str, int], tuple[Tensor, Tensor, Tensor]] = {}

    def start(self, arguments: dict[str, Any]) -> None:
        """A pass begins."""
        self.course.start(arguments)
        self._index, self._columns = {}, {}

    def apply(self, site: Site, x: Tensor) -> Tensor:
        """x: (..., heads × head_dim)."""
        if site.index not in self.bank:
            return x
        rows = self.course.passed.rows(site, x)  # (batch, tokens, heads, head_dim)
        key = site.index, rows.shape[1], x.device
        if key not in self._index:
            self._index[key] = self._indices(site, rows)
        target, source = self._index[key]
        if not target[0].numel():
            return x
        return with_rows(site, x, rows.index_put(target, self.bank[site.index].outputs_like(x)[source]))

    def _indices(self, site: Site, x: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """(row, token, head) of every output to replace, and of what replaces it."""
        batch, tokens = x.shape[:2]
        if self.n_rows not in (1, batch):
            raise HeadwiseError(
                f"patches for {self.n_rows} rows met a pass of {batch}: give one set of heads per row, or "
                "one for all. generate() repeats each prompt for its beams and returned sequences, one "
                "after the other"
            )
        if (site.kind, tokens) not in self._columns:
            self._columns[site.kind, tokens] = self._aligned(site, self.bank[site.index], batch, tokens)
        source_row, source_column, column = self._columns[site.kind, tokens]
        row, head = self.entries[site.index]
        if self.n_rows == 1:
            row, head = torch.arange(batch).repeat_interleave(len(head)), head.repeat(batch)
        met = column[row] >= 0  # (patches, n)
        column, source_column, counts = column[row][met], source_column[row][met], met.sum(1)
        row, head = row.repeat_interleave(counts), head.repeat_interleave(counts)
        target, source = (row, column, head), (source_row[row], source_column, head)
        return tuple(axis.to(x.device) for axis in target), tuple(axis.to(x.device) for axis in source)

    def _aligned(self, site: Site, bank: Bank, batch: int, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
        """The source row of each row (batch,), and columns of the source and of this pass, (batch, n); -1
        where this pass has none."""
        source_row = self._source_row(bank, batch)
        lengths = bank.lengths[source_row]
        if self.pairs is None:
            self._check_lengths(site, lengths, tokens)
            positions = self.course.positions(site.kind, tokens)
            column = torch.arange(tokens).where((positions >= 0) & (positions < lengths[:, None]), -1)
        else:
            pairs = self._pairs_of_rows(self.pairs, site, lengths, tokens)
            positions, column = pairs[..., 0], self.course.columns(site.kind, tokens, pairs[..., 1])
            if self.reached is None or self.reached.shape != column.shape:
                self.reached = column >= 0
            else:
                self.reached = self.reached | (column >= 0)
        positions = positions.clamp(0, bank.columns.shape[1] - 1)
        return source_row, bank.columns[source_row].gather(1, positions), column

    def _source_row(self, bank: Bank, batch: int) -> Tensor:
        size = len(bank.lengths)
        if self.rows is not None:
            if len(self.rows) != batch or bool((self.rows < 0).any()) or bool((self.rows >= size).any()):
                raise HeadwiseError(
                    f"rows= names a row of the source (it has {size}, counted from 0) for each row of the "
                    f"pass, of which there are {batch}; got {len(self.rows)} from {int(self.rows.min())} to "
                    f"{int(self.rows.max())}"
                )
            return self.rows
        if size not in (1, batch):
            raise HeadwiseError(
                f"a source of {size} rows met a pass of {batch}: give the same number, or one for all, or "
                "rows= with the source row of each"
            )
        return torch.arange(batch) if size == batch else torch.zeros(batch, dtype=torch.long)

    def _check_lengths(self, site: Site, lengths: Tensor, tokens: int) -> None:
        row_lengths = self.course.lengths(site.kind, tokens)
        wrong = (row_lengths != lengths) & (row_lengths > 0)  # 0: padding so far
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0, 0])
            raise HeadwiseError(
                f"row {row} has {int(row_lengths[row])} tokens, its source {int(lengths[row])}, so they "
                "cannot be patched one to one: say which belong together, tokens=[(source, target), ...], "
                "or choose some, tokens=[-1]; prompt= if the row comes in pieces"
            )

    def _pairs_of_rows(self, pairs: Tensor, site: Site, lengths: Tensor, tokens: int) -> Tensor:
        """Positions (source, target) of each row, (batch, n, 2), the source's counted from 0."""
        if pairs.shape[0] not in (1, len(lengths)):
            raise HeadwiseError(
                f"positions for {pairs.shape[0]} rows met a pass of {len(lengths)}: give them for each "
                "row, or once for all"
            )
        source, target = pairs.expand(len(lengths), -1, -1).unbind(-1)  # (batch, n) each
        counted = torch.where(source < 0, source + lengths[:, None], source)
        _check_positions("source", source, (counted < 0) | (counted >= lengths[:, None]), lengths)
        if bool((target < 0).any()):
            row_lengths = self.course.lengths(site.kind, tokens)
            before = (target < -row_lengths[:, None]) & (row_lengths[:, None] > 0)
            _check_positions("input", target, before, row_lengths)
        return torch.stack((counted, target), -1)

    def check_reached(self) -> None:
        """Raises a HeadwiseError if a position to patch never came."""
        if self.reached is None or bool(self.reached.all()) or self.pairs is None:
            return
        row, n = (~self.reached).nonzero()[0].tolist()
        position = int(self.pairs.expand(len(self.reached), -1, -1)[row, n, 1])
        raise HeadwiseError(
            f"position {position} of row {row} was never reached inside this block, so it was not patched"
        )


def _check_positions(name: str, positions: Tensor, wrong: Tensor, lengths: Tensor) -> None:
    if bool(wrong.any()):
        row, n = wrong.nonzero()[0].tolist()
        raise HeadwiseError(
            f"position {int(positions[row, n])} is not in row {row} of the {name}, which has "
            f"{int(lengths[row])} tokens"
        )


def _check_source(heads: Heads, tape: Tape) -> None:
    recorded = [(site.kind, site.n_heads, site.head_dim) for site in tape.sites]
    expected = [(site.kind, site.n_heads, site.head_dim) for site in heads.sites]
    if tape.pooling != "all" or recorded != expected:
        raise HeadwiseError(
            "a recording that serves as a source holds all tokens of this model: "
            'heads.recorded(pooling="all")'
        )


def _mask(heads: Heads, patches: Any) -> Tensor:
    """Patches as (rows or 1, layers, heads) bool."""
    if isinstance(patches, Tensor):
        mask = patches
        if mask.ndim == 2:
            mask = mask[None]
        if mask.ndim != 3 or tuple(mask.shape[1:]) != heads.shape or mask.dtype != torch.bool:
            raise HeadwiseError(
                f"a mask of patches is boolean, (rows, {heads.shape[0]}, {heads.shape[1]}) for this model; "
                f"got {tuple(patches.shape)} of {patches.dtype}"
            )
        if bool((mask.cpu() & ~heads.valid).any()):
            raise HeadwiseError(
                "this mask of patches names a head that its layer does not have: see heads.valid"
            )
        return mask.cpu()
    sets = [patches] if isinstance(patches, HeadSet) else list(patches)
    if not all(isinstance(head_set, HeadSet) for head_set in sets):
        sets = [HeadSet(patches)]  # pairs (layer, head)
    masks = [heads.check(head_set).to_mask(heads.shape) for head_set in sets]
    return torch.from_numpy(np.stack(masks))


def _pairs(tokens: Any) -> Tensor | None:
    """Positions as (rows or 1, n, 2): source, target; None: all."""
    if isinstance(tokens, str):
        if tokens not in ("all", "last"):
            raise HeadwiseError(
                'tokens are "all", "last", positions [3, -1] or pairs [(source, target), ...]; got '
                f"{tokens!r}"
            )
        if tokens == "all":
            return None
        return torch.full((1, 1, 2), -1)
    if isinstance(tokens, Mapping):
        tokens = list(tokens.items())
    try:
        table = torch.as_tensor(tokens).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise HeadwiseError(f"tokens are positions, or pairs of them; got {tokens!r}") from error
    if table.is_floating_point() or table.dtype == torch.bool or not table.numel():
        raise HeadwiseError(
            f"tokens are positions, counted from 0, negative ones from the end; got {tokens!r}"
        )
    if table.ndim == 1:
        return table[None, :, None].expand(-1, -1, 2)
    if table.ndim == 2 and isinstance(tokens, Tensor):  # (rows, n): each row its own
        return table[..., None].expand(-1, -1, 2)
    if table.ndim == 2 and table.shape[1] == 2:
        return table[None]
    if table.ndim == 3 and table.shape[2] == 2:
        return table
    raise HeadwiseError(
        f"tokens of shape {tuple(table.shape)} are neither positions (n,), positions per row as a tensor "
        "(rows, n), pairs (n, 2), nor pairs per row (rows, n, 2)"
    )
