"""Reading a run back: its tables and arrays over all cells, its state, and one tidy file of every number."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise._base.names import legible
from headwise._base.parsing import read_json
from headwise.engine._plan import SETTINGS, read_plan
from headwise.engine._schedule import read_index
from headwise.engine._steps import Task, label, study_of
from headwise.errors import HeadwiseError
from headwise.store import DamagedResult, Result, damaged_files, locks, manifest

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


class Run:
    """A study's folder, opened for reading; works while the study is running.

        run = headwise.engine.open("runs/first")
        run.table("dissociation")                 # every cell's table of that name, the cells' coordinates as
        columns run.table("dissociation", seed=0)         # only these cells run.array("scores")
        # labelled array; coordinates that differ between cells become dimensions

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise HeadwiseError(f"there is no run {self.folder.absolute()}")
        if (kind := manifest.read(self.folder)["kind"]) != "study":
            raise HeadwiseError(
                f"{self.folder} holds a {kind!r}, not a run of a study: open it with headwise.load"
            )

    def __repr__(self) -> str:
        done = list(self.results())
        steps = ", ".join(dict.fromkeys(str(task["step"]) for task, _ in done))
        return f"Run({str(self.folder)!r}: {len(done)} finished cells{f' of {steps}' if steps else ''})"

    def results(self, step: str | None = None, **where: Any) -> Iterator[tuple[Task, Result]]:
        """Finished cells with their results, in the plan's order; only those of `step`, at the coordinates
        `where`."""
        for task in read_plan(self.folder):
            fits = step in (None, task["step"]) and all(
                task["coords"].get(name) == value for name, value in where.items()
            )
            if fits and (folder := self.folder / "results" / task["folder"]).is_dir():
                yield task, Result(folder)

    def table(self, name: str, step: str | None = None, **where: Any) -> "pd.DataFrame":
        """The table `name` of every finished cell that has it, one below the other, the cells' coordinates as
        first columns."""
        import pandas as pd

        frames = []
        for task, result in self._having(f"{name}.parquet", step, where):
            frame = result.table(name)
            for position, (coordinate, value) in enumerate(task["coords"].items()):
                if coordinate not in frame.columns:
                    frame.insert(min(position, frame.shape[1]), coordinate, value)
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    def array(self, name: str, step: str | None = None, **where: Any) -> "xr.DataArray":
        """The array `name` of every finished cell that has it, as one.

        Coordinates on which the cells differ become dimensions in front of the arrays' own; combinations
        without a cell are NaN.
        """
        import xarray as xr

        arrays = [
            (task["coords"], result.array(name)) for task, result in self._having(f"{name}.nc", step, where)
        ]
        names: dict[str, None] = {}
        for coords, array in arrays:
            names |= dict.fromkeys(name for name in coords if name not in array.dims)

        def distinct(coordinate: str) -> set[Any]:
            return {coords.get(coordinate) for coords, _ in arrays}

        vary = [coordinate for coordinate in names if len(distinct(coordinate)) > 1]
        placed_arrays = []
        positions: set[tuple[Any, ...]] = set()
        for coords, array in arrays:
            new_coords = {coordinate: value for coordinate, value in coords.items() if coordinate in names}
            dims = [coordinate for coordinate in vary if coordinate in new_coords]
            placed_arrays.append(array.assign_coords(new_coords).expand_dims(dims).rename(name))
            positions.add(tuple(coords.get(coordinate) for coordinate in vary))
        if len(placed_arrays) == 1:
            return placed_arrays[0]
        if len(positions) < len(arrays):
            raise HeadwiseError(
                f"several cells with the same coordinates have an array {name!r}: choose one with step= or "
                "coordinates"
            )
        joined = xr.combine_by_coords(placed_arrays, combine_attrs="drop_conflicts", join="outer")
        return joined[name]

    def json(self, name: str, step: str | None = None, **where: Any) -> list[dict[str, Any]]:
        """The JSON value `name` of every finished cell that has it: [{"coords": ..., "value": ...}]."""
        return [
            {"coords": task["coords"], "value": result.json(name)}
            for task, result in self._having(f"{name}.json", step, where)
        ]

    def names(self) -> dict[str, list[str]]:
        """Step to the names its finished cells have saved."""
        files_by_step: dict[str, set[str]] = {}
        for task, result in self.results():
            files_by_step.setdefault(task["step"], set()).update(file.split("/")[0] for file in result.names)
        return {step: sorted(files) for step, files in files_by_step.items()}

    @cached_property
    def files(self) -> set[str]:
        """Every file that some cell had saved when this was first asked."""
        return set(chain.from_iterable(result.names for _, result in self.results()))

    @property
    def recipe(self) -> dict[str, Any]:
        """The recipe as it was run, with its defaults."""
        return read_json(self.folder / SETTINGS)

    def section(self) -> Any:
        """What is said of this run: its study's section, with the recipe and where it ran.

        Raises:
            HeadwiseError: its kind of study has no section, or its module is not imported.
        """
        kind = self.recipe["kind"]
        study = study_of(kind)
        if study is None or study.section is None:
            raise HeadwiseError(
                f"{self.folder} is a study of kind {kind!r}, which has no section for a report, or whose "
                "module is not imported (call headwise.report.write_report from Python after importing it); "
                "export it: headwise study export"
            )
        return replace(study.section(self), settings=self.recipe, provenance=self.provenance())

    def provenance(self) -> dict[str, Any]:
        """Versions, device and total time of the run."""
        stamps = [result.provenance for _, result in self.results()]
        seconds = round(sum(float(stamp.get("seconds", 0)) for stamp in stamps), 1)
        first: dict[str, Any] = {
            key: stamps[0][key] for key in ("versions", "commit", "device") if key in stamps[0]
        }
        return {"cells": len(stamps), "seconds": seconds, **first}

    def damage(self) -> dict[str, list[str]]:
        """Result folder to what is wrong with it, for every result that is not as it was written."""
        checked = ((task["folder"], damaged_files(result.folder)) for task, result in self.results())
        return {folder: wrong for folder, wrong in checked if wrong}

    def cells(self) -> Iterator[dict[str, Any]]:
        """Every cell of the plan: {"cell", "step", "coords", "folder", "state", "seconds", "error", "bar"}.

        The state is done, running, failed, blocked (it needs one that failed) or to come.
        """
        present = {entry.name for entry in (self.folder / "results").glob("*/")}
        busy = locks.running(self.folder / "running")
        failed = {path.stem: path for path in (self.folder / "failures").glob("*.json")}
        seconds = self._seconds()
        stuck: set[int] = set()
        for number, task in enumerate(read_plan(self.folder)):
            name = task["folder"]
            row = {
                "cell": label(task),
                "step": task["step"],
                "coords": task["coords"],
                "folder": name,
                "state": "to come",
            }
            if name in present:
                spent = seconds.get(name)
                row |= {
                    "state": "done",
                    "seconds": self._provenance_seconds(name) if spent is None else spent,
                }
            elif name in busy:
                row |= {"state": "running", **busy[name]}
            elif name in failed:
                row |= {"state": "failed", **_failure(failed[name])}
                stuck.add(number)
            elif not stuck.isdisjoint(task["after"]):
                row["state"] = "blocked"
                stuck.add(number)
            yield row

    def _having(self, file: str, step: str | None, where: dict[str, Any]) -> list[tuple[Task, Result]]:
        results = [
            (task, result) for task, result in self.results(step, **where) if file in result.manifest["files"]
        ]
        if not results:
            names = sorted(set(chain.from_iterable(self.names().values())))
            offered = ", ".join(names) or "nothing yet"
            where_text = f" at {where}" if where else ""
            raise HeadwiseError(
                f"no finished cell of {self.folder}{where_text} has {file}; the run holds: {offered}"
            )
        return results

    def _seconds(self) -> dict[str, float]:
        """Seconds by result folder, from the index that the running study keeps."""
        return {name: record["seconds"] for name, record in read_index(self.folder).items()}

    def _provenance_seconds(self, name: str) -> float | None:
        try:
            return float(Result(self.folder / "results" / name).provenance["seconds"])
        except DamagedResult:
            return None


def _failure(path: Path) -> dict[str, Any]:
    """The error and the seconds of a cell that failed, as far as its record can be read."""
    try:
        record = read_json(path)
        return {"error": legible(str(record["error"])), "seconds": float(record["seconds"])}
    except (HeadwiseError, LookupError, ValueError, TypeError):
        return {"error": f"it failed, but {path}, which holds the error, is damaged", "seconds": None}


def open(folder: str | Path) -> Run:
    """Opens a study's folder for reading."""
    return Run(folder)


def load_folder(folder: Path, record: dict[str, Any]) -> Run:
    """`headwise.load` of a study's folder."""
    return Run(folder)
