"""A section as text: paragraphs and tables that fit the width of a terminal, 80 columns where there is
none."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING

from headwise._base.names import legible
from headwise._base.sentences import counted
from headwise.sections._cells import NOTHING, Column, Table, shown_columns, shown_rows

if TYPE_CHECKING:
    from headwise.sections._section import Section

PARAGRAPH = 100  # longer lines are hard to read
ROWS = 40  # of a table; files and page hold the others
NARROWEST = 16  # of a column of words that is wrapped
LONGEST = 40  # word that is not broken
GAP = "  "
NOTE = "note"  # ends the headings of columns whose sentences stand below the table, numbered


def text(section: "Section", width: int | None = None) -> str:
    """Title, finding, tables, further findings, notes, and how it was done."""
    width = width or shutil.get_terminal_size().columns
    blocks = [_underlined(section.title), paragraph(section.finding, width)]
    blocks += [table_text(table, width) for table in section.tables if not table.detail]
    blocks.append("\n".join(paragraph(finding, width, "- ") for finding in section.findings[1 : ROWS + 1]))
    blocks.append("\n".join(paragraph(note, width, "note: ") for note in section.notes))
    blocks.append(paragraph(section.methods, width))
    return "\n\n".join(filter(None, blocks))


def _underlined(title: str) -> str:
    title = legible(title)
    return f"{title}\n{'=' * len(title)}" if title else ""


def paragraph(sentence: str, width: int, prefix: str = "") -> str:
    """A sentence in lines of `width`; after the first one, which begins with the prefix, they are indented
    below it."""
    lines = wrap(
        legible(sentence),
        min(width, PARAGRAPH),
        initial_indent=prefix,
        subsequent_indent=" " * len(prefix),
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def table_text(table: Table, width: int) -> str:
    """A table with its title and caption.

    Where it is too wide, headings and columns of words are wrapped; where that is not enough, the columns
    that have no room continue below, beside the first ones, which name the rows.
    """
    columns = []
    for column in shown_columns(table):
        cells = [legible(cell) for cell in column.cells[:ROWS]]
        columns.append(Column(legible(column.heading), cells, column.words))
    columns, reasons = _numbered(columns)
    lines = [legible(table.title), *_body(columns, width)]
    hidden = len(table.frame) - ROWS
    if hidden > 0:
        lines.append(f"and {counted(hidden, 'more row')}")
    lines += [paragraph(reason, width, f"[{number}] ") for number, reason in enumerate(reasons, 1)]
    if table.caption:
        lines.append(paragraph(table.caption, width))
    return "\n".join(lines)


def _numbered(columns: list[Column]) -> tuple[list[Column], list[str]]:
    """The columns with numbers in place of the sentences of columns of notes, and these sentences."""
    marks: dict[str, str] = {"": "", NOTHING: ""}
    numbered = []
    for column in columns:
        if column.heading.endswith(NOTE):
            for reason in column.cells:
                marks.setdefault(reason, f"[{len(marks) - 1}]")
            column = replace(column, cells=[marks[reason] for reason in column.cells])
        numbered.append(column)
    return numbered, list(marks)[2:]


def _body(columns: list[Column], width: int) -> list[str]:
    """Headings and rows, in as many blocks of columns as the width needs."""
    if not columns:
        return []
    numeric = [index for index, column in enumerate(columns) if not column.words]
    naming = max([1, *numeric[:1]])
    if _total_width(map(_least_width, columns[:naming])) > width // 2:
        naming = 1
    names, remaining = columns[:naming], columns[naming:]
    lines: list[str] = []
    while remaining or not lines:
        count = len(remaining)
        while count > 1 and _total_width(map(_least_width, [*names, *remaining[:count]])) > width:
            count -= 1
        if lines:
            lines.append("")
        lines += _block([*names, *remaining[:count]], width)
        remaining = remaining[count:]
    return lines


def _block(columns: list[Column], width: int) -> list[str]:
    """Columns beside one another; what has room to spare gives it first."""
    least = [_least_width(column) for column in columns]
    widths = [max(map(len, (column.heading, *column.cells))) for column in columns]
    while _total_width(widths) > width and widths != least:
        widest = max(range(len(columns)), key=lambda index: widths[index] - least[index])
        widths[widest] -= 1
    lines = _row([column.heading for column in columns], columns, widths)
    lines.append(GAP.join("-" * size for size in widths))
    for cells in shown_rows(columns):
        lines += _row(cells, columns, widths)
    return lines


def _least_width(column: Column) -> int:
    """The least width of a column: numbers stay whole, headings and cells of words break between words."""
    heading = max(map(len, column.heading.split()), default=0)
    cells = max(map(len, column.cells), default=0)
    if column.words:
        longest = max(map(len, " ".join(column.cells).split()), default=0)
        cells = min(cells, max(NARROWEST, min(longest, LONGEST)))
    return max(heading, cells)


def _total_width(widths: Iterable[int]) -> int:
    """The width of columns beside one another."""
    sizes = list(widths)
    return sum(sizes) + len(GAP) * (len(sizes) - 1)


def _row(cells: Sequence[str], columns: list[Column], widths: list[int]) -> list[str]:
    """One row, whose cells may take several lines."""
    folded = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        align = str.ljust if column.words else str.rjust
        folded.append([align(piece, width) for piece in wrap(cell, width, break_on_hyphens=False)])
    blanks = [" " * width for width in widths]
    lines = []
    for number in range(max(1, *map(len, folded))):
        pieces = [
            pieces[number] if number < len(pieces) else blank
            for pieces, blank in zip(folded, blanks, strict=True)
        ]
        lines.append(GAP.join(pieces).rstrip())
    return lines
