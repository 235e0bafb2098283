"""Where the tokens of a pass stand in their sequences, also where a cache holds those before them.

The *prompt* of `generate()` is what it was called with; what follows was *generated*, whatever passes either
comes in. Outside `generate()` a pass without a cache is a prompt of its own, and where a pass continues from
one, only the caller knows. Positions count the real tokens of each row from 0, so they depend neither on
padding nor on the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads._inputs import root_of
from headwise.heads._sites import Site
from headwise.heads._use.generation import Generation, generation_of
from headwise.heads._use.positions import Pass, cached_columns, read_pass

ENCODER, DECODER = ("input_ids", "inputs_embeds"), ("decoder_input_ids", "decoder_inputs_embeds")
# A memory without a length, or texts run together
UNPLACED = ("mems", "cache_params", "state", "cu_seq_lens_q")


class Course:
    """The sequences of one block, followed pass by pass.

    Args:
        model: whose passes they are.
        prompt: columns of the prompt, padding included, in passes outside `generate()`; None: it is not said.
    """

    def __init__(self, model: nn.Module, prompt: int | None = None) -> None:
        if prompt is not None and (isinstance(prompt, bool) or not isinstance(prompt, int) or prompt < 1):
            raise HeadwiseError(
                f"prompt is the number of tokens of the prompt, padding included: at least 1; got {prompt!r}"
            )
        self.root: Any = root_of(model)
        self.passed = Pass()
        self.cache: Any = None
        self.offset = 0  # columns (padding included) that come from a cache
        self.generation: Generation | None = None  # the call of generate() that the pass belongs to
        self._given_prompt = prompt
        # Columns of the prompt: of the decoder, of what else reads text
        self._prompt: dict[tuple[str, ...], int | None] = {}
        self._before: dict[tuple[str, ...], Tensor | None] = {}  # tokens of the pass before
        # Columns that repeat the pass before, where there is no cache
        self._repeated: dict[tuple[str, ...], int] = {}
        self._lengths: dict[str, Tensor] = {}  # real tokens of each row's prompt, as the pass before had them
        self._paired = False
        self._remembered: dict[Any, Tensor] = {}

    def start(self, arguments: dict[str, Any]) -> None:
        """A pass begins.

        Raises:
            HeadwiseError: its arguments do not say where its tokens stand.
        """
        unplaced = [name for name in UNPLACED if arguments.get(name) is not None]
        if unplaced:
            raise HeadwiseError(
                f"a pass with {unplaced[0]}= does not say where its tokens stand: run each text whole, in a "
                "pass of its own"
            )
        self.passed, self._remembered = read_pass(arguments), {}
        self.cache = arguments.get("past_key_values")
        self.offset = cached_columns(self.cache)
        generation = generation_of(self.root)
        if generation is None or generation is not self.generation:
            self._prompt, self._before = {}, {}
        if generation is not self.generation or not self.offset:
            self._lengths = {}
        self.generation = generation
        self._paired = any(arguments.get(name) is not None for name in DECODER)
        for names in (ENCODER, DECODER):
            tensors = [value for value in map(arguments.get, names) if isinstance(value, Tensor)]
            if not tensors:
                continue
            tokens, before = tensors[0], self._before.get(names)
            self._repeated[names] = 0
            if before is not None and _continues(before, tokens):
                self._repeated[names] = before.shape[1]
            self._prompt[names] = self._prompt_columns(names, tokens)
            self._before[names] = None
            if generation is not None and tokens.ndim == 2 and not self._offset(names):
                self._before[names] = tokens

    def _prompt_columns(self, names: tuple[str, ...], tokens: Tensor) -> int | None:
        """Columns of the prompt; None if only the caller knows, and did not say."""
        offset = self._offset(names)
        if names == ENCODER and self.root.config.is_encoder_decoder:
            return tokens.shape[1]
        if self.generation is None:
            if self._given_prompt is None and not offset:
                return tokens.shape[1]
            return self._given_prompt
        continues = bool(offset or self._repeated[names] or self.generation.prompt is not None)
        if names in self._prompt and continues:
            return self._prompt[names]
        return self.generation.prompt_of(tokens, offset)

    def _names(self, kind: str) -> tuple[str, ...]:
        return DECODER if self._paired and kind != "self" else ENCODER

    def _offset(self, names: tuple[str, ...]) -> int:
        return self.offset if names == self._names("decoder") else 0

    def prompt(self, kind: str, tokens: int) -> int:
        """Columns of the prompt, padding included, at sites of this kind.

        Raises:
            HeadwiseError: nothing says where it ends.
        """
        columns = self._prompt.get(self._names(kind), tokens)  # where no text is read, all is
        if self.generation is not None and self.generation.hidden:
            raise HeadwiseError(
                f"where the prompt ends is unknown: {self.generation.hidden}. Generate without it, or choose "
                'tokens="all"'
            )
        if columns is None:
            raise HeadwiseError(
                f"this pass continues from a cache of {self.offset} tokens outside generate(), so where the "
                "prompt ends is unknown: say so with prompt=, the number of its tokens with padding, or "
                "call generate() of the model that Heads was built on"
            )
        return columns

    def earlier(self, kind: str) -> int:
        """Columns before this pass, which come from a cache."""
        return self._offset(self._names(kind))

    def repeated(self, kind: str) -> int:
        """Columns of this pass that were already in the one before, because there is no cache."""
        return self._repeated.get(self._names(kind), 0)

    def positions(self, kind: str, tokens: int) -> Tensor:
        """Position of each token of the pass among the real ones of its row, (batch, tokens); padding: -1."""
        key = "positions", kind, tokens
        if key not in self._remembered:
            start = self.earlier(kind)
            mask = self._mask(kind, tokens)
            if mask is None:
                self._remembered[key] = torch.arange(start, start + tokens).expand(self.batch(), -1)
            else:
                count = mask.cumsum(1)[:, start : start + tokens] - 1
                self._remembered[key] = torch.where(mask[:, start : start + tokens], count, -1)
        return self._remembered[key]

    def lengths(self, kind: str, tokens: int) -> Tensor:
        """Real tokens of each row's prompt, (batch,); those still to come count as real, 0 where none has
        come yet.

        Raises:
            HeadwiseError: nothing says where the prompt ends, or tokens that came later were padding.
        """
        key = "lengths", kind, tokens
        if key not in self._remembered:
            lengths = self._prompt_mask(kind, tokens).sum(1)
            earlier = self._lengths.get(kind, torch.zeros_like(lengths))
            if earlier.shape != lengths.shape:
                earlier = torch.zeros_like(lengths)
            changed = (earlier != lengths) & (earlier > 0)
            if bool(changed.any()):
                raise HeadwiseError(
                    f"row {int(changed.nonzero()[0, 0])} of a prompt that comes in pieces has padding after "
                    "its text, so its last token was not known in time: pad on the left, or run the prompt "
                    "in one pass"
                )
            self._remembered[key] = self._lengths[kind] = lengths
        return self._remembered[key]

    def _prompt_mask(self, kind: str, tokens: int) -> Tensor:
        """Real tokens of the whole prompt, (batch, columns) bool; of a row that has begun, those still to
        come are."""
        columns = self.prompt(kind, tokens)
        generated_side = self._names(kind) == DECODER or not self.root.config.is_encoder_decoder
        if self.generation is not None and generated_side:
            real = self.generation.real(self.batch(), columns)
            if real is not None:
                return real
        mask = self._mask(kind, tokens)
        if mask is None:
            return torch.ones(self.batch(), columns, dtype=torch.bool)
        mask = mask[:, :columns]
        return torch.cat((mask, mask.any(1, keepdim=True).expand(-1, columns - mask.shape[1])), 1)

    def generated(self, kind: str, tokens: int) -> Tensor:
        """Which tokens of the pass were generated, (tokens,) bool."""
        start = self.earlier(kind)
        return torch.arange(start, start + tokens) >= self.prompt(kind, tokens)

    def columns(self, kind: str, tokens: int, positions: Tensor) -> Tensor:
        """Columns of this pass where `positions` (batch or 1, n) of each row stand, (batch, n); -1
        where they do not.

        Negative positions count from the end of the prompt.
        """
        positions = positions.expand(self.batch(), -1)
        if bool((positions < 0).any()):
            from_end = positions + self.lengths(kind, tokens)[:, None]
            positions = torch.where(positions < 0, from_end, positions)
        positions = positions.where(positions >= 0, -2)  # padding is -1
        stands = self.positions(kind, tokens)[:, None] == positions[..., None]  # (batch, n, tokens)
        return torch.where(stands.any(-1), stands.int().argmax(-1), -1)

    def selected(self, which: str, kind: str, tokens: int) -> Tensor:
        """Tokens of this pass that are "last" or "generated", (batch, tokens) bool; padding is neither.

        "last": the last real token of the prompt, and every generated one.
        """
        key = which, kind, tokens
        if key not in self._remembered:
            positions = self.positions(kind, tokens)
            selected = self.generated(kind, tokens) & (positions >= 0)
            last = positions == self.lengths(kind, tokens)[:, None] - 1
            self._remembered[key] = selected | last if which == "last" else selected
        return self._remembered[key]

    def batch(self) -> int:
        """Rows of the pass."""
        if self.passed.batch is None:
            raise HeadwiseError(
                "cannot determine the batch size of this pass: give its inputs as tensors (batch, ...)"
            )
        return self.passed.batch

    def _mask(self, kind: str, tokens: int) -> Tensor | None:
        """Real tokens of all columns so far, (batch, columns) bool; None if all are real."""
        mask: Any = self.passed.masks.get(kind)
        if mask is None:
            return None
        key = "mask", kind, tokens
        if key not in self._remembered:
            columns = self.earlier(kind) + tokens
            readable = isinstance(mask, Tensor) and mask.ndim == 2
            if readable and kind == "cross" and not self._paired and mask.shape[1] != columns:
                return None  # latents that read the input are all real
            if readable and (
                mask.shape[1] == columns or (self.cache is not None and mask.shape[1] > columns)
            ):
                self._remembered[key] = mask[:, :columns].bool().cpu()
            else:  # a static cache comes with masks per kind of layer
                real = None
                if self.generation is not None and not readable:
                    real = self.generation.real(self.batch(), columns)
                if real is None:
                    raise _unreadable(mask, columns)
                self._remembered[key] = real
        return self._remembered[key]


def _unreadable(mask: Any, columns: int) -> HeadwiseError:
    form = f"of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else f"that is a {type(mask).__name__}"
    return HeadwiseError(
        f"an attention mask {form} does not say which of {columns} tokens are real: pass one of (batch, "
        "tokens), earlier tokens included, or give it to generate() as attention_mask="
    )


def _continues(before: Tensor, ids: Tensor) -> bool:
    """Whether tokens (batch, tokens) repeat those of the pass before, and add some."""
    if ids.ndim != 2 or ids.shape[0] != before.shape[0] or ids.shape[1] <= before.shape[1]:
        return False
    return torch.equal(ids[:, : before.shape[1]], before)


def with_rows(site: Site, x: Tensor, rows: Tensor) -> Tensor:
    """The input of a projection with its heads replaced by `rows` (batch, tokens, heads, head_dim), as
    `Pass.rows` gave them."""
    columns = rows.flatten(2)  # (batch, tokens, width)
    if not site.batch_first:
        x = x.transpose(0, 1)
    if site.rest:
        beyond = x[..., site.width :].reshape(*columns.shape[:2], site.rest)
        columns = torch.cat((columns, beyond), -1)
    columns = columns.reshape(x.shape)
    return columns if site.batch_first else columns.transpose(0, 1)
