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
        before = f"{number}-" if len(sections) > 1 else ""
        for figure in section.figures:
            files += save_figure(figure.draw(), folder / file_name(before + figure.name))
        for table in section.tables if tables else ():
            name = file_name(before + table.name)
            write_bytes(folder / f"{name}.tex", latex(table).encode())
            write_bytes(folder / f"{name}.csv", csv_text(table.frame).encode())
            files += [folder / f"{name}.tex", folder / f"{name}.csv"]
    return files


def latex(table: Table) -> str:
    """A booktabs table."""
    shown = shown_columns(table)
    align = "".join("l" if column.words else "r" for column in shown)
    lines = [rf"% {table.title}", rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines += [" & ".join(escaped(column.heading) for column in shown) + r" \\", r"\midrule"]
    lines += [" & ".join(map(escaped, cells)) + r" \\" for cells in shown_rows(shown)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escaped(text: str) -> str:
    """Text as LaTeX shows it."""
    out = text.translate(LATEX)
    for sign, command in SIGNS.items():
        out = out.replace(sign, command)
    return out
