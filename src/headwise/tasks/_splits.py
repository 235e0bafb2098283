"""Dividing one table into splits by fraction: reproducible by seed, and identical texts stay together."""

import hashlib
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headwise.errors import HeadwiseError

KNOWN = ("train", "validation", "test")


def name_strangers(task: str, found: Collection[str], chosen: bool) -> None:
    """Speaks of splits that nothing reads of itself: a `holdout` beside train and validation, or in the place of one of them.

    Args:
        task: the task's name, or what it is read from.
        found: its splits, by headwise's names.
        chosen: whether the user wrote these names, so that others than headwise's are meant.

    Raises:
        HeadwiseError: there is such a split, and none for validation (which would be taken out of train), or none to train on.
    """
    strange = sorted(set(found) - set(KNOWN))
    read = [name for name in KNOWN if name in found]
    have = [*read, *strange]
    missing = [name for name in KNOWN[:2] if name not in have]
    if not strange or (chosen and missing != ["validation"]):
        return
    listed, names = ", ".join(have), ", ".join(strange)
    if missing:
        raise HeadwiseError(
            f"task {task!r} has no {' and no '.join(missing)} split: its splits are {listed}, and headwise reads {', '.join(KNOWN)}. Rename "
            f"{names}, or map them: splits={{'train': ..., 'validation': ...}}"
        )
    warnings.warn(
        f"task {task!r} has the splits {listed}: {', '.join(read)} are read; {names} only when requested "
        f"by name (predict=[{strange[0]!r}] in training). To use it as one of them: splits={{'test': {strange[0]!r}, ...}}",
        stacklevel=4,
    )


def text_key(text: Sequence[str]) -> str:
    """What counts as the same text: letter case and white space aside, and for pairs the order aside."""
    return "\x1f".join(sorted(" ".join(part.casefold().split()) for part in text))


def text_numbers(texts: Iterable[Sequence[str]]) -> NDArray[np.uint64]:
    """A number for each text by which the same text (`text_key`) is known again: 8 bytes where the key takes a hundred."""
    return np.fromiter((_digest(text_key(text), b"") for text in texts), np.uint64)


def by_fraction(
    keys: Iterable[str], fractions: Mapping[str, float], seed: int
) -> dict[str, NDArray[np.int64]]:
    """Row numbers of each split.

    A row's split depends only on its key and the seed (through a hash), so that adding rows to a file moves none of the old ones,
    and rows with the same key never part. Sizes therefore meet the fractions up to chance.

    Args:
        keys: one string per row.
        fractions: share of each split, together 1.
        seed: another seed, another division.
    """
    if (
        not fractions
        or any(share <= 0 for share in fractions.values())
        or abs(sum(fractions.values()) - 1) > 1e-6
    ):
        raise HeadwiseError(f"fractions must be positive and add up to 1, got {dict(fractions)}")
    salt = seed.to_bytes(8, "little", signed=True)
    places = np.fromiter((_unit(key, salt) for key in keys), np.float64)
    bounds = np.cumsum(list(fractions.values()))
    bounds[-1] = 1.0
    number = np.searchsorted(bounds, places, side="right")
    return {name: np.flatnonzero(number == i) for i, name in enumerate(fractions)}


def _unit(key: str, salt: bytes) -> float:
    """A number in [0, 1) from the key, uniform over keys."""
    return (_digest(key, salt) >> 11) / 2**53


def _digest(key: str, salt: bytes) -> int:
    return int.from_bytes(
        hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, salt=salt).digest(), "little"
    )
