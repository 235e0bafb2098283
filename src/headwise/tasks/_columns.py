"""Columns of a raw table: found by name, and read as Python objects some thousands at a time."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise._base.names import listed, shown
from headwise.errors import HeadwiseError, did_you_mean
from headwise.tasks._sources import Raw
from headwise.tasks._tables import LINES, TABLES, read_lines, read_table, suffix

CHUNK = 10_000  # values of a column turned into Python objects at once


def column(raw: Raw, name: str) -> pd.Series:
    """A column of a table ("a|b": the first of two that is there), or an error that names the file, the column and those it has."""
    if raw.table is None:
        raise HeadwiseError(
            f"{raw.origin} holds annotated sentences, not a table: name their kind= (tags, spans, dependencies, constituents or roles)"
        )
    found = known(raw, name)
    if found is None:
        have = [str(c) for c in raw.table.columns]
        hint = f"; name it with {name}=" if name in ("text", "label") else ""  # the default names
        raise HeadwiseError(
            f"{raw.origin} has no column {name!r}, only: {listed(have)}{did_you_mean(name, have)}{hint}"
        )
    if list(raw.table.columns).count(found) > 1:
        raise HeadwiseError(
            f"{raw.origin} has {list(raw.table.columns).count(found)} columns {found!r}: rename all but one"
        )
    return raw.table[found] if raw.rows is None else raw.table[found].iloc[raw.rows].reset_index(drop=True)


def known(raw: Raw, name: str) -> str | None:
    """The column that `name` means, or None where the table has none."""
    assert raw.table is not None
    return next((part for part in (name, *name.split("|")) if part in raw.table.columns), None)


def column_values(raw: Raw, name: str) -> Iterator[Any]:
    """The values of a column as Python objects, some thousands at a time: all of them at once would take much memory."""
    whole = column(replace(raw, rows=None), name)
    pieces = (_piece(whole, raw.rows, begin, begin + CHUNK) for begin in range(0, len(whole), CHUNK))
    return (value for piece in pieces for value in _listed(raw, name, piece))


def _listed(raw: Raw, name: str, piece: pd.Series) -> list[Any]:
    try:
        found = piece.tolist()
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "pyarrow":
            raise
        raise HeadwiseError(f"{raw.origin}: column {name!r} is damaged or not UTF-8 text ({error})") from None
    if piece.dtype != object:
        return found
    return [
        value.item() if getattr(value, "ndim", None) == 0 else value for value in found
    ]  # tensors and numpy's own numbers


def _piece(whole: pd.Series, rows: NDArray[np.int64] | None, begin: int, end: int) -> pd.Series:
    """Rows `begin` to `end` of a column, as far as they are among `rows`; no copy is made of the whole column."""
    piece = whole.iloc[begin:end]
    return piece if rows is None else piece.iloc[rows[slice(*np.searchsorted(rows, (begin, end)))] - begin]


def missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def read_texts(path: Path, count: int) -> list[str]:
    """The first `count` sentences of a text file (one a line), or of the column `sentence` of a table or of a folder that holds one.

    Raises:
        HeadwiseError: there is no such column, or a sentence in it is empty.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if suffix(file) in (*TABLES, LINES))
        if len(files) != 1:
            raise HeadwiseError(f"{path} holds {len(files)} data files; name one of them")
        path = files[0]
    if suffix(path) not in TABLES:
        return read_lines(path)[:count]
    raw = Raw(str(path), table=read_table(path))
    found = []
    for row, text in enumerate(islice(column_values(raw, "sentence"), count)):
        if not isinstance(text, str) or not text.strip():
            raise HeadwiseError(f"{raw.where(row)}: sentence is {shown(text)}; fix or remove the row")
        found.append(text)
    return found
