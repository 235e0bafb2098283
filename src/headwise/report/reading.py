"""From folders to sections: finds out what kind of study each folder holds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from headwise import manifest, runs
from headwise.errors import HeadwiseError
from headwise.parsing import read_json, reading
from headwise.report import again
from headwise.report.blocks import Section
from headwise.report.sections import dissociation, grids, probing, similarity, stemcells, training, transfer

SAVED: dict[str, Callable[..., Section]] = {"dissociation": dissociation.read, "probes": probing.read}
STUDIES: dict[str, Callable[..., Section]] = {
    **dict.fromkeys(grids.SHOWN, grids.read),
    "similarity": similarity.read,
    "stem-cells": stemcells.read,
    "transfer": transfer.read,
}

WHOLE = 3  # results of a grid that are shown whole


class Opened:
    """A study's run with the few questions sections ask of it."""

    def __init__(self, folder: Path) -> None:
        self.run = runs.open(folder)
        self.files = {name for _, result in self.run.results() for name in result.names}

    def has(self, table: str) -> bool:
        """Whether some cell left a table of this name."""
        return f"{table}.parquet" in self.files

    def has_array(self, name: str) -> bool:
        """Whether some cell left an array of this name."""
        return f"{name}.nc" in self.files

    def table(self, name: str, **where: Any) -> pd.DataFrame:
        """See `runs.Run.table`."""
        return self.run.table(name, **where)

    def array(self, name: str, **where: Any) -> Any:
        """See `runs.Run.array`."""
        return self.run.array(name, **where)


def read(folders: Sequence[str | Path]) -> list[Section]:
    """The sections of a report, one or more per folder.

    Raises:
        HeadwiseError: a folder does not exist, or holds no results.
    """
    found = []
    for folder in folders:
        with reading(folder, "results of headwise"):
            found += sections_of(Path(folder))
    return found


def sections_of(folder: Path) -> list[Section]:
    """The sections of one folder: a saved result, a study's run, trainings, or a folder of these."""
    if not folder.is_dir():
        raise HeadwiseError(f"there is no folder {folder.absolute()}")
    record = manifest.read(folder) if (folder / manifest.NAME).is_file() else {}
    kind = record.get("kind", "")
    if kind in SAVED:
        return [replace(SAVED[kind](folder, record, folder.name), reproduce=again.of_saved(record))]
    if kind == "study":
        return [replace(section, reproduce=again.of_study(record, folder)) for section in _of_study(folder)]
    trained = sorted(path.parent for path in folder.rglob(training.DONE))
    if trained:
        told = [read_json(path / training.DONE)["description"] for path in trained]
        return [replace(training.read(trained, folder.name), reproduce=again.of_trainings(told))]
    inner = sorted(path.parent for path in folder.glob(f"*/{manifest.NAME}"))
    found = [section for one in inner if manifest.read(one)["kind"] in (*SAVED, "study") for section in sections_of(one)]
    if not found:
        raise HeadwiseError(f"{folder} holds no results of headwise; give the folder of a run, or one that `.save()` wrote")
    return found


def _of_study(folder: Path) -> list[Section]:
    recipe = read_json(folder / "recipe.json")
    opened = Opened(folder)
    if not opened.files:
        raise HeadwiseError(f"{folder} has no finished cells yet: see headwise study show {folder}")
    found: list[Section] = []
    if recipe["kind"] in STUDIES:
        found.append(STUDIES[recipe["kind"]](opened, folder.name, provenance(opened), recipe))
    inside = [
        (task, file.parent)
        for task, result in opened.run.results()
        for file in sorted(result.folder.rglob(manifest.NAME))
        if manifest.read(file.parent)["kind"] == "dissociation"
    ]
    for task, inner in inside[:WHOLE]:  # the tables above hold all of them; a grid of hundreds would drown them
        place = ", ".join(f"{name} {value}" for name, value in task["coords"].items())
        found.append(dissociation.read(inner, manifest.read(inner), f"{folder.name}, {place}"))
    if not found:
        raise HeadwiseError(
            f"{folder} is a study of kind {recipe['kind']!r}, which reports cannot show yet; export it: headwise study export"
        )
    return found


def provenance(opened: Opened) -> dict[str, Any]:
    """Versions, device and total time of a run."""
    stamps = [result.provenance for _, result in opened.run.results()]
    keys = ("versions", "commit", "device")
    return {
        "cells": len(stamps),
        "seconds": round(sum(float(stamp.get("seconds", 0)) for stamp in stamps), 1),
        **{key: stamps[0][key] for key in keys if key in stamps[0]},
    }
