"""Scores on disk: netCDF through xarray and JSON, which hold the same; both say which model, task and
estimator they are of."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from headwise._base.parsing import read_json, reading
from headwise._base.writing import make_folder, write_bytes
from headwise.errors import HeadwiseError
from headwise.scoring._scores import HeadScores
from headwise.store import load, manifest

SCORES_FILE = "scores.nc"  # in a folder of scores, or of a dissociation
JSON = "scores.json"  # beside it in a folder of scores
FORMAT = "headwise-scores-1"


def save_scores(scores: xr.DataArray, path: str | Path) -> Path:
    """Writes scores with their coordinates and settings, as JSON if `path` ends so, else as netCDF;
    `load_scores` reads them.

    Raises:
        NoSpace: the disk is full.
    """
    path = Path(path)
    make_folder(path.parent)
    facts = _facts(scores)
    if path.suffix == ".json":
        write_bytes(path, (json.dumps(_to_json(scores, facts), indent=1, allow_nan=False) + "\n").encode())
        return path
    stored = scores.rename("score").copy(deep=False)
    # in their order, which is the order of the tasks
    stored.attrs = {name: value for name, value in facts.items() if value}
    stored.attrs["settings"] = json.dumps(scores.attrs)
    write_bytes(path, bytes(stored.to_netcdf(engine="scipy")))
    return path


def _facts(scores: xr.DataArray) -> dict[str, Any]:
    """What a reader without headwise wants to know first."""
    from headwise import __version__

    named = scores["task"].values.tolist() if "task" in scores.dims else [scores.attrs.get("task", "")]
    return {
        "model": scores.attrs.get("model", ""),
        "revision": scores.attrs.get("revision") or "",
        "estimator": scores.attrs.get("method", ""),
        "tasks": ", ".join(map(str, named)),
        "headwise": __version__,
    }


def _to_json(scores: xr.DataArray, facts: dict[str, Any]) -> dict[str, Any]:
    """Scores as JSON values; null where a layer has no such head."""
    coords = {
        str(name): {"dims": list(map(str, values.dims)), "values": _plain(values.to_numpy())}
        for name, values in scores.coords.items()
    }
    return {
        "format": FORMAT,
        "what": "scores of attention heads, nested as in dims; null: no such head; read with "
        "headwise.load(file)",
        **facts,
        "settings": scores.attrs,
        "dims": list(map(str, scores.dims)),
        "coords": coords,
        "scores": _plain(scores.to_numpy()),
    }


def _plain(values: Any) -> Any:
    if values.dtype.kind == "f":
        gaps: Any = np.where(np.isfinite(values), values.astype(object), None)
        return gaps.tolist()
    return values.tolist()


def _from_json(record: Mapping[str, Any]) -> xr.DataArray:
    if record.get("format") != FORMAT:
        raise ValueError(f"its format is {record.get('format')!r}, not {FORMAT!r}")
    coords = {
        name: (tuple(coord["dims"]), _array(coord["values"])) for name, coord in record["coords"].items()
    }
    values = np.array(record["scores"], dtype=float)  # null becomes NaN
    return xr.DataArray(
        values, dims=tuple(record["dims"]), coords=coords, name="score", attrs=dict(record["settings"])
    )


def _array(values: Any) -> Any:
    array = np.array(values)
    if array.dtype == object:
        array = array.astype(float)
    return array


def keep_scores(scores: xr.DataArray, folder: Path, **deciding: Any) -> xr.DataArray:
    """Writes a folder of scores that `headwise.load` opens; gives them back."""
    with manifest.new_folder(folder, "scores", **deciding) as aside:
        save_scores(scores, aside / SCORES_FILE)
        save_scores(scores, aside / JSON)
    return scores


def load_folder(folder: Path, record: Mapping[str, Any]) -> xr.DataArray:
    """Opens what `keep` wrote; `headwise.load` calls this."""
    return load_scores(folder / SCORES_FILE)


def given_scores(scores: Any) -> xr.DataArray:
    """Scores that a user brings: an array, a folder of them, alone or with a dissociation, or a file (netCDF,
    JSON)."""
    if isinstance(scores, xr.DataArray):
        return HeadScores(scores)
    if not isinstance(scores, str | Path):
        raise HeadwiseError(
            f"scores are a {type(scores).__name__}: give an array (task, layer, head), or a folder of saved "
            "scores"
        )
    saved = load(scores) if Path(scores).is_dir() else load_scores(scores)
    saved = getattr(saved, "scores", saved)
    if not isinstance(saved, xr.DataArray):
        raise HeadwiseError(f"{scores} holds a {type(saved).__name__}, not scores")
    return saved


def load_scores(path: str | Path) -> HeadScores:
    """Reads what `save_scores` wrote.

    Raises:
        HeadwiseError: the file holds no scores.
    """
    with reading(path, "scores that headwise saved"):
        if Path(path).suffix == ".json":
            return HeadScores(_from_json(read_json(Path(path))))
        with xr.open_dataset(path, engine="scipy") as data:
            scores = data["score"].load()
        scores.attrs = json.loads(scores.attrs["settings"])
        if "task" in scores.coords:
            scores = scores.assign_coords(
                task=scores["task"].astype(str)
            )  # netCDF gives texts back as objects
    return HeadScores(scores)
