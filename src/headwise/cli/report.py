"""`headwise report`: one HTML file about any mixture of runs; figures and tables for papers."""

from pathlib import Path
from typing import Annotated

import typer

from headwise import report as pages
from headwise.cli.common import Json, emit


def report(
    folders: Annotated[
        list[Path], typer.Argument(help="Runs, training folders, or folders that .save() wrote.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--out", "--output", "-o", help="The HTML file to write. Default: report.html"),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write each figure (PDF, PNG) and table (LaTeX, CSV) here.")
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "headwise report",
    as_json: Json = False,
) -> None:
    """Writes one self-contained HTML file that opens offline, for any mix of studies.

    headwise report runs/glue runs/dissociation -o report.html --figures figures/
    """
    written: dict[str, list[str]] = {}
    if output is not None or figures is None:
        written["report"] = [str(pages.write_report(folders, output or Path("report.html"), title=title))]
    if figures is not None:
        written["figures"] = [str(path) for path in pages.write_figures(folders, figures)]
    if not emit(written, as_json):
        for kind, files in written.items():
            names = files[0] if len(files) == 1 else f"{len(files)} files in {Path(files[0]).parent}"
            typer.echo(f"{kind}: {names}")
