"""Scores on disk: netCDF through xarray, the settings as one JSON attribute."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from headwise._base import command
from headwise._base.parsing import reading
from headwise._base.writing import make_folder, write_bytes
from headwise.errors import HeadwiseError
from headwise.store import _manifest as manifest
from headwise.store._atomic import atomic_folder
from headwise.store._loading import load

NAME = "scores.nc"  # in a folder of scores, or of a dissociation


def save_scores(scores: xr.DataArray, path: str | Path) -> Path:
    """Writes scores with their coordinates and settings; `load_scores` reads them.

    Raises:
        NoSpace: the disk is full.
    """
    stored = scores.rename("score").copy(deep=False)
    stored.attrs = {"settings": json.dumps(scores.attrs, sort_keys=True)}
    make_folder(Path(path).parent)
    write_bytes(path, bytes(stored.to_netcdf(engine="scipy")))
    return Path(path)


def keep(scores: xr.DataArray, folder: Path, **noted: Any) -> xr.DataArray:
    """Writes a folder of scores that `headwise.load` opens; gives them back."""
    with atomic_folder(folder) as aside:
        save_scores(scores, aside / NAME)
        manifest.write(aside, "scores", command=command.given(), **noted)
    return scores


def load_folder(folder: Path, record: Mapping[str, Any]) -> xr.DataArray:
    """Opens what `keep` wrote; `headwise.load` calls this."""
    return load_scores(folder / NAME)


def given_scores(scores: Any) -> xr.DataArray:
    """Scores that a user brings: an array, a folder that headwise saved them in, alone or with a dissociation, or a netCDF file."""
    if isinstance(scores, xr.DataArray):
        return scores
    if not isinstance(scores, str | Path):
        raise HeadwiseError(
            f"scores are a {type(scores).__name__}: give an array (task, layer, head), or a folder of saved scores"
        )
    found = load(scores) if Path(scores).is_dir() else load_scores(scores)
    found = getattr(found, "scores", found)
    if not isinstance(found, xr.DataArray):
        raise HeadwiseError(f"{scores} holds a {type(found).__name__}, not scores")
    return found


def load_scores(path: str | Path) -> xr.DataArray:
    """Reads what `save_scores` wrote.

    Raises:
        HeadwiseError: the file holds no scores.
    """
    with reading(path, "scores that headwise saved"):
        with xr.open_dataset(path, engine="scipy") as data:
            scores = data["score"].load()
        scores.attrs = json.loads(scores.attrs["settings"])
        if "task" in scores.coords:
            scores = scores.assign_coords(task=scores["task"].astype(str))  # netCDF gives texts back as objects
    return scores
