"""What a model reads while its heads are watched: repeated random tokens, and texts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise.behaviour._patterns import Tokens
from headwise.errors import HeadwiseError
from headwise.heads import device_of, root_of
from headwise.models import check_tokens, check_without_soft_prompt, most_tokens


@dataclass(frozen=True)
class Reading:
    """One batch.

    Attributes:
        inputs: keyword arguments of the model.
        own: the tokens of `input_ids`.
        decoder: those of `decoder_input_ids`; None where there is no decoder of its own.
    """

    inputs: dict[str, Any]
    own: Tokens
    decoder: Tokens | None = None

    def of(self, kind: str) -> tuple[Tokens, Tokens]:
        """Tokens of queries and of keys at sites of this kind."""
        if kind == "self" or self.decoder is None:
            return self.own, self.own
        return self.decoder, self.own if kind == "cross" else self.decoder


class Reader:
    """Makes batches for one model.

    Args:
        model: a transformers model that reads text.
        tokenizer: its tokenizer.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        root: Any = root_of(model)
        check_without_soft_prompt(model, "the roles of heads")
        self.root = root
        self.tokenizer = tokenizer
        self.device = device_of(model)
        self.accepted = signature(self.root.forward).parameters
        self.paired = bool(root.config.is_encoder_decoder)
        if "input_ids" not in self.accepted:
            raise HeadwiseError(
                f"{type(self.root).__name__} does not read tokens, and roles are those of heads that do"
            )
        self.limit = most_tokens(self.root)
        self.special = {int(token) for token in tokenizer.all_special_ids}
        before, after = _around(tokenizer)
        begin = tokenizer.bos_token_id
        if not before and begin is not None and not self.paired:
            before = [int(begin)]  # as TransformerLens does, whose scores these are
        self.before, self.after = before, after

    def random(self, sequences: int, length: int, seed: int) -> list[list[int]]:
        """Sequences of random tokens that come twice, between the tokenizer's special tokens."""
        around = len(self.before) + len(self.after)
        if self.limit is not None and 2 * length + around > self.limit - self.paired:
            raise HeadwiseError(
                f"repeated={length}: the model reads at most {self.limit} tokens; give at most {(self.limit - self.paired - around) // 2}"
            )
        return [[*self.before, *half, *half, *self.after] for half in self.drawn(sequences, length, seed)]

    def drawn(self, sequences: int, length: int, seed: int) -> list[list[int]]:
        """Random tokens that are not special, without repeats in a sequence if there are enough."""
        size = min(len(self.tokenizer), self.root.get_input_embeddings().num_embeddings)
        usable = np.array([token for token in range(size) if token not in self.special])
        rng = np.random.default_rng(seed)
        return [rng.choice(usable, length, replace=len(usable) < length).tolist() for _ in range(sequences)]

    def texts(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Texts as tokens, cut at `max_length` tokens or at what the model reads; those of a single token are left out."""
        limit = min(max_length, self.limit - self.paired if self.limit is not None else max_length)
        room = limit - len(self.before) - len(self.after)
        if room < 1:
            raise HeadwiseError(f"max_length={max_length} leaves no room for text next to the special tokens")
        found = self.tokenizer(list(texts), add_special_tokens=False, truncation=True, max_length=room)[
            "input_ids"
        ]
        rows = [[*self.before, *row, *self.after] for row in found if row]
        return [row for row in rows if len(row) > 1]

    def check(self, texts: Sequence[str], what: str) -> None:
        """Raises a HeadwiseError if the tokenizer does not fit the model, or knows next to nothing of the texts; `what` they are."""
        found = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        check_tokens(self.root, self.tokenizer, [token for row in found for token in row], what)

    def batches(self, rows: Sequence[Sequence[int]], size: int) -> Iterator[Reading]:
        """Rows of tokens as batches, padded on the tokenizer's side."""
        counts = Counter(token for row in rows for token in row)
        rarest = [
            min((counts[token] for token in row if token not in self.special), default=0) for row in rows
        ]
        dots = {token: self._delimits(token) for token in counts}
        for start in range(0, len(rows), size):
            chosen, least = list(rows[start : start + size]), rarest[start : start + size]

            def marked(ids: Tensor, real: Tensor, rare: list[int] = least) -> Tokens:
                delimits = torch.tensor([[dots.get(token, True) for token in row] for row in ids.tolist()])
                delimits[torch.arange(len(ids)), real.int().argmax(1)] = False
                scarce = torch.tensor(
                    [
                        [token not in self.special and counts[token] == low for token in row]
                        for row, low in zip(ids.tolist(), rare, strict=True)
                    ]
                )
                return Tokens(ids, real, delimits & real, scarce & real)

            yield self.batch(chosen, marked)

    def batch(self, rows: list[Sequence[int]], marked: Any = None) -> Reading:
        """One batch of rows of tokens."""
        left = self.tokenizer.padding_side == "left" and not self.paired
        ids, real = padded(rows, self.pad, left)
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": real.long()}
        if left and "position_ids" in self.accepted:
            inputs["position_ids"] = (real.cumsum(1) - 1).clamp(min=0)
        if "use_cache" in self.accepted:
            inputs["use_cache"] = False
        make = marked or (lambda ids, real: Tokens(ids, real, torch.zeros_like(real), torch.zeros_like(real)))
        decoder = None
        if self.paired:
            decoder_ids, decoder_real = padded([[self.start, *row] for row in rows], self.pad, False)
            inputs |= {"decoder_input_ids": decoder_ids, "decoder_attention_mask": decoder_real.long()}
            decoder = make(decoder_ids, decoder_real).to(self.device)
        moved = {
            name: value.to(self.device) if isinstance(value, Tensor) else value
            for name, value in inputs.items()
        }
        return Reading(moved, make(ids, real).to(self.device), decoder)

    @property
    def start(self) -> int:
        """The token a decoder begins with."""
        named = [
            getattr(place, "decoder_start_token_id", None)
            for place in (self.root.config, getattr(self.root, "generation_config", None))
        ]
        return next((int(token) for token in named if token is not None), self.pad)

    @property
    def pad(self) -> int:
        """What fills rows up."""
        found = self.tokenizer.pad_token_id
        return int(found) if found is not None else 0

    def _delimits(self, token: int) -> bool:
        """Whether a token is special, or nothing but punctuation."""
        if token in self.special:
            return True
        text = self.tokenizer.decode([token]).strip()
        return bool(text) and not any(char.isalnum() or char == "\ufffd" for char in text)


def padded(rows: Sequence[Sequence[int]], pad: int, left: bool) -> tuple[Tensor, Tensor]:
    """Rows of tokens as (rows, tokens), and which of them are real."""
    width = max(map(len, rows))
    ids, real = torch.full((len(rows), width), pad), torch.zeros(len(rows), width, dtype=torch.bool)
    for number, row in enumerate(rows):
        place = slice(width - len(row), None) if left else slice(len(row))
        ids[number, place], real[number, place] = torch.tensor(list(row)), True
    return ids, real


def _around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Special tokens that the tokenizer puts before and after a text."""
    out = tokenizer("a", return_special_tokens_mask=True)
    mask, ids = out["special_tokens_mask"], out["input_ids"]
    text = [place for place, special in enumerate(mask) if not special]
    if not text:
        return [], []
    return list(ids[: text[0]]), list(ids[text[-1] + 1 :])
