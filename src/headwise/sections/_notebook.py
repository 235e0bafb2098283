"""A section as a notebook shows it: text and tables, without scripts or styles from elsewhere."""

from html import escape

from headwise.sections._cells import shown_columns, shown_rows
from headwise.sections._section import Section, Table
from headwise.sections._terminal import ROWS


def html(section: Section) -> str:
    """Title, finding, tables, further findings and notes as HTML."""
    parts = [f"<h4>{escape(section.title)}</h4>", *_paragraphs([section.finding])]
    parts += [_table(table) for table in section.tables if not table.detail]
    parts += _paragraphs(
        [*section.findings[1 : ROWS + 1], *(f"Note: {note}" for note in section.notes), section.methods]
    )
    return f"<div>{''.join(parts)}</div>"


def _paragraphs(sentences: list[str]) -> list[str]:
    return [f"<p>{escape(sentence)}</p>" for sentence in sentences if sentence]


def _table(table: Table) -> str:
    shown = shown_columns(table)
    sides = ["left" if column.words else "right" for column in shown]
    head = "".join(
        f'<th style="text-align:{side}">{escape(one.heading)}</th>'
        for one, side in zip(shown, sides, strict=True)
    )
    lines = []
    for cells in shown_rows(shown)[:ROWS]:
        aligned = zip(cells, sides, strict=True)
        lines.append("".join(f'<td style="text-align:{side}">{escape(cell)}</td>' for cell, side in aligned))
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    more = len(table.frame) - len(lines)
    below = [f"and {more} more rows."] * (more > 0) + [table.caption] * bool(table.caption)
    return (
        f"<table><caption>{escape(table.title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<p>{escape(' '.join(below))}</p>"
    )
