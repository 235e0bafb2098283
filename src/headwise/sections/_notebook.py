"""A section as a notebook shows it: text and tables, without scripts or styles from elsewhere."""

from html import escape
from typing import TYPE_CHECKING

from headwise._base.sentences import counted
from headwise.sections._cells import Table, shown_columns, shown_rows
from headwise.sections._terminal import ROWS

if TYPE_CHECKING:
    from headwise.sections._section import Section


def html(section: "Section") -> str:
    """Title, finding, tables, further findings and notes as HTML."""
    notes = [f"Note: {note}" for note in section.notes]
    blocks = [f"<h4>{escape(section.title)}</h4>", *_paragraphs([section.finding])]
    blocks += [_table(table) for table in section.tables if not table.detail]
    blocks += _paragraphs([*section.findings[1 : ROWS + 1], *notes, section.methods])
    return f"<div>{''.join(blocks)}</div>"


def _paragraphs(sentences: list[str]) -> list[str]:
    return [f"<p>{escape(sentence)}</p>" for sentence in sentences if sentence]


def _table(table: Table) -> str:
    columns = shown_columns(table)
    styles = [f'style="text-align:{"left" if column.words else "right"}"' for column in columns]
    headings = [
        f"<th {style}>{escape(column.heading)}</th>" for column, style in zip(columns, styles, strict=True)
    ]
    rows = []
    for cells in shown_rows(columns)[:ROWS]:
        row = [f"<td {style}>{escape(cell)}</td>" for cell, style in zip(cells, styles, strict=True)]
        rows.append(f"<tr>{''.join(row)}</tr>")
    hidden = len(table.frame) - len(rows)
    below = [table.caption]
    if hidden > 0:
        below.insert(0, f"and {counted(hidden, 'more row')}.")
    return (
        f"<table><caption>{escape(table.title)}</caption><thead><tr>{''.join(headings)}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table><p>{escape(' '.join(below).strip())}</p>"
    )
