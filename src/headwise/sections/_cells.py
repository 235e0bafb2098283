"""The cells of a table as text: the one rule for decimals, and what is left out or put together where people
read."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from headwise import tasks

if TYPE_CHECKING:
    import pandas as pd

SIGNIFICANT, LEAST, MOST = 3, 1, 4  # digits of a column's largest value; its decimals, at least and at most
NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """A table. `name` is its file name among those for papers; one of `detail` is left out where room is
    short, in a terminal."""

    name: str
    title: str
    frame: "pd.DataFrame"
    caption: str = ""
    detail: bool = False


@dataclass(frozen=True)
class Column:
    """One column of a table, ready to read; columns of words are aligned to the left."""

    heading: str
    cells: list[str]
    words: bool


def shown_columns(table: Table) -> list[Column]:
    """A table as people read it: metrics by their names, the two ends of an interval as one column, columns
    that say nothing left out."""
    frame = table.frame
    if "metric" in frame:
        frame = frame.assign(metric=frame["metric"].map(tasks.metric_label))
    names = [str(name) for name in frame.columns]
    columns = {name: _column(name, frame.iloc[:, index]) for index, name in enumerate(names)}
    for name in names:
        stem = name.removesuffix("low")
        if stem != name and f"{stem}high" in columns:
            columns[name] = _interval(columns[name], columns.pop(f"{stem}high"), stem)
    if len(frame):
        filled = [column for column in columns.values() if not {*column.cells} <= {"", NOTHING}]
        return filled or list(columns.values())
    return list(columns.values())


def shown_rows(shown: list[Column]) -> list[tuple[str, ...]]:
    """The cells of columns, row by row."""
    return list(zip(*(column.cells for column in shown), strict=True))


def _column(heading: str, values: "pd.Series[Any]") -> Column:
    digits = decimals(values)
    kinds: set[Any] = {type(value) for value in values if value is not None}
    words = not all(issubclass(kind, Real) and kind is not bool for kind in kinds)
    return Column(heading, [cell(value, digits) for value in values], words)


def _interval(low: Column, high: Column, stem: str) -> Column:
    spans = []
    for start, end in zip(low.cells, high.cells, strict=True):
        spans.append(NOTHING if NOTHING in (start, end) else f"{start} to {end}")
    return replace(low, heading=f"{stem.rstrip('_ ')} interval".strip(), cells=spans)


def decimals(values: Iterable[Any]) -> int:
    """Decimals of a column: as many as show three digits of its largest value, at least one and at most
    four."""
    sizes = [
        abs(float(value)) for value in values if isinstance(value, Real) and not isinstance(value, Integral)
    ]
    largest = max((size for size in sizes if math.isfinite(size)), default=0.0)
    if largest == 0:
        return LEAST
    return min(MOST, max(LEAST, SIGNIFICANT - 1 - math.floor(math.log10(largest))))


def cell(value: Any, digits: int) -> str:
    """One cell: numbers with `digits` decimals, those that would vanish with as many as they need; a dash for
    a missing number."""
    if value is None:
        return NOTHING
    if isinstance(value, Real) and not isinstance(value, Integral):
        size = float(value)
        if math.isnan(size):
            return NOTHING
        if size == 0 or abs(size) >= 10**-digits:
            return f"{size:.{digits}f}"
        return f"{size:.2g}"
    return str(value)
