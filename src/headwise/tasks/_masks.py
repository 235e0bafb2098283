"""Which tokens of a masked-token task are hidden: decided by the seed and the text alone, never by the
batch.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import HeadwiseError

Words64 = NDArray[np.uint64]


def mix(values: Words64) -> Words64:
    """splitmix64's finaliser: spreads nearby numbers over all 64 bits."""
    x = values + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def masked(
    ids: NDArray[np.int64],
    text: NDArray[np.bool_],
    position: NDArray[Any],
    mask: int,
    vocabulary: int,
    seed: int,
    rate: float,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """BERT's masking: of the tokens that are drawn 80 % become the mask token, 10 % a random token, 10 %
    stay.

    Args:
        ids: (rows, tokens) token numbers.
        text: (rows, tokens) where the text is: neither padding nor special.
        position: (rows, tokens) number of each token in its row, padding aside.
        mask: the mask token.
        vocabulary: how many tokens there are.
        seed, rate: another seed, another draw; the share of tokens drawn, at least one a row.

    Returns:
        The ids with tokens hidden, and where tokens must be predicted.

    Raises:
        HeadwiseError: the tokenizer has no mask token, or the rate is not between 0 and 1.
    """
    if mask < 0:
        raise HeadwiseError(
            "this tokenizer has no mask token; masked-token tasks need a masked language model's tokenizer"
        )
    if not 0 < rate <= 1:
        raise HeadwiseError(f"mask_rate must be above 0 and at most 1, got {rate}")
    with np.errstate(over="ignore"):
        position_key = mix(np.maximum(position, 0).astype(np.uint64))
        token_key = np.where(text, mix(ids.astype(np.uint64) ^ position_key), np.uint64(0))
        row_key = token_key.sum(1, dtype=np.uint64)  # (rows,)
        key = mix(row_key ^ mix(np.array(seed % 2**64, dtype=np.uint64)))[:, None] ^ position_key
        draws = [mix(key + np.uint64(n)) for n in (1, 2, 3)]
    choice, fate = (np.where(text, (draw >> np.uint64(11)) / 2.0**53, 2.0) for draw in draws[:2])
    predicted = choice < np.maximum(rate, choice.min(1, keepdims=True) + 1e-12)
    predicted &= text
    random = (draws[2] % np.uint64(vocabulary)).astype(np.int64)
    out = np.where(predicted & (fate < 0.8), mask, ids)
    return np.where(predicted & (fate >= 0.8) & (fate < 0.9), random, out), predicted
