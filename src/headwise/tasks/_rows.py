"""Examples as rows of tokens: one row a text, two for what is compared, windows over long sentences and
texts.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwise._base.names import shown
from headwise.errors import HeadwiseError
from headwise.tasks._examples import Examples
from headwise.tasks._kinds import KINDS

Array = NDArray[Any]
CHUNK = 1000  # texts handed to the tokenizer at once: its output is Python lists, which should not pile up
FIELDS = {  # our names and the tokenizer's
    "ids": "input_ids",
    "types": "token_type_ids",
    "special": "special_tokens_mask",
}


def text_rows(examples: Examples, tokenizer: Any, limit: int | None) -> dict[str, Array]:
    """One row per text or pair; two per minimal pair. Longer ones are cut."""
    reads = KINDS[examples.kind].reads
    sized = reads == "tokens" and tokenizer.is_fast
    columns = {"ids": array("i")}
    lengths = array("q", [0])
    for texts in _chunks(examples.texts):
        if reads == "pair":
            texts = [(side,) for side in chain.from_iterable(texts)]
        pairs = len(texts[0]) == 2
        out = tokenizer(
            [text[0] for text in texts],
            [text[1] for text in texts] if pairs else None,
            truncation=False if limit is None else "longest_first",
            max_length=limit,
            padding=False,
            return_attention_mask=False,
            return_special_tokens_mask=reads in ("pair", "tokens"),
            return_offsets_mapping=sized,
            verbose=False,
        )
        if sized:
            sizes = columns.setdefault("sizes", array("i"))
            for text, spans, special in zip(
                texts, out["offset_mapping"], out["special_tokens_mask"], strict=True
            ):
                sizes.extend(row_sizes(text[0], spans, special))
        lengths.extend(map(len, out["input_ids"]))
        for field, tokenizer_field in FIELDS.items():
            # arrays that grow in place: chunks kept to be joined would take twice the memory
            if tokenizer_field in out:
                column = columns.setdefault(field, array("i"))
                column.extend(chain.from_iterable(out[tokenizer_field]))
    arrays: dict[str, Array] = {name: np.asarray(column) for name, column in columns.items()}
    arrays["starts"] = np.cumsum(np.asarray(lengths))
    arrays["rows"] = np.arange(len(examples) + 1, dtype=np.int64) * (2 if reads == "pair" else 1)
    return arrays


def _chunks(texts: Sequence[tuple[str, ...]]) -> Iterator[Sequence[tuple[str, ...]]]:
    for begin in range(0, len(texts), CHUNK):
        yield texts[begin : begin + CHUNK]


def token_sizes(text: str, ends: Sequence[int]) -> NDArray[np.int64]:
    """UTF-8 bytes from the end of the token before to each token's own end, (tokens,): what bits per byte
    count.

    White space counts with the token that follows it, and a character that several tokens share with the
    first of them, so the sizes of all tokens sum to the bytes of the text up to the last one, whatever the
    tokenizer.

    Args:
        text: the text.
        ends: of each token, the character behind its last one.
    """
    if not len(ends):
        return np.zeros(0, np.int64)
    upto = np.maximum.accumulate(np.asarray(ends, dtype=np.int64))
    if not text.isascii():
        sizes = [len(char.encode("utf-8", "surrogatepass")) for char in text]
        upto = np.concatenate([[0], np.cumsum(sizes)])[upto]
    return np.diff(upto, prepend=0)


def row_sizes(text: str, spans: Sequence[tuple[int, int]], special: Sequence[int]) -> list[int]:
    """`token_sizes` of one row as the tokenizer gives it; 0 at its special tokens."""
    text_tokens = [token for token, flag in enumerate(special) if not flag]
    sizes = [0] * len(spans)
    ends = [spans[token][1] for token in text_tokens]
    for token, size in zip(text_tokens, token_sizes(text, ends).tolist(), strict=True):
        sizes[token] = size
    return sizes


def contrast_rows(examples: Examples, tokenizer: Any, limit: int | None) -> dict[str, Array]:
    """Two rows per example, clean and corrupted, and the first token of each answer as it follows the clean
    prompt.

    Special tokens that the tokenizer puts behind a text are left out: the answer follows.

    Raises:
        HeadwiseError: a prompt is too long, or both answers begin with the same token.
    """
    rows, first_tokens = [], []
    for clean, corrupted, right, wrong in examples.texts:
        for prompt in (clean, corrupted):
            row = _open_row(tokenizer, prompt)
            if limit is not None and len(row) > limit:
                raise HeadwiseError(
                    f"the prompt {shown(prompt)} has {len(row)} tokens, more than max_length={limit}: "
                    "nothing may be cut"
                )
            rows.append(row)
        right_token = _first_token(tokenizer, clean, right)
        wrong_token = _first_token(tokenizer, clean, wrong)
        if right_token == wrong_token:
            raise HeadwiseError(
                f"the answers {shown(right)} and {shown(wrong)} after {shown(clean)} begin with the same "
                "token, "
                "so their logits do not differ: choose others"
            )
        first_tokens.append((right_token, wrong_token))
    lengths = np.array([0, *map(len, rows)], dtype=np.int64)
    return {
        "ids": np.array(list(chain.from_iterable(rows)), dtype=np.int32),
        "starts": np.cumsum(lengths),
        "rows": np.arange(len(examples) + 1, dtype=np.int64) * 2,
        "answers": np.array(first_tokens, dtype=np.int64).reshape(-1, 2),
    }


def _open_row(tokenizer: Any, text: str) -> list[int]:
    """A text's tokens without special ones behind it."""
    out = tokenizer(text, return_special_tokens_mask=True, verbose=False)
    ids, special = list(out["input_ids"]), list(out["special_tokens_mask"])
    while special and special[-1]:
        ids.pop()
        special.pop()
    return ids


def _first_token(tokenizer: Any, prompt: str, answer: str) -> int:
    """The token after the prompt if the answer follows it, with a space between unless there is one."""
    space = "" if prompt[-1:].isspace() or answer[:1].isspace() else " "
    before, after = _open_row(tokenizer, prompt), _open_row(tokenizer, f"{prompt}{space}{answer}")
    if len(after) <= len(before):
        raise HeadwiseError(f"the answer {shown(answer)} adds no token to {shown(prompt)}")
    if after[: len(before)] != before:
        raise HeadwiseError(
            f"the answer {shown(answer)} changes how the end of {shown(prompt)} is split into tokens: "
            "move the end of the prompt"
        )
    return after[len(before)]


class _Tokens(NamedTuple):
    """One text's tokens: special tokens before and after the text, the text itself, and each token's word."""

    before: list[int]
    ids: list[int]
    after: list[int]
    words: Array
    types: list[int]
    sizes: Sequence[int] = ()  # of all tokens, special ones included


def word_rows(examples: Examples, tokenizer: Any, room: int | None, split: bool) -> dict[str, Array]:
    """Rows of annotated sentences: tokens mapped to words; long sentences as overlapping windows, or cut.

    Args:
        examples: of a word kind.
        tokenizer: a fast one.
        room: tokens that fit beside the special ones; None: any number.
        split: whether long sentences become windows.
    """
    if not tokenizer.is_fast:
        name = type(tokenizer).__name__
        raise HeadwiseError(
            f"word-level tasks need a fast tokenizer (with character offsets), and {name} is not one"
        )
    assert examples.sentences is not None
    rows = _Rows(with_words=True)
    for sentences in _chunks([sentence.words for sentence in examples.sentences]):
        for tokens in _tokenise(sentences, tokenizer):
            if room is None or len(tokens.ids) <= room:
                rows.add(tokens, 0, len(tokens.ids), tokens.words)
            elif split:
                for first, last, owned in cut(tokens.words, room):
                    rows.add(tokens, first, last, owned)
            else:
                rows.add(tokens, 0, room, tokens.words[:room])
            rows.end_example()
    return rows.arrays()


def window_rows(examples: Examples, tokenizer: Any, room: int) -> dict[str, Array]:
    """Rows of raw texts: consecutive windows of at most `room` tokens, each with the special tokens around
    it.
    """
    rows = _Rows(with_words=False)
    for chunk in _chunks(examples.texts):
        texts = [text[0] for text in chunk]
        out = _encodings(tokenizer, texts, offsets=tokenizer.is_fast)
        for row, text in enumerate(texts):
            tokens = _divided(out, row)
            if tokenizer.is_fast:
                sizes = row_sizes(text, out["offset_mapping"][row], out["special_tokens_mask"][row])
                tokens = tokens._replace(sizes=sizes)
            for first in range(0, max(len(tokens.ids), 1), room):
                rows.add(tokens, first, min(first + room, len(tokens.ids)), tokens.words)
            rows.end_example()
    return rows.arrays()


def cut(words: Array, room: int) -> list[tuple[int, int, Array]]:
    """Overlapping windows over a long sentence: (first token, end token, owned word of each token or -1).

    Windows begin at word boundaries and overlap by about half. A word belongs to the window where the nearer
    window edge is farthest away; the sentence's own edges do not count, since nothing lies beyond them.
    """
    size = len(words)
    begins = np.flatnonzero(np.diff(words, prepend=-2) != 0)  # first token of each word
    ends = np.append(begins[1:], size)
    windows = _windows(begins, ends, size, room)
    context = np.full((len(windows), len(begins)), -1, dtype=np.int64)  # (windows, words)
    for number, (start, end) in enumerate(windows):
        inside = (begins >= start) & (begins < end)
        before = np.full(len(begins), size) if start == 0 else begins - start
        behind = np.full(len(begins), size) if end == size else end - np.minimum(ends, end)
        context[number, inside] = np.minimum(before, behind)[inside]
    owner = np.repeat(context.argmax(0), ends - begins)  # (tokens,)
    return [
        (start, end, np.where(owner[start:end] == number, words[start:end], -1))
        for number, (start, end) in enumerate(windows)
    ]


def _windows(begins: Array, ends: Array, size: int, room: int) -> list[tuple[int, int]]:
    """(first token, end token) of each window, from the first token and the end of every word."""
    windows: list[tuple[int, int]] = []
    first = 0
    while True:
        fitting = np.flatnonzero((begins >= first) & (ends <= first + room))
        if len(fitting):
            last = int(ends[fitting[-1]])
        else:  # a word longer than a window is cut
            last = min(first + room, size)
        windows.append((first, last))
        later = begins[begins > first]
        if last >= size or not len(later):
            return windows
        first = int(later[later <= max(first + room // 2, later[0])][-1])


def _tokenise(sentences: Sequence[tuple[str, ...]], tokenizer: Any) -> list[_Tokens]:
    """Tokens of sentences; words that the tokenizer drops are read as its unknown token."""
    tokens = _aligned(sentences, tokenizer)
    stand_in = tokenizer.unk_token or "?"
    for i, words in enumerate(sentences):
        missing = np.setdiff1d(np.arange(len(words)), tokens[i].words)
        if len(missing):
            repaired = tuple(stand_in if number in missing else word for number, word in enumerate(words))
            tokens[i] = _aligned([repaired], tokenizer)[0]
            if len(np.setdiff1d(np.arange(len(words)), tokens[i].words)):
                raise HeadwiseError(
                    f"the tokenizer gives no token for some of the words {list(words)!r}; remove the sentence"
                )
    return tokens


def _aligned(sentences: Sequence[tuple[str, ...]], tokenizer: Any) -> list[_Tokens]:
    """Tokens of sentences with the word of each, by character position in the words joined by spaces."""
    out = _encodings(tokenizer, [" ".join(words) for words in sentences], offsets=True)
    aligned = []
    for row, words in enumerate(sentences):
        tokens = _divided(out, row)
        first = len(tokens.before)
        offsets = np.array(out["offset_mapping"][row][first : first + len(tokens.ids)]).reshape(-1, 2)
        lengths = np.array([len(word) for word in words])
        begins = np.concatenate([[0], np.cumsum(lengths + 1)[:-1]])
        # a token's last character: the first may be the space before it
        character = np.maximum(offsets[:, 1] - 1, offsets[:, 0])
        word = np.searchsorted(begins, character, side="right") - 1
        # a token that is only the space belongs to the word it introduces
        word += character >= begins[word] + lengths[word]
        aligned.append(tokens._replace(words=np.minimum(word, len(words) - 1)))
    return aligned


def _encodings(tokenizer: Any, texts: list[str], offsets: bool) -> Any:
    """What the tokenizer makes of texts, uncut."""
    return tokenizer(
        texts,
        padding=False,
        return_attention_mask=False,
        return_special_tokens_mask=True,
        return_offsets_mapping=offsets,
        verbose=False,
    )


def _divided(out: Any, row: int) -> _Tokens:
    """The tokens of one row, those of the text apart from the special ones around them."""
    ids, special = out["input_ids"][row], out["special_tokens_mask"][row]
    types = out["token_type_ids"][row] if "token_type_ids" in out else []
    text_tokens = [i for i, flag in enumerate(special) if not flag]
    if text_tokens:
        first, last = text_tokens[0], text_tokens[-1] + 1
    else:  # a text without any token: the special ones stand on both sides of nothing
        first = last = (len(ids) + 1) // 2
    return _Tokens(ids[:first], ids[first:last], ids[last:], np.zeros(last - first, dtype=np.int64), types)


class _Rows:
    """Rows being gathered; `end_example()` ends the rows of one example."""

    def __init__(self, with_words: bool) -> None:
        self.with_words = with_words
        names = ("ids", "types", "special", "words", "context_words", "sizes")
        self.columns = {name: array("i") for name in names}
        self.starts, self.rows = array("q", [0]), array("q", [0])

    def add(self, tokens: _Tokens, first: int, last: int, owned: Array) -> None:
        """A row of the text's tokens `first` to `last`, with the words that it owns."""
        columns = self.columns
        before, after, inner = len(tokens.before), len(tokens.after), last - first
        columns["ids"].extend([*tokens.before, *tokens.ids[first:last], *tokens.after])
        self.starts.append(len(columns["ids"]))
        columns["special"].extend([1] * before + [0] * inner + [1] * after)
        if tokens.types:
            columns["types"].extend(tokens.types[:before])
            columns["types"].extend(tokens.types[before + first : before + last])
            columns["types"].extend(tokens.types[before + len(tokens.ids) :])
        if tokens.sizes:
            sizes = tokens.sizes[before + first : before + last]
            columns["sizes"].extend([*[0] * before, *sizes, *[0] * after])
        if self.with_words:
            context = tokens.words[first:last].tolist()
            columns["words"].extend([-1] * before + owned[:inner].tolist() + [-1] * after)
            columns["context_words"].extend([-1] * before + context + [-1] * after)

    def end_example(self) -> None:
        self.rows.append(len(self.starts) - 1)

    def arrays(self) -> dict[str, Array]:
        filled = {name: column for name, column in self.columns.items() if len(column)}
        filled |= {"ids": self.columns["ids"], "special": self.columns["special"]}
        if self.with_words:
            filled |= {name: self.columns[name] for name in ("words", "context_words")}
        filled |= {"starts": self.starts, "rows": self.rows}
        return {name: np.asarray(column) for name, column in filled.items()}
