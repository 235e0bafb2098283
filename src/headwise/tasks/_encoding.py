"""Texts as token numbers, made once: flat arrays from which batches are cut.

A row is one sequence the model reads. A text (or pair) is one row; a minimal pair is two rows, good then bad; a contrast
two, clean then corrupted; a long sentence of a
word-level task, or a long raw text, is several rows (windows). Rows of one example stay together in a batch.
"""

import hashlib
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise._base.memory import release
from headwise.errors import HeadwiseError
from headwise.store import tokenizer_choices, tokenizer_state
from headwise.tasks._bytes import sized_row
from headwise.tasks._contrasts import contrast_rows
from headwise.tasks._examples import Examples
from headwise.tasks._kept import KEPT, folder_for, keep, recalled
from headwise.tasks._kinds import KINDS
from headwise.tasks._texts import FEW

CHUNK = 1000  # texts handed to the tokenizer at once: its output is Python lists, which should not pile up
FIELDS = {
    "ids": "input_ids",
    "types": "token_type_ids",
    "special": "special_tokens_mask",
}  # our names and the tokenizer's
_fingerprints: dict[bytes, str] = {}  # of tokenizers, by what they write of themselves


@dataclass(frozen=True, eq=False)
class Encoded:
    """Tokenised examples. Arrays are flat over all rows; row r is `ids[starts[r]:starts[r + 1]]`.

    Attributes:
        examples: what was encoded; labels are taken from here.
        ids: (tokens,) token numbers, special tokens included, no padding.
        starts: (rows + 1,) where rows begin in `ids`.
        rows: (examples + 1,) example i has the rows rows[i] to rows[i + 1].
        types: (tokens,) token types, where the tokenizer gives them.
        special: (tokens,) 1 at tokens the tokenizer added; word and token kinds and minimal pairs only.
        words: (tokens,) number of the word a token belongs to, if this row owns the word, else -1; word kinds only.
        context_words: (tokens,) the same for every word in the row, owned or not: a long sentence's windows overlap, and a word is
            owned by the one window where it has the most context.
        max_length: rows are no longer than this.
        pad, pad_type, mask: token numbers for padding, its token type, and masking (-1: the tokenizer has no mask token).
        vocabulary: number of token numbers.
        sizes: (tokens,) bytes of text each token stands for, 0 at special ones; token kinds with a fast tokenizer only.
        answers: (examples, 2) first tokens of the right answer and of the other one; contrasts only.
        left: whether padding goes to the left.
    """

    examples: Examples
    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    rows: NDArray[np.int64]
    types: NDArray[np.int32] | None
    special: NDArray[np.int32] | None
    words: NDArray[np.int32] | None
    context_words: NDArray[np.int32] | None
    max_length: int | None
    pad: int
    pad_type: int
    mask: int
    vocabulary: int
    left: bool
    sizes: NDArray[np.int32] | None = None
    answers: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def row_lengths(self) -> NDArray[np.int64]:
        """Tokens of every row, (rows,)."""
        return np.diff(self.starts)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of every example's longest row, (examples,)."""
        return np.maximum.reduceat(self.row_lengths, self.rows[:-1]) if len(self) else np.zeros(0, np.int64)

    @cached_property
    def needs(self) -> NDArray[np.int64] | None:
        """Words, label rows, and rows of the kind's first class and of others (where it has one), (examples, 4); word kinds only."""
        sentences, labels, kind = self.examples.sentences, self.examples.labels, KINDS[self.examples.kind]
        if self.words is None or sentences is None or not isinstance(labels, list):
            return None
        rows = np.array([len(part) for part in labels], dtype=np.int64)
        first = np.array(
            [int((part[:, kind.place] == 0).sum()) if kind.first else 0 for part in labels], dtype=np.int64
        )
        others = rows - first if kind.first else np.zeros_like(rows)
        return np.stack(
            [np.array([len(sentence) for sentence in sentences], dtype=np.int64), rows, first, others], 1
        )

    @cached_property
    def trees(self) -> dict[int, NDArray[np.int64]]:
        """Gold trees made binary, by example: made when a batch first asks, kept for the next pass."""
        return {}


def encode(
    examples: Examples,
    tokenizer: Any,
    max_length: int | None = None,
    *,
    windows: bool | None = None,
    cache: str | Path | None = None,
    remember: bool = True,
) -> Encoded:
    """Tokenises examples, in batches, once: the same content, tokenizer and settings come from memory the next time.

    Pairs are truncated longest-first. Word kinds tokenise the words joined by single spaces and map tokens to words by character
    position, which gives the tokens of natural text with any fast tokenizer; a word the tokenizer drops (control characters) is
    read as its unknown token. Long sentences become overlapping windows; long raw texts consecutive ones.

    Args:
        examples: one split of a task, or a subset.
        tokenizer: a Hugging Face tokenizer.
        max_length: tokens a row may have, special ones included; default: the tokenizer's own limit, if it states one.
        windows: False truncates long texts instead of making windows; default: windows for word and token kinds.
        cache: a folder; encodings are kept there by content hash (safetensors) and found again by later processes. Default: `tokens` in
            the cache folder ($HEADWISE_CACHE), for 1,000 examples and more.
        remember: False where a stream is tokenised piece by piece and no piece is asked for again: the tokens go when they are used.

    Raises:
        HeadwiseError: max_length leaves no room, or a word-level task meets a tokenizer that is not a fast one.
    """
    reads = KINDS[examples.kind].reads
    limit = max_length if max_length is not None else own_limit(tokenizer)
    room = (
        None
        if limit is None
        else limit - tokenizer.num_special_tokens_to_add(pair=examples.pairs and reads != "pair")
    )
    if room is not None and room < 1:
        raise HeadwiseError(
            f"max_length={limit} leaves no room for text next to the special tokens; give at least {limit - room + 1}"
        )
    split = windows if windows is not None else reads in ("words", "tokens")
    key = _key(examples, tokenizer, limit, split)
    folder = (
        Path(cache)
        if cache is not None
        else folder_for(len(examples))
        if remember and tokenizer.is_fast
        else None
    )
    arrays = recalled(key, folder)
    if arrays is None:
        from headwise.tasks import _windows as making

        if reads == "words":
            arrays = making.word_rows(examples, tokenizer, room, split)
        elif reads == "contrast":
            arrays = contrast_rows(examples, tokenizer, limit)
        elif split and limit is not None:
            arrays = making.text_rows(examples, tokenizer, limit, room)
        else:
            arrays = _plain_rows(examples, tokenizer, limit)
        release(len(examples) > FEW)
        if remember:
            keep(key, arrays, folder)
    fields = {
        name: arrays.get(name) for name in ("types", "special", "words", "context_words", "sizes", "answers")
    }
    return Encoded(
        examples,
        ids=arrays["ids"],
        starts=arrays["starts"],
        rows=arrays["rows"],
        **fields,
        max_length=limit,
        pad=_pad_token(tokenizer),
        pad_type=tokenizer.pad_token_type_id,
        mask=-1 if tokenizer.mask_token_id is None else tokenizer.mask_token_id,
        vocabulary=len(tokenizer),
        left=tokenizer.padding_side == "left",
    )


def own_limit(tokenizer: Any) -> int | None:
    """Tokens that a tokenizer says a row may have; None: it does not say (it states 1e30)."""
    return int(tokenizer.model_max_length) if tokenizer.model_max_length < 1_000_000 else None


def _pad_token(tokenizer: Any) -> int:
    """What fills the padding. Its value never reaches a result (the attention mask hides it), so that any token will do."""
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0


def _plain_rows(examples: Examples, tokenizer: Any, limit: int | None) -> dict[str, NDArray[Any]]:
    """One row per text or pair; two per minimal pair."""
    minimal, running = (KINDS[examples.kind].reads == reads for reads in ("pair", "tokens"))
    with_special = minimal or running
    sized = running and tokenizer.is_fast
    columns = {"ids": array("i")}
    lengths = array("q", [0])
    for i in range(0, len(examples), CHUNK):
        texts: Sequence[tuple[str, ...]] = examples.texts[i : i + CHUNK]
        if minimal:
            texts = [(side,) for text in texts for side in text]
        out = _call(tokenizer, texts, limit, with_special, sized)
        if sized:
            whole = zip(texts, out["offset_mapping"], out["special_tokens_mask"], strict=True)
            columns.setdefault("sizes", array("i")).extend(
                size for text, spans, special in whole for size in sized_row(text[0], spans, special)
            )
        lengths.extend(map(len, out["input_ids"]))
        for name, theirs in FIELDS.items():
            if (
                theirs in out
            ):  # arrays that grow in place: chunks kept to be joined would take twice the memory
                columns.setdefault(name, array("i")).extend(chain.from_iterable(out[theirs]))
    arrays: dict[str, NDArray[Any]] = {name: np.asarray(column) for name, column in columns.items()}
    arrays["starts"] = np.cumsum(np.asarray(lengths))
    per = 2 if minimal else 1
    return {**arrays, "rows": np.arange(len(examples) + 1, dtype=np.int64) * per}


def _call(
    tokenizer: Any, texts: Sequence[tuple[str, ...]], limit: int | None, special: bool, sized: bool = False
) -> Any:
    pairs = bool(texts) and len(texts[0]) == 2
    return tokenizer(
        [text[0] for text in texts],
        [text[1] for text in texts] if pairs else None,
        truncation="longest_first" if limit is not None else False,
        max_length=limit,
        padding=False,
        return_attention_mask=False,
        return_special_tokens_mask=special,
        return_offsets_mapping=sized,
        verbose=False,
    )


def _key(examples: Examples, tokenizer: Any, limit: int | None, split: bool) -> str:
    from tokenizers import __version__ as tokenizers

    parts = [
        "3",
        tokenizers,
        examples.text_fingerprint,
        tokenizer_fingerprint(tokenizer),
        str(limit),
        str(split),
    ]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """A hash of all that decides what a tokenizer makes of a text; its passing state (truncation, padding) is left aside."""
    if not tokenizer.is_fast:
        return _hash(tokenizer_state(tokenizer))
    written = tokenizer.backend_tokenizer.to_str()
    seen = hashlib.blake2b(f"{written}{tokenizer_choices(tokenizer)}".encode()).digest()
    if (
        seen not in _fingerprints
    ):  # reading a large vocabulary takes longer than a short pass of a small model
        _fingerprints[seen] = _hash(tokenizer_state(tokenizer, written))
        if len(_fingerprints) > KEPT:
            _fingerprints.pop(next(iter(_fingerprints)))
    return _fingerprints[seen]


def _hash(state: dict[str, Any]) -> str:
    return hashlib.blake2b(
        json.dumps(state, sort_keys=True, default=str).encode(), digest_size=16
    ).hexdigest()
