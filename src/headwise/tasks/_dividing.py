"""One table as splits: by its split column, else by fraction."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from headwise.errors import HeadwiseError
from headwise.tasks._builders import missing, values
from headwise.tasks._sources import Raw, split_name
from headwise.tasks._splits import by_fraction, text_key


def divided(
    raw: Raw, text: Sequence[str], split_column: str | None, together: str | None, fractions: Mapping[str, float], seed: int
) -> dict[str, Raw]:
    """One table as splits: by its split column, else by fraction."""
    if raw.sentences is not None:
        parts = by_fraction((text_key([" ".join(s.words)]) for s in raw.sentences), fractions, seed)
        return {name: Raw(raw.origin, sentences=[raw.sentences[i] for i in rows]) for name, rows in parts.items()}
    assert raw.table is not None
    by = split_column or ("split" if "split" in raw.table.columns else None)
    if by is not None:
        parts = split_rows(raw, by)
    else:
        columns = [values(raw, name) for name in ((together,) if together else text)]
        keys = (text_key(list(map(str, row))) for row in zip(*columns, strict=True))
        parts = by_fraction(keys, fractions, seed)
    return {name: replace(raw, rows=rows) for name, rows in parts.items()}


def split_rows(raw: Raw, by: str) -> dict[str, NDArray[np.int64]]:
    """Row numbers of each split that the column `by` names; "dev" and "validation" are one split."""
    found: dict[str, array[int]] = {}
    for row, value in enumerate(values(raw, by)):
        if missing(value):
            raise HeadwiseError(f"{raw.where(row)}: {by} is empty, but every row needs a split; fix or remove the row")
        found.setdefault(split_name(str(value)), array("q")).append(row)
    return {split: np.array(rows, dtype=np.int64) for split, rows in found.items()}
