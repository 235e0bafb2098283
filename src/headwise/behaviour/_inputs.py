"""What a model reads while its heads are watched: batches of tokens, random ones or those of texts."""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from inspect import signature
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise.behaviour._patterns import Tokens
from headwise.errors import HeadwiseError
from headwise.heads import device_of, root_of
from headwise.models import check_tokens, check_without_soft_prompt, most_tokens, padding_side


@dataclass(frozen=True)
class Reading:
    """One batch.

    Attributes:
        inputs: keyword arguments of the model.
        tokens: those of `input_ids`.
        decoder_tokens: those of `decoder_input_ids`; None in a model that is not an encoder-decoder.
    """

    inputs: dict[str, Any]
    tokens: Tokens
    decoder_tokens: Tokens | None = None

    def queries_and_keys(self, kind: str) -> tuple[Tokens, Tokens]:
        """Tokens of queries and of keys at sites of this kind."""
        if kind == "self" or self.decoder_tokens is None:
            return self.tokens, self.tokens
        if kind == "cross":
            return self.decoder_tokens, self.tokens
        return self.decoder_tokens, self.decoder_tokens


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
        self.accepted = signature(root.forward).parameters
        self.encoder_decoder = bool(root.config.is_encoder_decoder)
        if "input_ids" not in self.accepted:
            raise HeadwiseError(
                f"{type(root).__name__} does not read tokens, and roles are those of heads that do"
            )
        self.limit = most_tokens(root)
        self.special = {int(token) for token in tokenizer.all_special_ids}
        self.before, self.after = _special_tokens_around(tokenizer)
        begin = tokenizer.bos_token_id
        if not self.before and begin is not None and not self.encoder_decoder:
            self.before = [int(begin)]  # as TransformerLens does, whose scores these are
        self.pad = int(tokenizer.pad_token_id or 0)

    def repeated_rows(self, sequences: int, length: int, seed: int) -> list[list[int]]:
        """Sequences of random tokens that come twice, between the tokenizer's special tokens."""
        around = len(self.before) + len(self.after)
        if self.limit is not None:
            room = self.limit - self.encoder_decoder - around
            if 2 * length > room:
                raise HeadwiseError(
                    f"repeated={length}: the model reads at most {self.limit} tokens; give at most "
                    f"{room // 2}"
                )
        halves = self.random_rows(sequences, length, seed)
        return [[*self.before, *half, *half, *self.after] for half in halves]

    def random_rows(self, sequences: int, length: int, seed: int) -> list[list[int]]:
        """Random tokens that are not special, without repeats in a sequence if there are enough."""
        size = min(len(self.tokenizer), self.root.get_input_embeddings().num_embeddings)
        usable = np.array([token for token in range(size) if token not in self.special])
        rng = np.random.default_rng(seed)
        return [rng.choice(usable, length, replace=len(usable) < length).tolist() for _ in range(sequences)]

    def text_rows(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Texts as tokens, cut at `max_length` or at what the model reads; texts of one token are left
        out."""
        limit = max_length
        if self.limit is not None:
            limit = min(max_length, self.limit - self.encoder_decoder)
        room = limit - len(self.before) - len(self.after)
        if room < 1:
            raise HeadwiseError(f"max_length={max_length} leaves no room for text next to the special tokens")
        encoded = self.tokenizer(list(texts), add_special_tokens=False, truncation=True, max_length=room)
        rows = [[*self.before, *ids, *self.after] for ids in encoded["input_ids"] if ids]
        return [row for row in rows if len(row) > 1]

    def check(self, texts: Sequence[str], name: str) -> None:
        """Raises a HeadwiseError if the tokenizer does not fit the model, or knows next to nothing of the
        texts."""
        rows = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        check_tokens(self.root, self.tokenizer, list(chain.from_iterable(rows)), name)

    def batches(self, rows: Sequence[Sequence[int]], size: int) -> Iterator[Reading]:
        """Rows of tokens as batches, padded on the tokenizer's side, with their delimiters and rarest
        tokens."""
        counts = Counter(chain.from_iterable(rows))
        delimiters = {token for token in counts if self._delimits(token)}
        for start in range(0, len(rows), size):
            batch = rows[start : start + size]
            rare = []
            for row in batch:
                ordinary = {token: counts[token] for token in row if token not in self.special}
                rarest = min(ordinary.values(), default=0)
                rare.append({token for token, count in ordinary.items() if count == rarest})
            yield self.batch(batch, delimiters, rare)

    def batch(
        self,
        rows: Sequence[Sequence[int]],
        delimiters: Set[int] = frozenset(),
        rare: Sequence[Set[int]] | None = None,
    ) -> Reading:
        """One batch of rows of tokens.

        Args:
            rows: of tokens.
            delimiters: the tokens that are.
            rare: of each row its rarest tokens; default: none.
        """
        left = padding_side(self.root, self.tokenizer) == "left"
        ids, real = padded(rows, self.pad, left)
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": real.long()}
        if left and "position_ids" in self.accepted:
            inputs["position_ids"] = (real.cumsum(1) - 1).clamp(min=0)
        decoder_tokens = None
        if self.encoder_decoder:
            started = [[self._decoder_start(), *row] for row in rows]
            decoder_ids, decoder_real = padded(started, self.pad, False)
            inputs |= {"decoder_input_ids": decoder_ids, "decoder_attention_mask": decoder_real.long()}
            decoder_tokens = self._tokens(decoder_ids, decoder_real, delimiters, rare)
        inputs = {name: values.to(self.device) for name, values in inputs.items()}
        if "use_cache" in self.accepted:
            inputs["use_cache"] = False
        return Reading(inputs, self._tokens(ids, real, delimiters, rare), decoder_tokens)

    def _tokens(
        self, ids: Tensor, real: Tensor, delimiters: Set[int], rare: Sequence[Set[int]] | None
    ) -> Tokens:
        delimiting, scarce = torch.zeros_like(real), torch.zeros_like(real)
        for number, row in enumerate(ids.tolist()):
            delimiting[number] = torch.tensor([token in delimiters for token in row])
            if rare is not None:
                scarce[number] = torch.tensor([token in rare[number] for token in row])
        delimiting[torch.arange(len(ids)), real.int().argmax(1)] = False  # the first token is none
        return Tokens(ids, real, delimiting & real, scarce & real).to(self.device)

    def _decoder_start(self) -> int:
        """The token a decoder begins with."""
        for config in (self.root.config, getattr(self.root, "generation_config", None)):
            token = getattr(config, "decoder_start_token_id", None)
            if token is not None:
                return int(token)
        return self.pad

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
        columns = slice(width - len(row), None) if left else slice(len(row))
        ids[number, columns], real[number, columns] = torch.tensor(list(row)), True
    return ids, real


def _special_tokens_around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Special tokens that the tokenizer puts before and after a text."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
    if 0 not in special:
        return [], []
    first, last = special.index(0), len(special) - 1 - special[::-1].index(0)
    return list(ids[:first]), list(ids[last + 1 :])
