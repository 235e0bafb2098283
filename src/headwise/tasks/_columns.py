"""Columns of a raw table: found by name, and read as Python objects some thousands at a time."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headwise._base.names import listed, shown
from headwise.errors import HeadwiseError, did_you_mean
from headwise.tasks._sources import Raw
from headwise.tasks._tables import LINES, TABLES, read_lines, read_table, suffix

CHUNK = 10_000  # values of a column turned into Python objects at once


def column(raw: Raw, name: str) -> pd.Series:
    """A column of a table ("a|b": the first of two that is there), or an error that names the file, the
    column and those it has.
    """
    if raw.table is None:
        raise HeadwiseError(
            f"{raw.origin} holds annotated sentences, not a table: name their kind= (tags, spans, "
            "dependencies, constituents or roles)"
        )
    own_name = column_name(raw, name)
    if own_name is None:
        names = list(map(str, raw.table.columns))
        hint = f"; name it with {name}=" if name in ("text", "label") else ""  # the default names
        raise HeadwiseError(
            f"{raw.origin} has no column {name!r}, only: {listed(names)}{did_you_mean(name, names)}{hint}"
        )
    count = list(raw.table.columns).count(own_name)
    if count > 1:
        raise HeadwiseError(f"{raw.origin} has {count} columns {own_name!r}: rename all but one")
    values = raw.table[own_name]
    return values if raw.rows is None else values.iloc[raw.rows].reset_index(drop=True)


def column_name(raw: Raw, name: str) -> str | None:
    """The table's name of the column that `name` means ("a|b"), or None where the table has none."""
    assert raw.table is not None
    return next((choice for choice in (name, *name.split("|")) if choice in raw.table.columns), None)


def column_values(raw: Raw, name: str) -> Iterator[Any]:
    """The values of a column as Python objects, some thousands at a time: all of them at once would take much
    memory.
    """
    values = column(replace(raw, rows=None), name)
    for begin in range(0, len(values), CHUNK):
        chunk = values.iloc[begin : begin + CHUNK]
        if raw.rows is not None:
            first, last = np.searchsorted(raw.rows, (begin, begin + CHUNK))
            chunk = chunk.iloc[raw.rows[first:last] - begin]
        yield from _python_values(raw, name, chunk)


def _python_values(raw: Raw, name: str, chunk: pd.Series) -> list[Any]:
    try:
        values = chunk.tolist()
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "pyarrow":
            raise
        raise HeadwiseError(f"{raw.origin}: column {name!r} is damaged or not UTF-8 text ({error})") from None
    if chunk.dtype != object:
        return values
    # tensors and numpy's own numbers are scalars, too
    return [value.item() if getattr(value, "ndim", None) == 0 else value for value in values]


def missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def read_texts(path: Path, count: int) -> list[str]:
    """The first `count` sentences of a text file (one a line), or of the column `sentence` of a table or of a
    folder that holds one.

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
    texts = list(islice(column_values(raw, "sentence"), count))
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise HeadwiseError(f"{raw.where(row)}: sentence is {shown(text)}; fix or remove the row")
    return texts
