"""Figures and tables for papers: PDF and PNG by matplotlib, LaTeX and CSV."""

from collections.abc import Sequence
from pathlib import Path

from headwise._base.names import file_name
from headwise._base.tables import csv_text
from headwise._base.writing import make_folder, write_bytes
from headwise.figures import save_figure
from headwise.sections import Section, Table, shown_columns, shown_rows

LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
)
SIGNS = {
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "–": "--",
    "α": r"$\alpha$",
    "δ": r"$\delta$",
    "σ": r"$\sigma$",
    "→": r"$\to$",
    "≥": r"$\ge$",
}


def write(sections: Sequence[Section], folder: str | Path, *, tables: bool = True) -> list[Path]:
    """Writes every figure and table of a report into `folder`; gives the files."""
    folder = make_folder(folder)
    files: list[Path] = []
    for number, section in enumerate(sections, 1):
        prefix = f"{number}-" if len(sections) > 1 else ""
        for figure in section.figures:
            files += save_figure(figure.draw(), folder / file_name(prefix + figure.name))
        if tables:
            for table in section.tables:
                files += _write_table(table, folder / file_name(prefix + table.name))
    return files


def _write_table(table: Table, path: Path) -> list[Path]:
    """Writes a table as LaTeX and CSV, under a path without ending."""
    tex, csv = Path(f"{path}.tex"), Path(f"{path}.csv")
    write_bytes(tex, latex(table).encode())
    write_bytes(csv, csv_text(table.frame).encode())
    return [tex, csv]


def latex(table: Table) -> str:
    """A booktabs table."""
    columns = shown_columns(table)
    align = "".join("rl"[column.words] for column in columns)
    lines = [rf"% {table.title}", rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines += [" & ".join(escaped(column.heading) for column in columns) + r" \\", r"\midrule"]
    lines += [" & ".join(map(escaped, cells)) + r" \\" for cells in shown_rows(columns)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escaped(text: str) -> str:
    """Text as LaTeX shows it."""
    out = text.translate(LATEX)
    for sign, command in SIGNS.items():
        out = out.replace(sign, command)
    return out
