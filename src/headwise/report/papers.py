"""Figures and tables for papers: PDF and PNG by matplotlib, LaTeX and CSV."""

from collections.abc import Sequence
from pathlib import Path

from headwise._base.names import file_name
from headwise._base.tables import csv_text
from headwise._base.writing import make_folder, write_bytes
from headwise.figures import save_figure
from headwise.figures._blocks import Section, Table
from headwise.report.html import cell, named

LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
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
        for block in section.blocks:
            name = file_name(f"{number}-{block.name}" if len(sections) > 1 else block.name)
            if isinstance(block, Table) and tables:
                write_bytes(folder / f"{name}.tex", latex(block).encode())
                write_bytes(folder / f"{name}.csv", csv_text(block.frame).encode())
                files += [folder / f"{name}.tex", folder / f"{name}.csv"]
            elif not isinstance(block, Table):
                files += save_figure(block.draw(), folder / name)
    return files


def latex(table: Table) -> str:
    """A booktabs table."""
    frame = named(table.frame)
    align = "".join("r" if kind.kind in "fiu" else "l" for kind in frame.dtypes)
    lines = [rf"% {table.title}", rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines += [" & ".join(escaped(str(c)) for c in frame.columns) + r" \\", r"\midrule"]
    lines += [" & ".join(escaped(cell(v, table.digits)) for v in row) + r" \\" for row in frame.itertuples(index=False)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escaped(text: str) -> str:
    """Text as LaTeX shows it."""
    out = text.translate(LATEX)
    for sign, command in SIGNS.items():
        out = out.replace(sign, command)
    return out
