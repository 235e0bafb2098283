"""How many bytes of a text each token stands for, whatever the tokenizer: what bits per byte are counted by."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def token_sizes(text: str, ends: Sequence[int]) -> NDArray[np.int64]:
    """UTF-8 bytes from the end of the token before to each token's own end, (tokens,).

    White space counts with the token that follows it, and a character that several tokens share with the first of them, so the sizes
    of all tokens sum to the bytes of the text up to the last one.

    Args:
        text: the text.
        ends: of each token, the character behind its last one.
    """
    upto = np.maximum.accumulate(np.asarray(ends, dtype=np.int64)) if len(ends) else np.zeros(0, np.int64)
    if not text.isascii():
        sizes = [len(char.encode("utf-8", "surrogatepass")) for char in text]
        upto = np.concatenate([[0], np.cumsum(sizes)])[upto]
    return np.diff(upto, prepend=0)


def sized_row(text: str, spans: Sequence[tuple[int, int]], special: Sequence[int]) -> list[int]:
    """`token_sizes` of one row as the tokenizer gives it; 0 at its special tokens."""
    inner = [place for place, flag in enumerate(special) if not flag]
    found = [0] * len(spans)
    for place, size in zip(
        inner, token_sizes(text, [spans[place][1] for place in inner]).tolist(), strict=True
    ):
        found[place] = size
    return found
