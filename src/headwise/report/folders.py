"""From folders to sections: finds out what kind of study each folder holds."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwise._base.parsing import reading
from headwise.engine import Run
from headwise.engine._steps import Study, resolve
from headwise.errors import HeadwiseError
from headwise.report import again
from headwise.sections import Section
from headwise.store import _manifest as manifest
from headwise.store._loading import load
from headwise.studies import STUDIES
from headwise.studies._trained import part_of_single
from headwise.training._result import DONE, TrainingResult
from headwise.training._section import section as section_of

SAVED = (
    "dissociation",
    "evaluation",
    "harness-evaluation",
    "induction",
    "probes",
    "roles",
    "scores",
    "steering",
)  # they have sections

WHOLE = 3  # results of a grid that are shown whole


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
        what = "is not a folder" if folder.exists() else "does not exist"
        raise HeadwiseError(f"{folder.absolute()} {what}: give the folder of a run, or one that `.save()` wrote")
    record = manifest.read(folder) if (folder / manifest.NAME).is_file() else {}
    kind = record.get("kind", "")
    if kind in SAVED:
        around = {"folder": str(folder), "headwise": record["headwise"]}
        section = load(folder).section().called(folder.name)
        return [replace(section, reproduce=again.of_saved(record), provenance=around)]
    if kind == "study":
        return [replace(section, reproduce=again.of_study(record, folder)) for section in _of_study(folder)]
    trained = sorted(path.parent for path in folder.rglob(DONE) if path.parent == folder or not part_of_single(path.parent))
    if trained:
        found = [TrainingResult.load(path) for path in trained]
        reproduce = again.of_trainings([one.description for one in found])
        return [replace(section_of(found).called(folder.name), reproduce=reproduce)]
    inner = sorted(path.parent for path in folder.glob(f"*/{manifest.NAME}"))
    sections = [section for one in inner if manifest.read(one)["kind"] in (*SAVED, "study") for section in sections_of(one)]
    if not sections:
        raise HeadwiseError(f"{folder} holds no results of headwise; give the folder of a run, or one that `.save()` wrote")
    return sections


def _of_study(folder: Path) -> list[Section]:
    run: Run = load(folder)
    recipe = run.recipe
    if not run.files:
        raise HeadwiseError(f"{folder} has no finished cells yet: see headwise study show {folder}")
    found: list[Section] = []
    if draw := _section_of(recipe["kind"]):
        shown = draw(run)
        done = [cell["state"] == "done" for cell in run.cells()]
        if not all(done):
            part = f"Unfinished: {sum(done)} of {len(done)} cells are done; the rest is not shown."
            shown = replace(shown, findings=[part, *shown.findings])
        found.append(replace(shown.called(folder.name), settings=recipe, provenance=provenance(run)))
    inside = [
        (task, file.parent)
        for task, result in run.results()
        for file in sorted(result.folder.rglob(manifest.NAME))
        if manifest.read(file.parent)["kind"] == "dissociation"
    ]
    if found and len(inside) > WHOLE:
        more = f" The tables hold all {len(inside)} dissociations; the first {WHOLE} are shown whole in the sections that follow."
        found[0] = replace(found[0], methods=found[0].methods + more)
    varied = {name for task, _ in inside for name, value in task["coords"].items() if value != inside[0][0]["coords"].get(name)}
    for task, inner in inside[:WHOLE]:  # a grid of hundreds would drown the tables
        place = ", ".join((folder.name, *(f"{name} {value}" for name, value in task["coords"].items() if name in varied)))
        shown = load(inner).section().called(place)
        found.append(replace(shown, provenance={"folder": str(inner), "headwise": manifest.read(inner)["headwise"]}))
    if not found:
        raise HeadwiseError(
            f"{folder} is a study of kind {recipe['kind']!r}, which has no section for a report, or whose module is not "
            "imported (call headwise.report.write_report from Python after importing it); export it: headwise study export"
        )
    return found


def _section_of(kind: str) -> Callable[[Run], Section] | None:
    """The `section` of a kind of study; of a user's own study only where its module is imported: a folder names no code to run."""
    if kind not in STUDIES and kind.partition(":")[0] not in sys.modules:
        return None
    study = resolve(STUDIES.get(kind, kind))
    return study.section if isinstance(study, Study) else None


def provenance(run: Run) -> dict[str, Any]:
    """Versions, device and total time of a run."""
    stamps = [result.provenance for _, result in run.results()]
    keys = ("versions", "commit", "device")
    return {
        "cells": len(stamps),
        "seconds": round(sum(float(stamp.get("seconds", 0)) for stamp in stamps), 1),
        **{key: stamps[0][key] for key in keys if key in stamps[0]},
    }
