"""One table as splits: by its split column, else by fraction."""

import warnings
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from headwise._base.names import listed
from headwise.errors import HeadwiseError
from headwise.tasks._columns import column_values, missing
from headwise.tasks._sources import Raw, split_name
from headwise.tasks._splits import by_fraction, text_key


def divided(
    raw: Raw,
    text: Sequence[str],
    split_column: str | None,
    together: str | None,
    fractions: Mapping[str, float],
    seed: int,
) -> dict[str, Raw]:
    """One table as splits: by its split column, else by fraction."""
    by = split_column or ("split" if raw.table is not None and "split" in raw.table.columns else None)
    if raw.sentences is not None:
        parts = by_fraction((text_key([" ".join(s.words)]) for s in raw.sentences), fractions, seed)
    elif by is not None:
        parts = split_rows(raw, by)
    else:
        keys: Iterable[str] = (
            text_key(list(map(str, row)))
            for row in zip(*(column_values(raw, name) for name in text), strict=True)
        )
        if together:  # a row without a value shares it with no other
            groups = column_values(raw, together)
            keys = (
                key if missing(group) else text_key([str(group)])
                for key, group in zip(keys, groups, strict=True)
            )
        parts = by_fraction(keys, fractions, seed)
    empty = [name for name, rows in parts.items() if not len(rows)]
    if "train" in empty:
        raise HeadwiseError(
            f"{raw.origin}: no row fell into the training split; give more rows, or name the rows' splits"
        )
    if empty:
        warnings.warn(
            f"{raw.origin}: by chance none of its {len(raw)} rows fell into the split {listed(empty)}",
            stacklevel=6,
        )
    parts = {name: rows for name, rows in parts.items() if name not in empty}
    if raw.sentences is not None:
        return {
            name: Raw(raw.origin, sentences=[raw.sentences[i] for i in rows]) for name, rows in parts.items()
        }
    return {name: replace(raw, rows=rows) for name, rows in parts.items()}


def split_rows(raw: Raw, by: str) -> dict[str, NDArray[np.int64]]:
    """Row numbers of each split that the column `by` names; "dev" and "validation" are one split."""
    found: dict[str, array[int]] = {}
    for row, value in enumerate(column_values(raw, by)):
        if missing(value):
            raise HeadwiseError(
                f"{raw.where(row)}: {by} is empty, but every row needs a split; fix or remove the row"
            )
        found.setdefault(split_name(str(value)), array("q")).append(row)
    return {split: np.array(rows, dtype=np.int64) for split, rows in found.items()}
