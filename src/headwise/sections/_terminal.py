"""A section as text: paragraphs and tables that fit the width of a terminal, 80 columns where there is none."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from textwrap import wrap

from headwise._base.names import legible
from headwise.sections._cells import NOTHING, Column, shown_columns, shown_rows
from headwise.sections._section import Section, Table

PARAGRAPH = 100  # longer lines are hard to read
ROWS = 40  # of a table; files and page hold the others
NARROWEST = 16  # of a column of words that is wrapped
LONGEST = 40  # word that is not broken
GAP = "  "
NOTE = "note"  # ends the headings of columns whose sentences stand below the table, numbered


def text(section: Section, width: int | None = None) -> str:
    """Title, finding, tables, further findings, notes, and how it was done."""
    width = width or shutil.get_terminal_size().columns
    parts = [_underlined(section.title), paragraph(section.finding, width)]
    parts += [table_text(table, width) for table in section.tables if not table.detail]
    parts.append("\n".join(paragraph(sentence, width, "- ") for sentence in section.findings[1 : ROWS + 1]))
    parts.append("\n".join(paragraph(note, width, "note: ") for note in section.notes))
    parts.append(paragraph(section.methods, width))
    return "\n\n".join(part for part in parts if part)


def _underlined(title: str) -> str:
    title = legible(title)
    return f"{title}\n{'=' * len(title)}" if title else ""


def paragraph(sentence: str, width: int, first: str = "") -> str:
    """A sentence in lines of `width`, those after the first one indented below it."""
    rest = " " * len(first)
    lines = wrap(
        legible(sentence),
        min(width, PARAGRAPH),
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def table_text(table: Table, width: int) -> str:
    """A table with its title and caption.

    Where it is too wide, headings and columns of words are wrapped; where that is not enough, the columns that have no room continue below,
    beside the first ones, which name the rows.
    """
    shown = [
        Column(legible(one.heading), [*map(legible, one.cells[:ROWS])], one.words)
        for one in shown_columns(table)
    ]
    shown, reasons = _numbered(shown)
    lines = [legible(table.title), *_body(shown, width)]
    if (more := len(table.frame) - ROWS) > 0:
        lines.append(f"and {more} more row{'s' * (more > 1)}")
    lines += [paragraph(reason, width, f"[{number}] ") for number, reason in enumerate(reasons, 1)]
    return "\n".join([*lines, *([paragraph(table.caption, width)] if table.caption else [])])


def _numbered(shown: list[Column]) -> tuple[list[Column], list[str]]:
    """The columns with numbers in place of the sentences of columns of notes, and these sentences."""
    notes = [column for column in shown if column.heading.endswith(NOTE)]
    reasons: list[str] = []
    for column in notes:
        reasons += [cell for cell in dict.fromkeys(column.cells) if cell not in ("", NOTHING, *reasons)]
    marks = {reason: f"[{number}]" for number, reason in enumerate(reasons, 1)}
    marked = {
        id(column): replace(column, cells=[marks.get(cell, "") for cell in column.cells]) for column in notes
    }
    return [marked.get(id(column), column) for column in shown], reasons


def _body(shown: list[Column], width: int) -> list[str]:
    """Headings and rows, in as many blocks of columns as the width needs."""
    naming = next((place for place, column in enumerate(shown) if not column.words), 1) or 1
    if _across(map(_least, shown[:naming])) > width // 2:
        naming = 1
    names, others = shown[:naming], shown[naming:]
    lines: list[str] = []
    while others or not lines:
        count = len(others)
        while count > 1 and _across(map(_least, [*names, *others[:count]])) > width:
            count -= 1
        lines += [*([""] if lines else []), *_block([*names, *others[:count]], width)]
        others = others[count:]
    return lines


def _block(shown: list[Column], width: int) -> list[str]:
    """Columns beside one another; what has room to spare gives it first."""
    widths, least = (
        [max(len(cell) for cell in (one.heading, *one.cells)) for one in shown],
        [*map(_least, shown)],
    )
    while _across(widths) > width and widths != least:
        widest = max(range(len(shown)), key=lambda place: widths[place] - least[place])
        widths[widest] -= 1
    lines = _row([column.heading for column in shown], shown, widths)
    lines.append(GAP.join("-" * size for size in widths))
    for cells in shown_rows(shown):
        lines += _row(cells, shown, widths)
    return lines


def _least(column: Column) -> int:
    """The least width of a column: numbers stay whole, headings and cells of words break between words."""
    heading = max(map(len, column.heading.split()), default=0)
    cells = max(map(len, column.cells), default=0)
    if column.words:
        longest = max(map(len, " ".join(column.cells).split()), default=0)
        cells = min(cells, max(NARROWEST, min(longest, LONGEST)))
    return max(heading, cells)


def _across(widths: Iterable[int]) -> int:
    """The width of columns beside one another."""
    sizes = list(widths)
    return sum(sizes) + len(GAP) * (len(sizes) - 1)


def _row(cells: Sequence[str], shown: list[Column], widths: list[int]) -> list[str]:
    """One row, whose cells may take several lines."""
    folded = [
        wrap(cell, size, break_on_hyphens=False) or [""] for cell, size in zip(cells, widths, strict=True)
    ]
    lines = []
    for number in range(max(map(len, folded))):
        pieces = [piece[number] if number < len(piece) else "" for piece in folded]
        aligned = zip(pieces, shown, widths, strict=True)
        line = GAP.join(
            piece.ljust(size) if column.words else piece.rjust(size) for piece, column, size in aligned
        )
        lines.append(line.rstrip())
    return lines
