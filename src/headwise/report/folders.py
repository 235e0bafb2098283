"""From folders to sections: finds out what kind of study each folder holds."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

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
    found = []
    for folder in folders:
        with reading(folder, "results of headwise"):
            found += sections_of(Path(folder))
    return found


def sections_of(folder: Path) -> list[Section]:
    """The sections of one folder: a saved result, a study's run, trainings, or a folder of these."""
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise HeadwiseError(
            f"{folder.absolute()} {what}: give the folder of a run, or one that `.save()` wrote"
        )
    record = manifest.read(folder) if (folder / manifest.NAME).is_file() else {}
    kind = record.get("kind", "")
    if kind in SAVED:
        around = {"folder": str(folder), "headwise": record["headwise"]}
        section = load(folder).section().called(folder.name)
        return [replace(section, reproduce=again.of_saved(record), provenance=around)]
    if kind == "study":
        return [replace(section, reproduce=again.of_study(record, folder)) for section in _of_study(folder)]
    trained = sorted(
        path.parent
        for path in folder.rglob(TRAINING_FILE)
        if path.parent == folder or not part_of_single(path.parent)
    )
    if trained:
        found = [TrainingResult.load(path) for path in trained]
        reproduce = again.of_trainings([one.description for one in found])
        return [replace(section_of(found).called(folder.name), reproduce=reproduce)]
    inner = sorted(path.parent for path in folder.glob(f"*/{manifest.NAME}"))
    sections = [
        section
        for one in inner
        if manifest.read(one)["kind"] in (*SAVED, "study")
        for section in sections_of(one)
    ]
    if not sections:
        raise HeadwiseError(
            f"{folder} holds no results of headwise; give the folder of a run, or one that `.save()` wrote"
        )
    return sections


def _of_study(folder: Path) -> list[Section]:
    run: Run = load(folder)
    if not run.files:
        raise HeadwiseError(f"{folder} has no finished cells yet: see headwise study show {folder}")
    study = study_of(run.recipe["kind"])
    found: list[Section] = []
    if study is not None and study.section is not None:
        shown = run.section().called(folder.name)
        done = [cell["state"] == "done" for cell in run.cells()]
        if not all(done):
            part = f"Unfinished: {sum(done)} of {len(done)} cells are done; the rest is not shown."
            shown = replace(shown, findings=[part, *shown.findings])
        found.append(shown)
    inside = [
        (task, file.parent)
        for task, result in run.results()
        for file in sorted(result.folder.rglob(manifest.NAME))
        if manifest.read(file.parent)["kind"] == "dissociation"
    ]
    if found and len(inside) > WHOLE:
        more = f" The tables hold all {len(inside)} dissociations; the first {WHOLE} are shown whole in the sections that follow."
        found[0] = replace(found[0], methods=found[0].methods + more)
    varied = {
        name
        for task, _ in inside
        for name, value in task["coords"].items()
        if value != inside[0][0]["coords"].get(name)
    }
    for task, inner in inside[:WHOLE]:  # a grid of hundreds would drown the tables
        place = ", ".join(
            (folder.name, *(f"{name} {value}" for name, value in task["coords"].items() if name in varied))
        )
        shown = load(inner).section().called(place)
        found.append(
            replace(shown, provenance={"folder": str(inner), "headwise": manifest.read(inner)["headwise"]})
        )
    if not found:
        return [run.section()]  # says that there is none
    return found
