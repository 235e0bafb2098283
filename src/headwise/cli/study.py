"""`headwise study`: run a study from its recipe, see how it stands, check it, export it."""

import signal
import time
from collections import Counter
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli.common import (
    Group,
    Jobs,
    Json,
    Sets,
    Trust,
    Verb,
    emit,
    own_bars,
    print_mapping,
    print_rows,
    show as show_section,
    without_option,
)
from headwise.errors import HeadwiseError
from headwise.settings import QUIET

STATES = ("done", "running", "failed", "blocked", "to come")
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


RENAMED = {"list": "recipes", "ls": "runs"}  # before: too alike for two different things


class Studies(Group):
    """The commands; an earlier name is answered with the new one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in RENAMED:
            raise HeadwiseError(f"headwise study {args[0]} is called headwise study {RENAMED[args[0]]} now")
        return super().resolve_command(ctx, args)


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    study = typer.Typer(
        cls=Studies,
        no_args_is_help=True,
        rich_markup_mode=None,
        help="Studies: run from a recipe, resume, show, check, export.\n\nheadwise study run training-small --out runs/small",
    )
    for name, command in (
        ("recipes", recipes),
        ("run", run),
        ("runs", runs),
        ("show", show),
        ("validate", validate),
        ("export", export),
    ):
        study.command(name, cls=Verb)(command)
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
    from headwise.engine import find_recipe, packaged_recipes

    found = packaged_recipes()
    if name is not None:
        find_recipe(name)  # says if there is none
        typer.echo(found[name].read_text(encoding="utf-8"), nl=False)
        return
    rows = []
    for one in found:
        data, _ = find_recipe(one)
        rows.append({"recipe": one, "title": data.get("title", ""), "scales": sorted(data.get("scale", {}))})
    if not emit(rows, as_json):
        print_rows("Recipes", [{**row, "scales": " ".join(row["scales"])} for row in rows])
        typer.echo("run one: headwise study run NAME [--scale small] [--set KEY=VALUE]")


def run(
    source: Source,
    out: Out = None,
    sets: Sets = None,
    scale: Scale = None,
    engine: Annotated[
        str, typer.Option(help="local (processes on this machine) or ray (a cluster).")
    ] = "local",
    jobs: Jobs = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="CPU threads per worker; default: cores divided by the most workers, and at most OMP_NUM_THREADS.",
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
    """Computes the missing cells of a study; rerun to resume. Exit status: 1 if cells failed, 2 for a user error, 130 if interrupted.

    headwise study run training-small --out runs/small --set training.epochs=1
    """
    from headwise._base.command import carrying_out, given
    from headwise.engine import Run, parse_only, ready, run_study

    some = parse_only(only or ())
    study, data, base, folder = _open(source, out, sets, scale)
    recipe = ready(study, data, base, folder)
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # a cluster that takes the machine back is Ctrl-C too
    if jobs == 0:
        own_bars()
    with carrying_out(without_option(given(), "--only")):  # which the report says makes all of it
        board = run_study(
            study,
            recipe,
            folder,
            engine=engine,
            jobs=jobs,
            threads=threads,
            address=address,
            only=some,
            quiet=quiet,
        )
    left = sum(cell["state"] != "done" for cell in Run(folder).cells()) if some else 0
    counts = {
        name: getattr(board, name) for name in ("total", "found", "computed", "failed", "blocked", "damaged")
    }
    finished = not (board.failed or board.blocked or left) and study.section is not None and Run(folder).files
    if not as_json:
        print_mapping(str(folder), counts)
        typer.echo("")
    if finished:
        show_section(Run(folder).section(), as_json, folder, run=str(folder), **counts)
    elif not emit({"run": str(folder), **counts, "findings": []}, as_json) and left and not board.failed:
        typer.echo(f"{left} cell{'s' * (left != 1)} left: headwise study run {folder}")
    if board.failed or board.blocked:
        typer.echo(
            f"{board.failed} cell{'s' * (board.failed != 1)} failed: see headwise study show {folder}; rerun the study to retry them",
            err=True,
        )
        raise typer.Exit(1)


def runs(
    folder: Annotated[Path, typer.Argument(help="Where to look.")] = Path("runs"), as_json: Json = False
) -> None:
    """Lists the runs below a folder.

    headwise study runs results
    """
    from headwise.engine import PLAN_FILE, Run

    if not folder.is_dir():
        raise HeadwiseError(f"no runs: there is no folder {folder.absolute()}; name the one that holds them")
    rows = []
    for plan in sorted(folder.rglob(PLAN_FILE)):
        states = Counter(cell["state"] for cell in Run(plan.parent).cells())
        rows.append(
            {
                "run": str(plan.parent),
                "cells": states.total(),
                **{state: states[state] for state in ("done", "running", "failed")},
            }
        )
    if not emit(rows, as_json):
        print_rows(f"runs in {folder}", rows)


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
    from headwise.engine import Run

    opened = Run(folder)
    steps: dict[str, Counter[str]] = {}
    spent: Counter[str] = Counter()
    listed: list[dict[str, Any]] = []
    for cell in opened.cells():
        steps.setdefault(cell["step"], Counter())[cell["state"]] += 1
        spent[cell["step"]] += cell.get("seconds") or 0
        if every or as_json or cell["state"] in ("failed", "running") or len(listed) < LISTED:
            listed.append(cell)
    damaged = opened.damage() if check else {}
    if not emit(
        {"steps": steps, "seconds": spent, "cells": listed, **({"damaged": damaged} if check else {})},
        as_json,
    ):
        print_rows(str(folder), [_progress(step, counts, spent[step]) for step, counts in steps.items()])
        typer.echo("")
        print_rows("cells", [_row(cell) for cell in listed[: None if every else LISTED]])
        for name, wrong in damaged.items():
            typer.echo(f"damaged: results/{name}: {'; '.join(wrong)}", err=True)
    if damaged:
        raise typer.Exit(1)


def validate(
    source: Source, out: Out = None, sets: Sets = None, scale: Scale = None, as_json: Json = False
) -> None:
    """Checks a recipe, its data and models, and the disk, and computes nothing.

    headwise study validate training-small
    """
    from headwise.engine import validate as check

    study, data, base, folder = _open(source, out, sets, scale)
    _, found = check(study, data, base, folder)
    if not emit(found, as_json):
        print_mapping(f"{source} is ready to run", found)


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
    from headwise.engine import Run, export as write

    target = to or folder / "numbers"
    rows = write(Run(folder), target)
    written = {"rows": rows, "parquet": f"{target}.parquet", "csv": f"{target}.csv"}
    if not emit(written, as_json):
        print_mapping(str(folder), written)


def _open(
    source: Path, out: Path | None, sets: list[str] | None, scale: str | None = None
) -> tuple[Any, dict[str, Any], Path, Path]:
    """(study, recipe as a dict, folder its paths are relative to, folder of the run)"""
    from headwise.engine import (
        RecipeError,
        Study,
        apply_overrides,
        apply_scale,
        find_recipe,
        resolve,
        stored_recipe,
    )
    from headwise.studies import STUDIES

    if source.is_dir():
        data, base, folder = stored_recipe(source), Path.cwd(), out or source
    else:
        (data, base), folder = find_recipe(source), out or Path("runs") / source.stem
    apply_scale(data, scale)
    apply_overrides(data, sets or ())
    kind = data.get("kind")
    if not isinstance(kind, str):
        raise RecipeError(
            f"kind: missing; the recipe must say which study it is: {', '.join(sorted(STUDIES)) or 'module:study'}"
        )
    if kind not in STUDIES and ":" not in kind:
        near = get_close_matches(kind, STUDIES, n=1)
        hint = (
            f"did you mean {near[0]!r}?"
            if near
            else f"there are: {', '.join(sorted(STUDIES))}, or module:study of your own"
        )
        raise RecipeError(f"kind: given {kind!r}; {hint}")
    study = resolve(STUDIES.get(kind, kind))
    if not isinstance(study, Study):
        raise RecipeError(f"kind: {kind!r} is a {type(study).__name__}, not a headwise.engine.Study")
    return study, data, base, folder


def _progress(step: str, counts: Counter[str], spent: float) -> dict[str, Any]:
    """How far a step of a run has come, and what is left of it."""
    from headwise._base.progress import duration

    mean = spent / counts["done"] if counts["done"] else 0.0
    waiting = sum(counts[state] for state in STATES[1:])
    left = "?" if waiting and not counts["done"] else duration(mean * waiting) if waiting else ""
    times = {"time spent": duration(spent), "each": duration(mean), "work left": left}
    return {"step": step, "cells": counts.total(), **{state: counts[state] for state in STATES}, **times}


def _row(cell: dict[str, Any]) -> dict[str, str]:
    from headwise._base.progress import duration

    bar = cell.get("bar")
    what = cell.get("error") or (
        f"{bar[0]} {bar[1]}/{bar[2] or '?'} on {cell['host']}" if bar else cell.get("host", "")
    )
    seconds = time.time() - cell["started"] if "started" in cell else cell.get("seconds")
    time_spent = duration(seconds) if seconds is not None else ""
    return {"state": cell["state"], "cell": cell["cell"], "time": time_spent, "what": what}
