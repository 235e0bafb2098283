"""A report as files: one page, or figures and tables for papers."""

from collections.abc import Sequence
from pathlib import Path

from headwise._base.writing import make_folder
from headwise.report import papers
from headwise.report.folders import read
from headwise.report.html import render
from headwise.store import write_text


def write_report(folders: Sequence[str | Path], path: str | Path, *, title: str = "headwise report") -> Path:
    """Writes one self-contained HTML file about any mixture of runs and saved results.

    Args:
        folders: runs of studies, training runs, or folders that `.save()` wrote.
        path: the HTML file.
        title: heading of the page.
    """
    path = Path(path)
    make_folder(path.parent)
    write_text(path, render(read(folders), title))
    return path


def write_figures(folders: Sequence[str | Path], folder: str | Path, *, tables: bool = True) -> list[Path]:
    """Writes each figure as PDF and PNG, and each table as LaTeX and CSV.

    Args:
        folders: as for `write_report`.
        folder: where the files go.
        tables: write tables too.
    """
    return papers.write(read(folders), folder, tables=tables)
