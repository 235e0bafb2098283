"""Where the tokens of a pass stand in their sequences, also while `generate()` continues from a cache.

The *prompt* is the first pass of a sequence. A pass that continues from a cache, or whose tokens repeat those of the pass before and add
some, continues it; what it adds was *generated*. Positions count the real tokens of each row from 0, so they depend neither on padding
nor on the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.heads._sites import Site
from headwise.heads._use.positions import Pass, read_pass

ENCODER, DECODER = ("input_ids", "inputs_embeds"), ("decoder_input_ids", "decoder_inputs_embeds")


class Course:
    """The sequences of one block, followed pass by pass."""

    def __init__(self) -> None:
        self.passed = Pass()
        self.offset = 0  # columns (padding included) that come from a cache
        self._prompt: dict[tuple[str, ...], int] = {}  # columns of the prompt: of the decoder, of what else reads text
        self._before: dict[tuple[str, ...], Tensor | None] = {}  # tokens of the pass before
        self._repeated: dict[tuple[str, ...], int] = {}  # columns that repeat the pass before, where there is no cache
        self._paired = False
        self._known: dict[Any, Tensor] = {}

    def start(self, arguments: dict[str, Any]) -> None:
        """A pass begins."""
        self.passed, self._known = read_pass(arguments), {}
        cache: Any = arguments.get("past_key_values")
        self.offset = int(cache.get_seq_length()) if hasattr(cache, "get_seq_length") else 0
        self._paired = any(arguments.get(name) is not None for name in DECODER)
        for names in (ENCODER, DECODER):
            given = next((value for name in names if isinstance(value := arguments.get(name), Tensor)), None)
            if given is None:
                continue
            offset, before = self._offset(names), self._before.get(names)
            self._repeated[names] = 0
            if offset:
                self._prompt.setdefault(names, offset)  # the block was opened after the prompt
            elif before is not None and _continues(before, given):
                self._repeated[names] = before.shape[1]
            else:
                self._prompt[names] = given.shape[1]
            self._before[names] = given if given.ndim == 2 and not offset else None

    def _names(self, kind: str) -> tuple[str, ...]:
        return DECODER if self._paired and kind != "self" else ENCODER

    def _offset(self, names: tuple[str, ...]) -> int:
        return self.offset if names == (DECODER if self._paired else ENCODER) else 0

    def prompt(self, kind: str) -> int:
        """Columns of the prompt, padding included, at sites of this kind."""
        return self._prompt.get(self._names(kind), 0)

    def repeated(self, kind: str) -> int:
        """Columns of this pass that were already in the one before, because there is no cache."""
        return self._repeated.get(self._names(kind), 0)

    def positions(self, kind: str, tokens: int) -> Tensor:
        """Position of each token of the pass among the real ones of its row, (batch, tokens); -1 at padding."""
        key = "positions", kind, tokens
        if key not in self._known:
            start = self._offset(self._names(kind))
            mask = self._mask(kind, tokens)
            if mask is None:
                self._known[key] = torch.arange(start, start + tokens).expand(self._batch(), -1)
            else:
                count = mask.cumsum(1)[:, start : start + tokens] - 1
                self._known[key] = torch.where(mask[:, start : start + tokens], count, -1)
        return self._known[key]

    def lengths(self, kind: str, tokens: int) -> Tensor:
        """Real tokens of each row's prompt, (batch,)."""
        key = "lengths", kind, tokens
        if key not in self._known:
            mask, columns = self._mask(kind, tokens), self.prompt(kind) or tokens
            whole = torch.full((self._batch(),), columns)
            self._known[key] = whole if mask is None else mask[:, :columns].sum(1)
        return self._known[key]

    def generated(self, kind: str, tokens: int) -> Tensor:
        """Which tokens of the pass were generated, (tokens,) bool."""
        start = self._offset(self._names(kind))
        return torch.arange(start, start + tokens) >= (self.prompt(kind) or tokens)

    def columns(self, kind: str, tokens: int, wanted: Tensor) -> Tensor:
        """Columns of this pass where the positions `wanted` (batch or 1, n) of each row stand, (batch, n); -1 where they do not.

        Negative positions count from the end of the prompt.
        """
        wanted = wanted.expand(self._batch(), -1)
        wanted = torch.where(wanted < 0, wanted + self.lengths(kind, tokens)[:, None], wanted)
        wanted = wanted.where(wanted >= 0, -2)  # padding is -1
        found = self.positions(kind, tokens)[:, None] == wanted[..., None]  # (batch, n, tokens)
        return torch.where(found.any(-1), found.int().argmax(-1), -1)

    def chosen(self, which: str, kind: str, tokens: int) -> Tensor:
        """Tokens of this pass that are "all", "last" or "generated", (batch, tokens) bool; padding is none of them.

        "last": the last real token of the prompt, and every generated one.
        """
        key = which, kind, tokens
        if key not in self._known:
            places = self.positions(kind, tokens)
            made = self.generated(kind, tokens) & (places >= 0)
            last = places == self.lengths(kind, tokens)[:, None] - 1
            self._known[key] = places >= 0 if which == "all" else made | last if which == "last" else made
        return self._known[key]

    def _batch(self) -> int:
        if self.passed.batch is None:
            raise HeadwiseError("cannot determine the batch size of this pass: give its inputs as tensors (batch, ...)")
        return self.passed.batch

    def _mask(self, kind: str, tokens: int) -> Tensor | None:
        """Real tokens of all columns so far, (batch, columns) bool; None if all are real."""
        key = "mask", kind, tokens
        mask: Any = self.passed.masks.get(kind)
        if mask is None:
            return None
        if key not in self._known:
            columns = self._offset(self._names(kind)) + tokens
            if not isinstance(mask, Tensor) or mask.ndim != 2 or mask.shape[1] < columns:
                shape = f"of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else f"that is a {type(mask).__name__}"
                raise HeadwiseError(
                    f"an attention mask {shape} does not say which of {columns} tokens are real: pass one of (batch, tokens), earlier "
                    "tokens included (generate() does so with its default, dynamic cache)"
                )
            self._known[key] = mask[:, :columns].bool().cpu()
        return self._known[key]


def _continues(before: Tensor, ids: Tensor) -> bool:
    """Whether tokens (batch, tokens) repeat those of the pass before, and add some."""
    if ids.ndim != 2 or ids.shape[0] != before.shape[0] or ids.shape[1] <= before.shape[1]:
        return False
    return torch.equal(ids[:, : before.shape[1]], before)


def with_rows(site: Site, x: Tensor, rows: Tensor) -> Tensor:
    """The input of a projection with its heads replaced by `rows` (batch, tokens, heads, head_dim), as `Pass.rows` gave them."""
    whole = rows.flatten(2)  # (batch, tokens, width)
    shape = x.shape if site.batch_first else (x.shape[1], x.shape[0], x.shape[2])
    if site.rest:
        rest = (x if site.batch_first else x.transpose(0, 1))[..., site.width :]
        whole = torch.cat((whole, rest.reshape(*whole.shape[:2], site.rest)), -1)
    whole = whole.reshape(shape)
    return whole if site.batch_first else whole.transpose(0, 1)
