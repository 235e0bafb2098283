"""Scores on disk: netCDF through xarray, the settings as one JSON attribute."""

import json
from pathlib import Path

import xarray as xr

from headwise._base.parsing import reading
from headwise._base.writing import make_folder, write_bytes


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


def load_scores(path: str | Path) -> xr.DataArray:
    """Reads what `save_scores` wrote.

    Raises:
        HeadwiseError: the file holds no scores.
    """
    with reading(path, "scores that headwise saved"):
        with xr.open_dataset(path, engine="scipy") as data:
            scores = data["score"].load()
        scores.attrs = json.loads(scores.attrs["settings"])
    return scores
