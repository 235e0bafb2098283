"""`headwise study`: run a study from its recipe, see how it stands, check it, export it."""

import signal
import time
from collections import Counter
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from headwise import engine
from headwise._base.command import carrying_out, given
from headwise._base.progress import duration
from headwise._base.sentences import counted
from headwise.cli.common import (
    Group,
    Jobs,
    Json,
    Sets,
    Trust,
    Verb,
    emit,
    print_mapping,
    print_rows,
    show as show_section,
    without_option,
)
from headwise.errors import HeadwiseError
from headwise.settings import QUIET
from headwise.studies import STUDIES

STATES = ("done", "running", "failed", "blocked", "to come")
COUNTS = ("total", "found", "computed", "failed", "blocked", "damaged")
LISTED = 40  # cells that `show` lists one by one unless asked for all

Source = Annotated[
    Path,
    typer.Argument(
        help="A recipe (TOML file), the name of one in `headwise study recipes`, or an earlier run's folder."
    ),
]
RunFolder = Annotated[Path, typer.Argument(help="The run's folder.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="The run's folder; default: runs/ and the recipe's name.")
]
Scale = Annotated[str | None, typer.Option("--scale", help="A scale that the recipe defines, e.g. small.")]


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    study = typer.Typer(
        cls=Group,
        no_args_is_help=True,
        rich_markup_mode=None,
        help="Studies: run from a recipe, resume, show, check, export.\n\n"
        "headwise study run training-small --out runs/small",
    )
    for command in (recipes, run, runs, show, validate, export):
        study.command(command.__name__, cls=Verb)(command)
    app.add_typer(study, name="study")


def recipes(
    name: Annotated[
        str | None, typer.Argument(help="Print this recipe, e.g. to start one of your own from it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Lists the recipes that come with headwise, or prints one.

    headwise study recipes specialization-five > mine.toml
    """
    files = engine.packaged_recipes()
    if name is not None:
        engine.find_recipe(name)  # says if there is none
        typer.echo(files[name].read_text(encoding="utf-8"), nl=False)
        return
    rows = []
    for recipe in files:
        data, _ = engine.find_recipe(recipe)
        scales = sorted(data.get("scale", {}))
        rows.append({"recipe": recipe, "title": data.get("title", ""), "scales": scales})
    if not emit(rows, as_json):
        print_rows("Recipes", [{**row, "scales": " ".join(row["scales"])} for row in rows])
        typer.echo("run one: headwise study run NAME [--scale small] [--set KEY=VALUE]")


def run(
    source: Source,
    out: Out = None,
    sets: Sets = None,
    scale: Scale = None,
    backend: Annotated[
        str, typer.Option("--engine", help="local (processes on this machine) or ray (a cluster).")
    ] = "local",
    jobs: Jobs = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="CPU threads per worker; default: cores divided by the most workers, and at most "
            "OMP_NUM_THREADS.",
        ),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster; default: start one on this machine.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", help="Compute only cells with this coordinate, and what they need: --only seed=0"
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help=QUIET.description)] = False,
    as_json: Json = False,
    trust_remote_code: Trust = False,
) -> None:
    """Computes the missing cells of a study; rerun to resume. Exit status: 1 if cells failed, 2 for a user
    error, 130 if interrupted.

    headwise study run training-small --out runs/small --set training.epochs=1
    """
    coordinates = engine.parse_only(only or ())
    study, data, base, folder = _open(source, out, sets, scale)
    recipe = engine.ready(study, data, base, folder)
    # a cluster that takes the machine back is Ctrl-C too
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    where: dict[str, Any] = {"engine": backend, "jobs": jobs, "threads": threads, "address": address}
    with carrying_out(without_option(given(), "--only")):  # which the report says makes all of it
        board = engine.run_study(study, recipe, folder, only=coordinates, quiet=quiet, **where)
    remaining = 0
    if coordinates:
        remaining = sum(cell["state"] != "done" for cell in engine.Run(folder).cells())
    counts = {name: getattr(board, name) for name in COUNTS}
    if not as_json:
        print_mapping(str(folder), counts)
        typer.echo("")
    incomplete = board.failed or board.blocked or remaining
    if not incomplete and study.section is not None and engine.Run(folder).files:
        show_section(engine.Run(folder).section(), as_json, folder, run=str(folder), **counts)
    elif not emit({"run": str(folder), **counts, "findings": []}, as_json) and remaining and not board.failed:
        typer.echo(f"{counted(remaining, 'cell')} left: headwise study run {folder}")
    if board.failed or board.blocked:
        typer.echo(
            f"{counted(board.failed, 'cell')} failed: see headwise study show {folder}; rerun the study to "
            "retry them",
            err=True,
        )
        raise typer.Exit(1)


def runs(
    folder: Annotated[Path, typer.Argument(help="Where to look.")] = Path("runs"), as_json: Json = False
) -> None:
    """Lists the runs below a folder.

    headwise study runs results
    """
    if not folder.is_dir():
        raise HeadwiseError(f"no runs: there is no folder {folder.absolute()}; name the one that holds them")
    rows = []
    for plan in sorted(folder.rglob(engine.PLAN_FILE)):
        states = Counter(cell["state"] for cell in engine.Run(plan.parent).cells())
        counts = {state: states[state] for state in ("done", "running", "failed")}
        rows.append({"run": str(plan.parent), "cells": states.total(), **counts})
    if emit(rows, as_json):
        return
    if rows:
        print_rows(f"runs in {folder}", rows)
    else:
        typer.echo(f"no runs of studies in {folder}")


def show(
    folder: RunFolder,
    every: Annotated[
        bool, typer.Option("--all", help=f"List every cell, not only the first {LISTED}.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Compare every result with its checksums; exit status 1 if one differs."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Prints what is done, running, failed (with the error) and pending, with times.

    headwise study show runs/small --check
    """
    opened = engine.Run(folder)
    steps: dict[str, Counter[str]] = {}
    spent: Counter[str] = Counter()
    listed: list[dict[str, Any]] = []
    for cell in opened.cells():
        steps.setdefault(cell["step"], Counter())[cell["state"]] += 1
        spent[cell["step"]] += cell.get("seconds") or 0
        if every or as_json or cell["state"] in ("failed", "running") or len(listed) < LISTED:
            listed.append(cell)
    facts: dict[str, Any] = {"steps": steps, "seconds": spent, "cells": listed}
    damaged: dict[str, list[str]] = {}
    if check:
        facts["damaged"] = damaged = opened.damage()
    if not emit(facts, as_json):
        print_rows(str(folder), [_progress(step, counts, spent[step]) for step, counts in steps.items()])
        typer.echo("")
        if not every:
            listed = listed[:LISTED]
        print_rows("cells", [_row(cell) for cell in listed])
        for name, wrong in damaged.items():
            typer.echo(f"damaged: results/{name}: {'; '.join(wrong)}", err=True)
        if check and not damaged:
            typer.echo("\nchecked: every result is as it was written")
    if damaged:
        raise typer.Exit(1)


def validate(
    source: Source, out: Out = None, sets: Sets = None, scale: Scale = None, as_json: Json = False
) -> None:
    """Checks a recipe, its data and models, and the disk, and computes nothing.

    headwise study validate training-small
    """
    study, data, base, folder = _open(source, out, sets, scale)
    _, facts = engine.validate(study, data, base, folder)
    if not emit(facts, as_json):
        print_mapping(f"{source} is ready to run", facts)


def export(
    folder: RunFolder,
    to: Annotated[
        Path | None, typer.Option("--to", help="Name of the files to write, without .parquet and .csv.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Writes every number of a run into one tidy parquet file and the same as CSV.

    headwise study export runs/small --to small
    """
    target = to or folder / "numbers"
    rows = engine.export(engine.Run(folder), target)
    written = {"rows": rows, "parquet": f"{target}.parquet", "csv": f"{target}.csv"}
    if not emit(written, as_json):
        print_mapping(str(folder), written)


def _open(
    source: Path, out: Path | None, sets: list[str] | None, scale: str | None = None
) -> tuple[Any, dict[str, Any], Path, Path]:
    """(study, recipe as a dict, folder its paths are relative to, folder of the run)"""
    if source.is_dir():
        data, base, folder = engine.stored_recipe(source), Path.cwd(), out or source
    else:
        (data, base), folder = engine.find_recipe(source), out or Path("runs") / source.stem
    engine.apply_scale(data, scale)
    engine.apply_overrides(data, sets or ())
    kind = data.get("kind")
    if not isinstance(kind, str):
        raise engine.RecipeError(
            f"kind: missing; the recipe must say which study it is: {', '.join(sorted(STUDIES))}"
        )
    if kind not in STUDIES and ":" not in kind:
        near = get_close_matches(kind, STUDIES, n=1)
        hint = f"there are: {', '.join(sorted(STUDIES))}, or module:study of your own"
        if near:
            hint = f"did you mean {near[0]!r}?"
        raise engine.RecipeError(f"kind: given {kind!r}; {hint}")
    study = engine.resolve(STUDIES.get(kind, kind))
    if not isinstance(study, engine.Study):
        raise engine.RecipeError(f"kind: {kind!r} is a {type(study).__name__}, not a headwise.engine.Study")
    return study, data, base, folder


def _progress(step: str, counts: Counter[str], spent: float) -> dict[str, Any]:
    """How far a step of a run has come, and what is left of it."""
    mean = spent / max(counts["done"], 1)
    waiting = sum(counts[state] for state in STATES[1:])
    work_left = ""
    if waiting:
        work_left = duration(mean * waiting) if counts["done"] else "?"
    times = {"time spent": duration(spent), "each": duration(mean), "work left": work_left}
    return {"step": step, "cells": counts.total(), **{state: counts[state] for state in STATES}, **times}


def _row(cell: dict[str, Any]) -> dict[str, str]:
    row = {"state": cell["state"], "cell": cell["cell"], "time": "", "what": cell.get("host", "")}
    if "started" in cell:
        row["time"] = duration(time.time() - cell["started"])
    elif cell.get("seconds") is not None:
        row["time"] = duration(cell["seconds"])
    if cell.get("error"):
        row["what"] = cell["error"]
    elif cell.get("bar"):
        description, done, total = cell["bar"]
        row["what"] = f"{description} {done}/{total or '?'} on {cell['host']}"
    return row
