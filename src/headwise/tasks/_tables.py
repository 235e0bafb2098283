"""Tables in files: CSV, TSV, JSON lines, parquet and plain lines, compressed or not, read without guessing
what a cell means.
"""

import csv
import io
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, dropwhile
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from headwise._base.names import HALF, listed, shown, writable
from headwise._base.parsing import one_line, parse_json, reading
from headwise._base.unpacking import open_bytes, read_parquet
from headwise.errors import HeadwiseError

ROWS = 10_000  # of a table made from Python objects at once
TABLES = (".parquet", ".csv", ".tsv", ".jsonl", ".json", ".ndjson")
LINES = ".txt"  # read where it is named, never found in a folder, which may have a README.txt
PACKED = (".xz", ".gz", ".bz2")
DELIMITERS = ",;\t|"  # of a .csv file: the one that makes most columns of its header, the first of equals
EXACT = 2**53  # whole numbers up to here are floats, too
CELL = 2**31 - 1  # characters of a cell; the csv module allows 131,072 unless told otherwise
SEPARATOR = re.compile(r"sep=(.)\s*$", re.IGNORECASE)
QUOTED = re.compile(r'"(?:[^"]|"")*"')


def suffix(path: Path) -> str:
    """The suffix that tells the format, compression left aside: "train.jsonl.xz" -> ".jsonl"."""
    if path.suffix.lower() in PACKED:
        path = Path(path.stem)
    return path.suffix.lower()


def stem(path: Path) -> str:
    """The name without format and compression: "train.jsonl.xz" -> "train"."""
    return path.name.split(".")[0]


@contextmanager
def open_text(path: Path, newline: str | None = None) -> Iterator[TextIO]:
    """Opens a text file for reading as UTF-8, unpacking .xz, .gz and .bz2 on the way; a byte-order mark is
    left out.

    Args:
        path: the file.
        newline: as for `open`: "" leaves line ends as they are.

    Raises:
        HeadwiseError: there is no such file, or (here or while it is read) it is not UTF-8, not packed as its
            name says, or unpacks to more than it may.
    """
    if not os.path.isfile(path):  # pathlib's own raises where a name is too long
        raise HeadwiseError(f"there is no file {path}")
    with (
        reading(path, "UTF-8 text"),
        open_bytes(path) as file,
        io.TextIOWrapper(file, encoding="utf-8-sig", newline=newline) as handle,
    ):
        yield handle


def read_table(path: Path, notes: bool = False, numbers: bool = False) -> pd.DataFrame:
    """Reads parquet, CSV, TSV or JSON lines (a .json file may also be one list of objects, or one object of
    lists), compressed or not; .txt: one text a line.

    Cells of CSV and TSV files are text as they are written, and missing where they are empty: "NA" and "null"
    are ordinary words.

    Args:
        path: a file.
        notes: whether lines at the head of a CSV file that begin with "# " are notes, not its header.
        numbers: whether columns of a CSV or TSV file in which every cell is a number become numbers.

    Raises:
        HeadwiseError: the file is missing, broken, or of an unknown format, or it unpacks to more than it
            may.
    """
    if not os.path.isfile(path):
        raise HeadwiseError(f"there is no file {path}")
    kind = suffix(path)
    with reading(path, kind[1:]):
        if kind == ".parquet":
            return read_parquet(path)
        if kind in (".csv", ".tsv"):
            table = _read_csv(path, kind, notes)
            if numbers:
                table = table.apply(_as_numbers)
            return table
        if kind in (".jsonl", ".ndjson", ".json"):
            return _read_json(path)
        if kind == LINES:
            return pd.DataFrame({"text": read_lines(path)})
    raise HeadwiseError(
        f"{path} has an unknown format {kind!r}; expected one of {', '.join(TABLES)}, or {LINES} (one text a "
        "line), also with "
        f"{', '.join(PACKED)}"
    )


def read_lines(path: Path) -> list[str]:
    """The lines of a file that hold anything."""
    with open_text(path) as handle:
        return [line.strip() for line in handle if line.strip()]


def _as_numbers(column: pd.Series) -> pd.Series:
    try:
        return pd.to_numeric(column)
    except (ValueError, TypeError):
        return column


def _read_csv(path: Path, kind: str, notes: bool) -> pd.DataFrame:
    """A table made chunk by chunk: the Python objects of all rows at once would take much memory.

    Two columns may have one name; whoever reads such a column refuses it.
    """
    chunks, chunk = [], []
    quotes = _Quotes()
    with open_text(path, newline="") as handle:
        lines = dropwhile(lambda line: notes and line.startswith("# "), handle)
        header, rows = _rows(path, kind[1:], lines)
        for number, row in rows:
            if len(row) != len(header):
                raise HeadwiseError(
                    f"{path} could not be read as {kind[1:]}: line {number} has {len(row)} cells, the header "
                    f"has {len(header)}; a cell of "
                    "a CSV file that holds a comma or a line break must be quoted"
                )
            if kind == ".tsv":
                quotes.see(row)
            chunk.append([cell or None for cell in row])
            if len(chunk) == ROWS:
                chunks.append(pd.DataFrame(chunk, columns=header))
                chunk = []
    if quotes.doubled and not quotes.bare:
        warnings.warn(
            f"{path}: its cells are quoted like those of a CSV file, but the quotes of .tsv files belong to "
            "the text; call it .csv to have "
            "them taken away",
            stacklevel=2,
        )
    if chunk or not chunks:
        chunks.append(pd.DataFrame(chunk, columns=header))
    return chunks[0] if len(chunks) == 1 else pd.concat(chunks, ignore_index=True)


class _Quotes:
    """What the quotes in cells are: part of the text, or around cells in which quotes are doubled."""

    bare = doubled = False

    def see(self, row: Sequence[str]) -> None:
        for cell in row:
            if '"' in cell:
                quoted = QUOTED.fullmatch(cell) is not None
                self.bare = self.bare or not quoted
                self.doubled = self.doubled or (quoted and '""' in cell[1:-1])


def _rows(path: Path, kind: str, lines: Iterator[str]) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The header of a CSV or TSV file, and its other rows, each with the number of its last line; empty lines
    are left out.
    """
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise HeadwiseError(f"{path} could not be read as {kind}: it is empty")
    # of the process: it is raised, and never lowered under another reader's feet
    if csv.field_size_limit() < CELL:
        csv.field_size_limit(CELL)
    if kind == "tsv":  # GLUE's files have quotes that mean nothing
        reader = csv.reader(chain([first], lines), delimiter="\t", quoting=csv.QUOTE_NONE)
    elif named := SEPARATOR.match(first):  # written by spreadsheet programs, for spreadsheet programs
        reader = csv.reader(lines, delimiter=named[1], strict=True)
    else:
        delimiter = max(DELIMITERS, key=partial(_columns, first))
        reader = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error as error:
            raise HeadwiseError(
                f"{path} could not be read as {kind}: line {reader.line_num}: {one_line(error)}; a quote "
                "inside a quoted cell is written twice"
            ) from None

    numbered_rows = rows()
    _, header = next(numbered_rows, (0, []))
    return [name or f"Unnamed: {number}" for number, name in enumerate(header)], numbered_rows


def _columns(header: str, delimiter: str) -> int:
    """How many columns a header has with a delimiter; 0: it cannot be the delimiter."""
    try:
        return len(next(csv.reader([header], delimiter=delimiter, strict=True)))
    except csv.Error:
        return 0


def _read_json(path: Path) -> pd.DataFrame:
    """JSON lines, one list of objects, or one object of columns."""
    with open_text(path) as handle:
        content = handle.read()
    if content.lstrip()[:1] == "[":
        rows = parse_json(content, str(path), unique=True)
        for number, row in enumerate(rows, 1):
            if not isinstance(row, dict):
                raise HeadwiseError(f"{path}, row {number}: expected an object, got {shown(row)}")
        return table_of_rows(rows)
    if suffix(path) == ".json":
        table = _from_object(path, content)
        if table is not None:
            return table
    rows = []
    for number, line in enumerate(content.split("\n"), 1):
        if line.strip():
            row = parse_json(line, f"{path}, line {number}", unique=True)
            if not isinstance(row, dict):
                raise HeadwiseError(f"{path}, line {number}: expected an object, got {shown(row)}")
            if "\\ud" in line.lower() and not writable(json.dumps(row, ensure_ascii=False)):
                raise HeadwiseError(f"{path}, line {number} {HALF}; fix or remove the line")
            rows.append(row)
    return table_of_rows(rows)


def _from_object(path: Path, content: str) -> pd.DataFrame | None:
    """One JSON object: the columns of a table (lists of one length, or what pandas' `to_json` writes, {"0":
    value, ...}), else its one row. None: it is not one object."""
    try:
        value = parse_json(content, str(path), unique=True)
    except HeadwiseError:
        return None  # several objects: JSON lines, whose errors name the line
    if not isinstance(value, dict) or not writable(content):
        return None
    columns = list(value.values())
    if columns and all(isinstance(column, list) for column in columns):
        return as_table(value, str(path))
    if columns and all(isinstance(column, dict) and list(column) == list(columns[0]) for column in columns):
        return as_table({name: list(column.values()) for name, column in value.items()}, str(path))
    return pd.DataFrame([value])


def table_of_rows(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A table of rows."""
    return _exact(pd.DataFrame(rows), lambda name: [row.get(name) for row in rows])


def _exact(table: pd.DataFrame, column: Callable[[Any], Sequence[Any]]) -> pd.DataFrame:
    """The table with the whole numbers of its columns as they were: beside a missing one pandas rounds large
    ones, and labels that differ in their last digit would become one class."""
    for name in table.select_dtypes("float").columns:
        values = column(name)
        if any(isinstance(value, int) and abs(value) > EXACT for value in values):
            table[name] = pd.Series(list(values), dtype=object)
    return table


def as_table(columns: Mapping[str, list[Any]], origin: str) -> pd.DataFrame:
    """A table of columns of one length.

    Raises:
        HeadwiseError: their lengths differ.
    """
    lengths = {str(name): len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        named = listed(f"{name} has {length} values" for name, length in lengths.items())
        raise HeadwiseError(f"{origin}: the columns of a table must have one length, but {named}")
    return _exact(
        pd.DataFrame({name: pd.Series(column) for name, column in columns.items()}), columns.__getitem__
    )
