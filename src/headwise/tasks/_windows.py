"""Rows of word-level tasks (tokens mapped to words, overlapping windows) and of long raw texts (consecutive windows)."""

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwise.errors import HeadwiseError
from headwise.tasks._bytes import sized_row
from headwise.tasks._encoding import CHUNK
from headwise.tasks._examples import Examples

Ints = NDArray[Any]


class _Tokens(NamedTuple):
    """One text's tokens: what comes before and after the text (special tokens), the text itself, and each token's word."""

    before: list[int]
    ids: list[int]
    after: list[int]
    words: Ints
    types: list[int]
    sizes: Sequence[int] = ()  # of all tokens, special ones included


def word_rows(examples: Examples, tokenizer: Any, room: int | None, split: bool) -> dict[str, Ints]:
    """Rows of annotated sentences; `room` is how many tokens fit beside the special ones."""
    if not tokenizer.is_fast:
        name = type(tokenizer).__name__
        raise HeadwiseError(
            f"word-level tasks need a fast tokenizer (with character offsets), and {name} is not one"
        )
    assert examples.sentences is not None
    words = [sentence.words for sentence in examples.sentences]
    rows = _Rows(with_words=True)
    for i in range(0, len(words), CHUNK):
        for tokens in _tokenise(words[i : i + CHUNK], tokenizer):
            if room is None or len(tokens.ids) <= room:
                rows.add(tokens, 0, len(tokens.ids), tokens.words)
            elif split:
                for first, last, owned in cut(tokens.words, room):
                    rows.add(tokens, first, last, owned)
            else:
                rows.add(tokens, 0, room, tokens.words[:room])
            rows.example()
    return rows.arrays()


def text_rows(examples: Examples, tokenizer: Any, limit: int, room: int | None) -> dict[str, Ints]:
    """Rows of raw texts: consecutive windows of at most `room` tokens, each with the special tokens around it."""
    rows = _Rows(with_words=False)
    room = limit if room is None else room
    for i in range(0, len(examples), CHUNK):
        texts = [text[0] for text in examples.texts[i : i + CHUNK]]
        options = {
            "padding": False,
            "return_attention_mask": False,
            "return_special_tokens_mask": True,
            "verbose": False,
        }
        out = tokenizer(texts, return_offsets_mapping=tokenizer.is_fast, **options)
        for row, ids in enumerate(out["input_ids"]):
            special = out["special_tokens_mask"][row]
            sizes = sized_row(texts[row], out["offset_mapping"][row], special) if tokenizer.is_fast else []
            tokens = _parts(ids, special, out["token_type_ids"][row] if "token_type_ids" in out else [])
            tokens = tokens._replace(sizes=sizes)
            for first in range(0, max(len(tokens.ids), 1), room):
                rows.add(tokens, first, min(first + room, len(tokens.ids)), tokens.words)
            rows.example()
    return rows.arrays()


def cut(words: Ints, room: int) -> list[tuple[int, int, Ints]]:
    """Overlapping windows over a long sentence: (first token, end token, owned word of each token or -1).

    Windows begin at word boundaries and overlap by about half. A word belongs to the window where the nearer window edge is
    farthest away; the sentence's own edges do not count, since nothing lies beyond them.
    """
    size = len(words)
    begins = np.flatnonzero(np.diff(words, prepend=-2) != 0)  # first token of each word
    ends = np.append(begins[1:], size)
    spans: list[tuple[int, int]] = []
    first = 0
    while True:
        fitting = np.flatnonzero((begins >= first) & (ends <= first + room))
        last = (
            int(ends[fitting[-1]]) if len(fitting) else min(first + room, size)
        )  # a word longer than a window is cut
        spans.append((first, last))
        nearest = int(begins[begins > first][0]) if (begins > first).any() else size
        if last >= size or nearest == size:
            break
        later = begins[(begins > first) & (begins <= max(first + room // 2, nearest))]
        first = int(later[-1])
    context = np.full((len(spans), len(begins)), -1, dtype=np.int64)  # (windows, words)
    for number, (start, end) in enumerate(spans):
        inside = (begins >= start) & (begins < end)
        left = np.full(len(begins), size) if start == 0 else begins - start
        right = np.full(len(begins), size) if end == size else end - np.minimum(ends, end)
        context[number, inside] = np.minimum(left, right)[inside]
    owner = context.argmax(0)  # (words,)
    owner_of_token = np.repeat(owner, ends - begins)
    return [(a, b, np.where(owner_of_token[a:b] == n, words[a:b], -1)) for n, (a, b) in enumerate(spans)]


def _tokenise(words: Sequence[tuple[str, ...]], tokenizer: Any) -> list[_Tokens]:
    found = _aligned(words, tokenizer)
    stand_in = tokenizer.unk_token or "?"
    for i, tokens in enumerate(found):
        missing = np.setdiff1d(np.arange(len(words[i])), tokens.words)
        if len(missing):
            repaired = tuple(stand_in if number in missing else word for number, word in enumerate(words[i]))
            found[i] = _aligned([repaired], tokenizer)[0]
            if len(np.setdiff1d(np.arange(len(repaired)), found[i].words)):
                raise HeadwiseError(
                    f"the tokenizer gives no token for some of the words {list(words[i])!r}; remove the sentence"
                )
    return found


def _aligned(words: Sequence[tuple[str, ...]], tokenizer: Any) -> list[_Tokens]:
    """Tokens of sentences with the word of each, by character position in the words joined by spaces."""
    texts = [" ".join(sentence) for sentence in words]
    options = {
        "padding": False,
        "return_attention_mask": False,
        "return_special_tokens_mask": True,
        "verbose": False,
    }
    out = tokenizer(texts, return_offsets_mapping=True, **options)
    found = []
    for i, sentence in enumerate(words):
        tokens = _parts(
            out["input_ids"][i],
            out["special_tokens_mask"][i],
            out["token_type_ids"][i] if "token_type_ids" in out else [],
        )
        offsets = np.array(
            out["offset_mapping"][i][len(tokens.before) : len(tokens.before) + len(tokens.ids)]
        ).reshape(-1, 2)
        sizes = np.array([len(word) for word in sentence])
        begins = np.concatenate([[0], np.cumsum(sizes + 1)[:-1]])
        place = np.maximum(
            offsets[:, 1] - 1, offsets[:, 0]
        )  # a token's last character: the first may be the space before it
        number = np.searchsorted(begins, place, side="right") - 1
        number += (
            place >= begins[number] + sizes[number]
        )  # a token that is only the space belongs to the word it introduces
        found.append(tokens._replace(words=np.minimum(number, len(sentence) - 1)))
    return found


def _parts(ids: list[int], special: list[int], types: list[int]) -> _Tokens:
    inner = [i for i, flag in enumerate(special) if not flag]
    first, last = (inner[0], inner[-1] + 1) if inner else (len(ids), len(ids))
    if not inner:  # a text without any token: the special ones stand on both sides of nothing
        first = last = (len(ids) + 1) // 2
    return _Tokens(ids[:first], ids[first:last], ids[last:], np.zeros(last - first, dtype=np.int64), types)


class _Rows:
    """Rows being gathered; `example()` ends the rows of one example."""

    def __init__(self, with_words: bool) -> None:
        self.with_words = with_words
        self.ids, self.types, self.special, self.owned, self.context, self.sizes = (
            array("i") for _ in range(6)
        )
        self.starts, self.rows = array("q", [0]), array("q", [0])

    def add(self, tokens: _Tokens, first: int, last: int, owned: Ints) -> None:
        before, after, inner = len(tokens.before), len(tokens.after), last - first
        self.ids.extend([*tokens.before, *tokens.ids[first:last], *tokens.after])
        self.starts.append(len(self.ids))
        if tokens.types:
            kept = tokens.types[before + first : before + last]
            self.types.extend([*tokens.types[:before], *kept, *tokens.types[before + len(tokens.ids) :]])
        if tokens.sizes:
            self.sizes.extend([*[0] * before, *tokens.sizes[before + first : before + last], *[0] * after])
        self.special.extend([1] * before + [0] * inner + [1] * after)
        if self.with_words:
            self.owned.extend([-1] * before + owned[:inner].tolist() + [-1] * after)
            self.context.extend([-1] * before + tokens.words[first:last].tolist() + [-1] * after)

    def example(self) -> None:
        self.rows.append(len(self.starts) - 1)

    def arrays(self) -> dict[str, Ints]:
        found = {"ids": self.ids, "starts": self.starts, "rows": self.rows, "special": self.special}
        if self.types:
            found["types"] = self.types
        if self.sizes:
            found["sizes"] = self.sizes
        if self.with_words:
            found |= {"words": self.owned, "context_words": self.context}
        return {name: np.asarray(column) for name, column in found.items()}
