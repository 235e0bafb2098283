"""The mean D of each pair of tasks, from whatever holds it: a dissociation, a specialization study, or a
table of pairs."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headwise import engine
from headwise._base.tables import unmarked
from headwise.errors import HeadwiseError
from headwise.store import manifest
from headwise.studies._specialization_steps import SCORING
from headwise.studies._specialization_tables import PLACE, PLAIN
from headwise.tasks import read_table

if TYPE_CHECKING:
    import xarray as xr

GIVE = (
    "give a folder that `headwise dissociate --out` wrote, the run of a specialization study, or a table of "
    "pairs"
)


def read_dissociation(path: Path, tasks: Iterable[str], model: str | None = None) -> "xr.DataArray":
    """The average D of each pair, over seeds where there are several.

    Args:
        path: a folder that `headwise dissociate` wrote, or its table of pairs (A, B, D in percent); the run
            of a finished specialization study, or its table pairs-mean; or any table (csv, parquet) with
            columns task, other, d. Lines at the head of a CSV file that begin with "# " are notes.
        tasks: the names to look for.
        model: whose D, where there are several models; of several methods it is plain multi-task training.

    Raises:
        HeadwiseError: the table has other columns, lacks a pair of the tasks, or has several values that are
            no seeds.
    """
    from headwise.similarity import labelled

    names = list(tasks)
    pairs = _of_one(_pairs(path), path, model)
    short = {
        name.removeprefix("grammar:"): name for name in names
    }  # results call a grammar task by its own name
    values = np.full((len(names), len(names)), np.nan)
    np.fill_diagonal(values, 0)
    sides = {
        side: pairs[side].map(lambda name: short.get(str(name), str(name))) for side in ("task", "other")
    }
    for i, a in enumerate(names):
        for j, b in enumerate(names[:i]):
            rows = pairs[
                ((sides["task"] == a) & (sides["other"] == b))
                | ((sides["task"] == b) & (sides["other"] == a))
            ]
            _check_rows(rows, f"{path} has {len(rows)} values of D for the pair {b} and {a}")
            values[i, j] = values[j, i] = rows["d"].mean()
    lacking = [(names[i], names[j]) for i, j in np.argwhere(np.isnan(values)) if i < j]
    if lacking:
        raise HeadwiseError(f"{path} has no D of the pair {' and '.join(lacking[0])}")
    return labelled(values, names, "dissociation")


def _pairs(path: Path) -> pd.DataFrame:
    """The rows with columns task, other and d (a share), and those that say where each comes from."""
    if path.is_dir():
        is_study = manifest.read(path)["kind"] == "study"
        frame = _of_study(path) if is_study else _of_dissociation(path)
    elif path.is_file():
        frame = unmarked(read_table(path, notes=True, numbers=True))
    else:
        raise HeadwiseError(f"there is no {path}: {GIVE}")
    if {"A", "B", "D"} <= set(frame.columns):
        frame = frame.assign(task=frame["A"], other=frame["B"], d=frame["D"] / 100)
    missing = {"task", "other", "d"} - set(frame.columns)
    if missing:
        raise HeadwiseError(
            f"{path} lacks the columns {sorted(missing)}: one row per pair with task, other and d is needed"
        )
    return frame


def _of_dissociation(path: Path) -> pd.DataFrame:
    from headwise.lesions import Dissociation
    from headwise.store import load

    dissociation = load(path)
    if not isinstance(dissociation, Dissociation):
        raise HeadwiseError(f"{path} holds a {type(dissociation).__name__}: {GIVE}")
    return dissociation.table("pairs")


def _of_study(path: Path) -> pd.DataFrame:
    run = engine.open(path)
    if (kind := run.recipe.get("kind")) != "specialization":
        raise HeadwiseError(f"{path} is the run of a study of kind {kind!r}: {GIVE}")
    if not run.recipe.get("dissociate", True):
        raise HeadwiseError(f"{path} has no D: its recipe says dissociate = false")
    if "pairs-mean.parquet" not in run.files:
        raise HeadwiseError(f"{path} is unfinished: resume it with headwise study run {path}")
    return run.table("pairs-mean", step="specialization-tables")


def _of_one(frame: pd.DataFrame, path: Path, model: str | None) -> pd.DataFrame:
    """The rows of one model and one method."""
    if model is not None:
        if "model" not in frame:
            raise HeadwiseError(f"{path} does not say which model a D is of: remove dissociation_model")
        models = frame["model"].drop_duplicates().tolist()
        frame = frame[frame["model"] == model]
        if frame.empty:
            raise HeadwiseError(
                f"{path} has no D of the model {model!r}; dissociation_model is one of: {', '.join(models)}"
            )
    elif "model" in frame and frame["model"].nunique() > 1:
        several = ", ".join(frame["model"].drop_duplicates())
        raise HeadwiseError(f"{path} has D of several models: choose one as dissociation_model: {several}")
    if "method" in frame and frame["method"].nunique() > 1:
        if PLAIN not in set(frame["method"]):
            several = ", ".join(frame["method"].drop_duplicates())
            raise HeadwiseError(
                f"{path} has D of several methods ({several}), but none of {PLAIN}: give a table of one of "
                "them"
            )
        frame = frame[frame["method"] == PLAIN]
    return frame


def _check_rows(rows: pd.DataFrame, says: str) -> None:
    """Several values of one pair are those of different seeds of the same thing."""
    if rows["d"].nunique(dropna=False) < 2:  # one, or the same written twice, as in a whole matrix
        return
    differs = [name for name in (*PLACE, SCORING) if name in rows and rows[name].nunique(dropna=False) > 1]
    if differs:
        raise HeadwiseError(f"{says}, which differ in {', '.join(differs)}: give a table of one of them")
    if "seed" not in rows or (rows.groupby("seed", dropna=False)["d"].nunique(dropna=False) > 1).any():
        raise HeadwiseError(f"{says}, and no column seed tells them apart: leave one, or their mean")
