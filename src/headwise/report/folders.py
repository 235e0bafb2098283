"""From folders to sections: finds out what kind of study each folder holds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwise._base.parsing import reading
from headwise.engine import Run, study_of
from headwise.errors import HeadwiseError
from headwise.report import again
from headwise.sections import Section
from headwise.store import load, manifest
from headwise.studies import part_of_single
from headwise.training import TRAINING_FILE, TrainingResult, trainings_section as section_of

# kinds of saved results
SAVED = (
    "dissociation",
    "evaluation",
    "harness-evaluation",
    "induction",
    "probes",
    "roles",
    "scores",
    "steering",
)

WHOLE = 3  # results of a grid that are shown whole


def read(folders: Sequence[str | Path]) -> list[Section]:
    """The sections of a report, one or more per folder.

    Raises:
        HeadwiseError: a folder does not exist, or holds no results.
    """
    sections = []
    for folder in folders:
        with reading(folder, "results of headwise"):
            sections += sections_of(Path(folder))
    return sections


def sections_of(folder: Path) -> list[Section]:
    """The sections of one folder: a saved result, a study's run, trainings, or a folder of these."""
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "does not exist"
        raise HeadwiseError(
            f"{folder.absolute()} {problem}: give the folder of a run, or one that `.save()` wrote"
        )
    if (folder / manifest.NAME).is_file():
        record = manifest.read(folder)
        if record["kind"] in SAVED:
            section = load(folder).section().called(folder.name)
            return [replace(section, reproduce=again.of_saved(record), provenance=_origin(folder, record))]
        if record["kind"] == "study":
            reproduce = again.of_study(record, folder)
            return [replace(section, reproduce=reproduce) for section in _of_study(folder)]
    trained = sorted(
        path.parent
        for path in folder.rglob(TRAINING_FILE)
        if path.parent == folder or not part_of_single(path.parent)
    )
    if trained:
        trainings = [TrainingResult.load(path) for path in trained]
        reproduce = again.of_trainings([training.description for training in trainings])
        return [replace(section_of(trainings).called(folder.name), reproduce=reproduce)]
    sections: list[Section] = []
    for path in sorted(folder.glob(f"*/{manifest.NAME}")):
        if manifest.read(path.parent)["kind"] in (*SAVED, "study"):
            sections += sections_of(path.parent)
    if not sections:
        raise HeadwiseError(
            f"{folder} holds no results of headwise; give the folder of a run, or one that `.save()` wrote"
        )
    return sections


def _origin(folder: Path, record: Mapping[str, Any]) -> dict[str, str]:
    """Where a result is, and the version that computed it."""
    return {"folder": str(folder), "headwise": record["headwise"]}


def _of_study(folder: Path) -> list[Section]:
    run: Run = load(folder)
    if not run.files:
        raise HeadwiseError(f"{folder} has no finished cells yet: see headwise study show {folder}")
    dissociations = _dissociations(run)
    sections: list[Section] = []
    study = study_of(run.recipe["kind"])
    if study is not None and study.section is not None:
        section = run.section().called(folder.name)
        done = [cell["state"] == "done" for cell in run.cells()]
        if not all(done):
            progress = f"Unfinished: {sum(done)} of {len(done)} cells are done; the rest is not shown."
            section = replace(section, findings=[progress, *section.findings])
        if len(dissociations) > WHOLE:
            note = (
                f" The tables hold all {len(dissociations)} dissociations; the first {WHOLE} are shown whole "
                "in the sections that follow."
            )
            section = replace(section, methods=section.methods + note)
        sections.append(section)
    varied: set[str] = set()
    for coords, _ in dissociations:
        first = dissociations[0][0]
        varied |= {name for name, value in coords.items() if value != first.get(name)}
    for coords, inner in dissociations[:WHOLE]:  # a grid of hundreds would drown the tables
        title = [folder.name, *(f"{name} {value}" for name, value in coords.items() if name in varied)]
        section = load(inner).section().called(", ".join(title))
        sections.append(replace(section, provenance=_origin(inner, manifest.read(inner))))
    return sections or [run.section()]  # which says that there is none


def _dissociations(run: Run) -> list[tuple[dict[str, Any], Path]]:
    """The coordinates and the folder of every dissociation that a study's cells hold."""
    dissociations = []
    for task, result in run.results():
        for file in sorted(result.folder.rglob(manifest.NAME)):
            if manifest.read(file.parent)["kind"] == "dissociation":
                dissociations.append((task["coords"], file.parent))
    return dissociations
