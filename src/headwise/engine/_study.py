"""Running a study: from a recipe to results, and again where it stopped."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise._base.parsing import read_json
from headwise._base.writing import no_space
from headwise.engine import _engines as engines
from headwise.engine._only import selected_cells
from headwise.engine._plan import PLAN_FILE, RECIPE, SETTINGS, prepare, sweep, write_plan
from headwise.engine._recipe import RecipeError, read_recipe
from headwise.engine._run import Run, open as open_run
from headwise.engine._schedule import Board, carry_out
from headwise.engine._steps import Study, tasks
from headwise.engine._view import summary, view
from headwise.errors import HeadwiseError, Interrupted
from headwise.store import remembering_files, write_text


def run_study(
    study: Study,
    recipe: Any,
    out: str | Path,
    *,
    engine: str = "local",
    jobs: int | None = None,
    threads: int | None = None,
    address: str | None = None,
    only: Mapping[str, set[str]] | None = None,
    quiet: bool = False,
) -> Board:
    """Computes what is missing of a study in the folder `out`.

    Args:
        study: which study.
        recipe: its recipe, an instance of `study.recipe`.
        out: the run's folder: a new one, or one to resume.
        engine: "local" or "ray".
        jobs: cells at once (local: 0 computes in this process); None decides by GPUs, cores and memory.
        threads: CPU threads of each worker; None shares out the cores, up to OMP_NUM_THREADS where that is
            set. Sums may differ in the last bit with other numbers.
        address: of a Ray cluster.
        only: by coordinate, the values of the cells to compute, with all that they need; default: all cells.
        quiet: show nothing.

    Returns:
        how many cells were found, computed, failed; read results with `engine.open(out)`.

    Raises:
        Interrupted: Ctrl-C; nothing finished is lost.
    """
    if engine not in ("local", "ray"):
        raise HeadwiseError(f"unknown engine {engine!r}; there are: local, ray")
    run = Path(out).absolute()
    shown = None
    try:
        now = recipe.model_dump(mode="json")
        prepare(run, recipe.kind, begins=not _goes_on(run, now))
        write_text(run / RECIPE, json.dumps({"kind": recipe.kind, **recipe.to_table()}, indent=1))
        write_text(run / SETTINGS, json.dumps(now, indent=1))
        plan = write_plan(run, study.cells(recipe))
        _check_size(run, len(plan), plan.megabytes)
        numbers = selected_cells(plan, only or {})
        shown = view(run, quiet)
        board = carry_out(
            run, plan, lambda: engines.start(engine, run, jobs, threads, address), shown, numbers
        )
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; finished work is kept, resume with: headwise study run {out}"
        ) from None
    except OSError as error:
        raise no_space(error, run) or HeadwiseError(
            f"cannot resume in the run's folder {run}: {error}"
        ) from error
    finally:
        if shown is not None:
            shown.close()
        if (run / "work").is_dir():
            sweep(run)
    shown.say(summary(board, 1))
    return board


def _goes_on(run: Path, recipe: dict[str, Any]) -> bool:
    """Whether a run was begun with this very recipe."""
    try:
        return bool(read_json(run / SETTINGS) == json.loads(json.dumps(recipe)))
    except HeadwiseError:  # there is none, or it is damaged
        return False


def stored_recipe(run: Path) -> dict[str, Any]:
    """The recipe a run was started with."""
    try:
        return read_json(run / RECIPE)
    except HeadwiseError as error:
        raise RecipeError(f"{run} has no recipe to resume: {error}") from None


def ready(study: Study, data: Mapping[str, Any], base: str | Path, out: str | Path) -> Any:
    """A recipe that `run_study` can run: `validate` of a run that begins; one that resumes counts its cells
    when it plans them again."""
    return (
        read(study, data, base) if (Path(out) / PLAN_FILE).is_file() else validate(study, data, base, out)[0]
    )


def read(study: Study, data: Mapping[str, Any], base: str | Path) -> Any:
    """The recipe of a study, with its data and models.

    Raises:
        RecipeError: one line for each thing that is wrong.
    """
    recipe = read_recipe(study.recipe, data, base)
    if study.check:
        mistakes = list(study.check(recipe))
        if mistakes:
            raise RecipeError("\n".join(mistakes))
    return recipe


def validate(
    study: Study, data: Mapping[str, Any], base: str | Path, out: str | Path
) -> tuple[Any, dict[str, Any]]:
    """Checks everything a study needs before any work: the recipe, its data and models, and the disk.

    Returns:
        the recipe, and {"cells", "done", "megabytes" to come, "free megabytes"}.

    Raises:
        RecipeError: one line for each thing that is wrong.
    """
    recipe = read(study, data, base)
    run = Path(out).absolute()
    cells, done, needed = 0, 0, 0.0
    with remembering_files():
        for task, megabytes in tasks(study.cells(recipe)):
            cells += 1
            if (run / "results" / task["folder"]).is_dir():
                done += 1
            else:
                needed += megabytes
    free = _check_size(run, cells, needed)
    return recipe, {
        "cells": cells,
        "done": done,
        "megabytes": round(needed, 1),
        "free megabytes": round(free),
    }


def _check_size(run: Path, cells: int, needed: float) -> float:
    """Free megabytes on the disk of a run.

    Raises:
        RecipeError: there is nothing to compute, or no room for its results.
    """
    if not cells:
        raise RecipeError("the recipe has no cells: one of its lists is empty")
    disk = next(folder for folder in (run, *run.parents) if folder.is_dir())
    free = shutil.disk_usage(disk).free / 1e6
    if needed > free:
        raise RecipeError(
            f"{run} needs about {needed:,.0f} MB for cells that are not done, but {disk} has only "
            f"{free:,.0f} MB free"
        )
    return free


def run_recipe(
    study: Study, recipe: Mapping[str, Any], out: str | Path, *, jobs: int | None = None, quiet: bool = False
) -> Run:
    """Runs a study by a recipe given as a dict, as if it were a file in this folder; gives the run, opened.

    Raises:
        HeadwiseError: the recipe is wrong (nothing was computed), or cells failed.
    """
    checked = ready(study, recipe, Path.cwd(), out)
    board = run_study(study, checked, out, jobs=jobs, quiet=quiet)
    if board.failed or board.blocked:
        raise HeadwiseError(
            f"{board.failed} cells failed: see headwise study show {out}; rerun the command to retry them"
        )
    return open_run(out)
