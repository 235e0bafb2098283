"""Texts as token numbers, made once: flat arrays from which batches are cut.

A row is one sequence the model reads. A text (or pair) is one row; a minimal pair is two rows, good then bad;
a contrast two, clean then corrupted; a long sentence of a word-level task, or a long raw text, is several
rows (windows). Rows of one example stay together in a batch.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from headwise._base.memory import release
from headwise.errors import HeadwiseError
from headwise.store import tokenizer_choices, tokenizer_state
from headwise.tasks._examples import Examples
from headwise.tasks._kept import KEPT, folder_for, keep, recalled
from headwise.tasks._kinds import KINDS
from headwise.tasks._rows import contrast_rows, text_rows, window_rows, word_rows
from headwise.tasks._texts import FEW

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
        words: (tokens,) number of the word a token belongs to, if this row owns the word, else -1; word kinds
            only.
        context_words: (tokens,) the same for every word in the row, owned or not: a long sentence's windows
            overlap, and a word is owned by the one window where it has the most context.
        max_length: rows are no longer than this.
        pad, pad_type, mask: token numbers for padding, its token type, and masking (-1: the tokenizer has no
            mask token).
        vocabulary: number of token numbers.
        sizes: (tokens,) bytes of text each token stands for, 0 at special ones; token kinds with a fast
            tokenizer only.
        answers: (examples, 2) first tokens of the right answer and of the other one; contrasts only.
        pads_left: whether padding goes to the left.
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
    pads_left: bool
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
        if not len(self):
            return np.zeros(0, np.int64)
        return np.maximum.reduceat(self.row_lengths, self.rows[:-1])

    @cached_property
    def needs(self) -> NDArray[np.int64] | None:
        """Words, label rows, and rows of the kind's first class and of others (where it has one), (examples,
        4); word kinds only.
        """
        sentences, labels, kind = self.examples.sentences, self.examples.labels, KINDS[self.examples.kind]
        if self.words is None or sentences is None or not isinstance(labels, list):
            return None
        words = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
        rows = np.array([len(label_rows) for label_rows in labels], dtype=np.int64)
        first = further = np.zeros_like(rows)
        if kind.first:
            first = np.array(
                [(label_rows[:, kind.class_column] == 0).sum() for label_rows in labels], np.int64
            )
            further = rows - first
        return np.stack([words, rows, first, further], 1)

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
    """Tokenises examples, in batches, once: the same content, tokenizer and settings come from memory the
    next time.

    Pairs are truncated longest-first. Word kinds tokenise the words joined by single spaces and map tokens to
    words by character position, which gives the tokens of natural text with any fast tokenizer; a word the
    tokenizer drops (control characters) is read as its unknown token. Long sentences become overlapping
    windows; long raw texts consecutive ones.

    Args:
        examples: one split of a task, or a subset.
        tokenizer: a Hugging Face tokenizer.
        max_length: tokens a row may have, special ones included; default: the tokenizer's own limit, if it
            states one.
        windows: False truncates long texts instead of making windows; default: windows for word and token
            kinds.
        cache: a folder; encodings are kept there by content hash (safetensors) and found again by later
            processes. Default: `tokens` in the cache folder ($HEADWISE_CACHE), for 1,000 examples and more.
        remember: False where a stream is tokenised piece by piece and no piece is asked for again: the tokens
            go when they are used.

    Raises:
        HeadwiseError: max_length leaves no room, or a word-level task meets a tokenizer that is not a fast
            one.
    """
    reads = KINDS[examples.kind].reads
    limit = max_length
    if limit is None:
        limit = own_limit(tokenizer)
    room = _room_for_text(examples, tokenizer, limit)
    if windows is None:
        windows = reads in ("words", "tokens")
    key = _key(examples, tokenizer, limit, windows)
    folder = None
    if cache is not None:
        folder = Path(cache)
    elif remember and tokenizer.is_fast:
        folder = folder_for(len(examples))
    arrays = recalled(key, folder)
    if arrays is None:
        if reads == "words":
            arrays = word_rows(examples, tokenizer, room, windows)
        elif reads == "contrast":
            arrays = contrast_rows(examples, tokenizer, limit)
        elif windows and room is not None:
            arrays = window_rows(examples, tokenizer, room)
        else:
            arrays = text_rows(examples, tokenizer, limit)
        release(len(examples) > FEW)
        if remember:
            keep(key, arrays, folder)
    optional = ("types", "special", "words", "context_words", "sizes", "answers")
    return Encoded(
        examples,
        ids=arrays["ids"],
        starts=arrays["starts"],
        rows=arrays["rows"],
        **{name: arrays.get(name) for name in optional},
        max_length=limit,
        pad=_pad_token(tokenizer),
        pad_type=tokenizer.pad_token_type_id,
        mask=-1 if tokenizer.mask_token_id is None else tokenizer.mask_token_id,
        vocabulary=len(tokenizer),
        pads_left=tokenizer.padding_side == "left",
    )


def _room_for_text(examples: Examples, tokenizer: Any, limit: int | None) -> int | None:
    """Tokens of text that fit into a row beside the special ones; None: any number."""
    if limit is None:
        return None
    joined = examples.pairs and KINDS[examples.kind].reads != "pair"
    special: int = tokenizer.num_special_tokens_to_add(pair=joined)
    if limit <= special:
        raise HeadwiseError(
            f"max_length={limit} leaves no room for text next to the special tokens; give at least "
            f"{special + 1}"
        )
    return limit - special


def own_limit(tokenizer: Any) -> int | None:
    """Tokens that a tokenizer says a row may have; None: it does not say (it states 1e30)."""
    if tokenizer.model_max_length < 1_000_000:
        return int(tokenizer.model_max_length)
    return None


def _pad_token(tokenizer: Any) -> int:
    """What fills the padding, until a model is known that has a padding token of its own."""
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0


def _key(examples: Examples, tokenizer: Any, limit: int | None, split: bool) -> str:
    decisive = [
        "3",
        tokenizers.__version__,
        examples.text_fingerprint,
        tokenizer_fingerprint(tokenizer),
        str(limit),
        str(split),
    ]
    return hashlib.blake2b("\n".join(decisive).encode(), digest_size=16).hexdigest()


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """A hash of all that decides what a tokenizer makes of a text; its passing state (truncation, padding) is
    left aside.
    """
    if not tokenizer.is_fast:
        return _hash(tokenizer_state(tokenizer))
    written = tokenizer.backend_tokenizer.to_str()
    seen = hashlib.blake2b(f"{written}{tokenizer_choices(tokenizer)}".encode()).digest()
    # reading a large vocabulary takes longer than a short pass of a small model
    if seen not in _fingerprints:
        _fingerprints[seen] = _hash(tokenizer_state(tokenizer, written))
        if len(_fingerprints) > KEPT:
            _fingerprints.pop(next(iter(_fingerprints)))
    return _fingerprints[seen]


def _hash(state: dict[str, Any]) -> str:
    text = json.dumps(state, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
