"""Splits: named, and made of one table by a column or by fraction, where identical texts stay together."""

import hashlib
import warnings
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from headwise._base.names import listed
from headwise.errors import HeadwiseError
from headwise.tasks._columns import column_values, missing
from headwise.tasks._sources import Raw, split_name

SPLIT_FRACTIONS = {"train": 0.8, "validation": 0.1, "test": 0.1}  # of a source without splits
VALIDATION_SHARE = {"train": 0.9, "validation": 0.1}  # of a training split, where a source has no validation
SPLITS = ("train", "validation", "test")  # that headwise reads


def check_split_names(task: str, splits: Collection[str], named: bool) -> None:
    """Speaks of splits that nothing reads of itself: a `holdout` beside train and validation, or in their
    place.

    Args:
        task: the task's name, or what it is read from.
        splits: their names, by headwise's names.
        named: whether the user wrote these names, so that others than headwise's are meant.

    Raises:
        HeadwiseError: there is such a split, and none for validation (which would be taken out of train), or
            none to train on.
    """
    strange = sorted(set(splits) - set(SPLITS))
    read = [name for name in SPLITS if name in splits]
    missing = [name for name in ("train", "validation") if name not in splits]
    if not strange or (named and missing != ["validation"]):
        return
    every, strangers = ", ".join([*read, *strange]), ", ".join(strange)
    if missing:
        raise HeadwiseError(
            f"task {task!r} has no {' and no '.join(missing)} split: its splits are {every}, "
            f"and headwise reads {', '.join(SPLITS)}. Rename {strangers}, or map them: "
            "splits={'train': ..., 'validation': ...}"
        )
    warnings.warn(
        f"task {task!r} has the splits {every}: {', '.join(read)} are read; {strangers} only when requested "
        f"by name (predict=[{strange[0]!r}] in training). To use it as one of them: "
        f"splits={{'test': {strange[0]!r}, ...}}",
        stacklevel=4,
    )


def text_key(text: Sequence[str]) -> str:
    """What counts as the same text: letter case and white space aside, and for pairs the order aside."""
    return "\x1f".join(sorted(" ".join(string.casefold().split()) for string in text))


def text_numbers(texts: Iterable[Sequence[str]]) -> NDArray[np.uint64]:
    """A number for each text by which the same text (`text_key`) is known again: 8 bytes where the key takes
    a hundred.
    """
    return np.fromiter((_digest(text_key(text), b"") for text in texts), np.uint64)


def by_fraction(
    keys: Iterable[str], fractions: Mapping[str, float], seed: int
) -> dict[str, NDArray[np.int64]]:
    """Row numbers of each split.

    A row's split depends only on its key and the seed (through a hash), so that adding rows to a file moves
    none of the old ones, and rows with the same key never part. Sizes therefore meet the fractions up to
    chance.

    Args:
        keys: one string per row.
        fractions: share of each split, together 1.
        seed: another seed, another division.
    """
    shares = list(fractions.values())
    if not shares or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise HeadwiseError(f"fractions must be positive and add up to 1, got {dict(fractions)}")
    salt = seed.to_bytes(8, "little", signed=True)
    positions = np.fromiter((_unit(key, salt) for key in keys), np.float64)
    bounds = np.cumsum(shares)
    bounds[-1] = 1.0
    number = np.searchsorted(bounds, positions, side="right")
    return {name: np.flatnonzero(number == i) for i, name in enumerate(fractions)}


def _unit(key: str, salt: bytes) -> float:
    """A number in [0, 1) from the key, uniform over keys."""
    return (_digest(key, salt) >> 11) / 2**53


def _digest(key: str, salt: bytes) -> int:
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, salt=salt).digest()
    return int.from_bytes(digest, "little")


def divided(
    raw: Raw,
    text: Sequence[str],
    split_column: str | None,
    together: str | None,
    fractions: Mapping[str, float],
    seed: int,
) -> dict[str, Raw]:
    """One table as splits: by its split column, else by fraction."""
    if split_column is None and raw.table is not None and "split" in raw.table.columns:
        split_column = "split"
    if raw.sentences is None and split_column is not None:
        rows_by_split = split_rows(raw, split_column)
    else:
        rows_by_split = by_fraction(_keys(raw, text, together), fractions, seed)
    empty = [name for name, rows in rows_by_split.items() if not len(rows)]
    if "train" in empty:
        raise HeadwiseError(
            f"{raw.origin}: no row fell into the training split; give more rows, or name the rows' splits"
        )
    if empty:
        warnings.warn(
            f"{raw.origin}: by chance none of its {len(raw)} rows fell into the split {listed(empty)}",
            stacklevel=6,
        )
    return {name: raw.subset(rows) for name, rows in rows_by_split.items() if name not in empty}


def _keys(raw: Raw, text: Sequence[str], together: str | None) -> Iterator[str]:
    """The key of every row: rows with one key stay in one split."""
    if raw.sentences is not None:
        for sentence in raw.sentences:
            yield text_key([" ".join(sentence.words)])
        return
    groups = column_values(raw, together) if together else repeat(None)
    texts = zip(*(column_values(raw, name) for name in text), strict=True)
    for row, group in zip(texts, groups, strict=False):
        key = text_key(list(map(str, row)))
        if not missing(group):  # a row without a value shares it with no other
            key = text_key([str(group)])
        yield key


def split_rows(raw: Raw, split_column: str) -> dict[str, NDArray[np.int64]]:
    """Row numbers of each split that a column names; "dev" and "validation" are one split."""
    rows_by_split: dict[str, array[int]] = {}
    for row, value in enumerate(column_values(raw, split_column)):
        if missing(value):
            raise HeadwiseError(
                f"{raw.where(row)}: {split_column} is empty, but every row needs a split; fix or remove the "
                "row"
            )
        rows_by_split.setdefault(split_name(str(value)), array("q")).append(row)
    return {split: np.array(rows, dtype=np.int64) for split, rows in rows_by_split.items()}
