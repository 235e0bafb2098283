"""What every verb shares: JSON or a table, and errors as one line."""

import json
import math
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from headwise import engine, figures as drawing, report, settings
from headwise._base.command import carrying_out
from headwise._base.names import legible
from headwise._base.opener import TRUST
from headwise._base.places import model_place
from headwise._base.writing import NoSpace, no_space
from headwise.cli.lists import spread_lists
from headwise.errors import HeadwiseError, Interrupted, MissingExtra
from headwise.sections import Section, Table


def trust(ctx: typer.Context, value: bool | None) -> bool | None:
    """Says so to this process and to the workers it starts, until the verb is done."""
    if value:
        os.environ[TRUST] = "1"
        ctx.call_on_close(lambda: os.environ.pop(TRUST, None))
    return value


# Options of several verbs, beside those that their settings declare.
Trust = Annotated[bool, typer.Option("--trust-remote-code", callback=trust, help=settings.TRUST.description)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=0,
        help="Number of cells (single computations) to run in parallel; 0: all in this process; "
        "default: by GPUs, cores and memory.",
    ),
]
Out = Annotated[
    Path, typer.Option("--out", "-o", help="Folder for the results; rerun the command to resume.")
]
Figures = Annotated[
    bool, typer.Option("--figures/--no-figures", help="Also draw the figures, into OUT/figures.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Override a key of the recipe: --set training.epochs=1; paths are relative to the current "
        "folder.",
    ),
]


def model_option(help: str) -> Any:
    """The option that names the model, with what a verb takes as one; a folder that is not there is said at
    once."""
    return typer.Option("--model", "-m", help=help, callback=_check_model)


def _check_model(model: str | list[str] | None) -> str | list[str] | None:
    for name in [model] if isinstance(model, str) else model or ():
        model_place(name.rpartition("=")[2])  # NAME=FOLDER names it for tables
    return model


class Verb(TyperCommand):
    """A command whose list options take several values in a row: `--shots 4 16 32` as well as `--shots 4
    --shots 16`.

    A paragraph of its help that starts with `headwise` is an example, and keeps its lines. Give it to a verb
    with `app.command("name", cls=Verb)`.
    """

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        ctx.with_resource(carrying_out(_as_typed(ctx, args)))
        try:
            with _one_line():
                return super().parse_args(ctx, spread_lists(self.params, args))
        except BaseException:
            # nothing enters a context whose options are wrong, so nothing else would end what began with it
            ctx.close()
            raise

    def invoke(self, ctx: Any) -> Any:
        """Runs it; a full disk that nothing nearer has reported becomes a `NoSpace` of the file's folder,
        else of what the verb writes to."""
        try:
            return super().invoke(ctx)
        except NoSpace:
            raise
        except Exception as error:
            folder = ctx.params.get("out") or ctx.params.get("output") or Path()
            if isinstance(getattr(error, "filename", None), str):
                folder = Path(error.filename).parent  # type: ignore[attr-defined]
            disk_error = no_space(error, Path(folder))
            if disk_error is None:
                raise
            raise disk_error from error

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        self.help = _examples(self.help or "")
        super().format_help_text(ctx, formatter)


@contextmanager
def _one_line() -> Iterator[None]:
    """A value that an option does not take is one line, as an operation's own settings say it; missing
    options show the usage too."""
    try:
        yield
    except typer.BadParameter as error:
        if type(error) is not typer.BadParameter:  # of a missing option
            raise
        raise HeadwiseError(error.format_message()) from None


def _as_typed(ctx: Any, args: Sequence[str]) -> str:
    """The command line of a verb, to copy into a shell."""
    names: list[str] = []
    while ctx.parent is not None:
        names.insert(0, ctx.info_name)
        ctx = ctx.parent
    return shlex.join(["headwise", *names, *args])


class Resumable(Verb):
    """A verb whose `--out` keeps what was finished: Ctrl-C says so."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted; finished work is in {ctx.params['out']}, rerun the command to resume"
            ) from None


class Group(TyperGroup):
    """Commands under headings, with examples that keep their lines; `sections` is heading → command → what it
    does."""

    sections: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _one_line():
            return super().parse_args(ctx, spread_lists(self.params, args, self.commands))

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        self.help = _examples(self.help or "")
        super().format_help_text(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        if not self.sections:
            super().format_commands(ctx, formatter)
        for heading, commands in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<10}", text) for name, text in commands.items()])


def _examples(text: str) -> str:
    """Paragraphs that start with `headwise` as commands to copy: their lines stay, long ones continue after a
    backslash."""
    paragraphs = text.split("\n\n")
    for index, paragraph in enumerate(paragraphs):
        if paragraph.startswith("headwise "):
            commands = re.split(r"\n(?=headwise )", paragraph)
            heading = "Example:" if len(commands) == 1 else "Examples:"
            paragraphs[index] = f"{heading}\n\n\b\n" + "\n".join(map(_continued, commands))
    return "\n\n".join(paragraphs)


def _continued(command: str) -> str:
    """A command in lines of 74 characters."""
    lines = textwrap.wrap(
        command, 74, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return " \\\n".join(lines)


_output: int | None = None  # standard output, while everything else that is printed goes to standard error


def keep_output() -> None:
    """From now on only `emit` writes to standard output: what libraries and their processes print goes to
    standard error."""
    global _output
    if _output is None:
        sys.stdout.flush()
        _output = os.dup(1)
        os.dup2(2, 1)


def emit(value: Any, as_json: bool) -> bool:
    """Prints `value` as JSON if asked; says whether it did, so that a verb prints its table otherwise."""
    if as_json:
        text = (
            json.dumps(_strict(json.loads(json.dumps(value, default=str))), indent=1, allow_nan=False) + "\n"
        )
        if _output is None:
            sys.stdout.write(text)
        else:
            with open(_output, "w", encoding="utf-8", closefd=False) as file:
                file.write(text)
    return as_json


def _strict(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for both."""
    if isinstance(value, dict):
        return {name: _strict(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_strict(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_drawing() -> None:
    """Says that matplotlib is missing at once, not after the work.

    Raises:
        HeadwiseError: it is.
    """
    try:
        drawing.panels()
    except MissingExtra as error:
        raise HeadwiseError(f"{error}, or choose --no-figures") from error


def show(section: Section, as_json: bool, out: Path | None = None, **written: Any) -> None:
    """Prints what is said of a result, as text or as JSON, and where its files are; `written` is for machines
    alone."""
    if emit({**section.to_dict(), "out": str(out) if out else None, **written}, as_json):
        return
    typer.echo(section)
    if out is not None:
        files = "tables and figures" if (out / "figures").is_dir() else "tables"
        typer.echo(f"\n{files} in {out}")


def show_run(run: Any, as_json: bool, figures: bool = False) -> None:
    """Prints what is said of a study's run, and draws its figures if asked."""
    files: list[Path] = []
    if figures:
        files = report.write_figures([run.folder], run.folder / "figures", tables=False)
    show(run.section(), as_json, run.folder, figures=[str(file) for file in files])


def print_rows(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints rows that describe no result, such as the runs in a folder."""
    import pandas as pd

    typer.echo(Section("", [], [Table("rows", title, pd.DataFrame(rows))]))


def print_mapping(title: str, values: Mapping[str, Any]) -> None:
    """Prints names and values as a table of two columns."""
    print_rows(title, [{"name": name, "value": str(value)} for name, value in values.items()])


def run_recipe(study: Any, recipe: Mapping[str, Any], out: Path, jobs: int | None, quiet: bool) -> Any:
    """Runs a study from a verb's options, as if it were a recipe in this folder; gives the run, opened."""
    return engine.run_recipe(study, recipe, out, jobs=jobs, quiet=quiet)


def fail(message: str, status: int = 2) -> NoReturn:
    """One line on standard error, and an exit status."""
    Console(stderr=True, soft_wrap=True).print(
        f"[bold red]error:[/] {escape(legible(message, 8000))}", markup=True, highlight=False
    )
    raise SystemExit(status)


def without_option(command: str, option: str) -> str:
    """A command as it was typed, less an option and its values."""
    words: list[str] = []
    skipping = False
    for word in shlex.split(command):
        if word.startswith("-"):
            skipping = word == option
        if not skipping and not word.startswith(f"{option}="):
            words.append(word)
    return shlex.join(words)
