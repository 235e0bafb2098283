"""A run's folder and its plan: one JSON line per cell, streamed, so that memory does not grow with the
study."""

import json
import os
import shutil
import tempfile
import time
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

from headwise._base import command
from headwise._base.names import check_name
from headwise._base.parsing import parse_json, read_json
from headwise._base.writing import ASIDE, make_folder, room_in
from headwise.engine._steps import Cell, Task, tasks
from headwise.errors import HeadwiseError
from headwise.store import (
    content_hash,
    fingerprint,
    flush_to_disk,
    locks,
    manifest,
    remembering_files,
    write_text,
)

PLAN_FILE = "plan.jsonl"
RECIPE = "recipe.json"  # as it was given, to resume the run
SETTINGS = "settings.json"  # the same with its defaults, for readers
FIELDS = {
    "folder": str,
    "step": str,
    "coords": dict,
    "inputs": dict,
    "after": list,
}  # of a line, that reading relies on
FOLDERS = ("results", "work", "running", "failures", "checkpoints", "logs", "damaged", "files")


class Plan:
    """The lines of a plan: where each begins, what each waits for. A few bytes a cell; the rest stays on the
        disk.

    Attributes:
        after: by number of a line, those of the lines it needs.
        megabytes: that its missing results are expected to take.
        size: bytes of all lines.
    """

    def __init__(self) -> None:
        self._offsets = array("q")
        self._steps: dict[str, int] = {}
        self._step = array("H")
        self.after: dict[int, tuple[int, ...]] = {}
        self.megabytes = 0.0
        self.size = 0

    def add(self, task: Task) -> bytes:
        """Takes in a cell; gives its line."""
        line = (json.dumps(task, separators=(",", ":")) + "\n").encode()
        if task["after"]:
            self.after[len(self._offsets)] = tuple(task["after"])
        self._step.append(self._steps.setdefault(task["step"], len(self._steps)))
        self._offsets.append(self.size)
        self.size += len(line)
        return line

    def open(self, path: Path) -> None:
        """The file with its lines; kept open, since another run may replace it."""
        self._file = open(path, "rb")  # noqa: SIM115

    def __len__(self) -> int:
        return len(self._offsets)

    def step(self, number: int) -> str:
        return list(self._steps)[self._step[number]]

    def task(self, number: int) -> Task:
        self._file.seek(self._offsets[number])
        task: Task = json.loads(self._file.readline())
        task["number"] = number
        return task


def write_plan(run: Path, cells: Iterable[Cell]) -> Plan:
    """Plans `cells` in the folder `run`: fingerprints everything they use, writes the plan, computes
    nothing."""
    aside = run / f"{ASIDE}{PLAN_FILE}-{os.getpid()}"
    plan = Plan()
    there = {entry.name for entry in os.scandir(run / "results")}
    try:
        with room_in(run), open(aside, "wb") as file, remembering_files():
            for task, expected in tasks(cells):
                if task["folder"] not in there:
                    plan.megabytes += expected
                task["files"] = _listed(run, task["files"])
                file.write(plan.add(task))
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, run / PLAN_FILE)
    finally:
        aside.unlink(missing_ok=True)
    flush_to_disk(run)
    plan.open(run / PLAN_FILE)
    return plan


def _listed(run: Path, files: dict[str, str]) -> str:
    """The name of the list, in the run's folder, of the files that a cell reads: many cells share one. "" if
    it reads none."""
    if not files:
        return ""
    name = fingerprint(files)[:20]
    if not (path := run / "files" / f"{name}.json").is_file():
        write_text(path, json.dumps(files), durable=False)
    return name


def check_files(run: Path, task: Task) -> None:
    """Compares the files that a cell reads with what they were when the cell was planned, under whose key its
    result goes.

    Raises:
        HeadwiseError: one is another now.
    """
    if not (name := task.get("files")):
        return
    for path, digest in read_json(run / "files" / f"{name}.json").items():
        if not Path(path).is_file() or content_hash(path) != digest:
            raise HeadwiseError(
                f"{path} has changed since the study was planned: rerun the study to plan it again"
            )


def read_plan(run: Path) -> Iterator[Task]:
    """The cells of a run, in order."""
    if not (run / PLAN_FILE).is_file():
        raise HeadwiseError(f"{run} is not a run of a study: there is no {PLAN_FILE} in it")
    with open(run / PLAN_FILE, "rb") as file:
        for number, line in enumerate(file, 1):
            task = parse_json(line, f"{run / PLAN_FILE}, line {number}")
            sound = isinstance(task, dict) and all(
                isinstance(task.get(name), kind) for name, kind in FIELDS.items()
            )
            if not sound or not all(isinstance(needed, int) for needed in task["after"]):
                raise HeadwiseError(
                    f"{run / PLAN_FILE}, line {number} is damaged: rerun the study to plan it again"
                )
            check_name(task["folder"], "a result's folder")
            yield task


def prepare(run: Path, kind: str, *, begins: bool = False) -> None:
    """Makes the folders of a run, and removes what killed processes left unfinished; a run that begins notes
    its command."""
    if run.exists() and not run.is_dir():
        raise HeadwiseError(f"{run} is a file: give --out the name of a folder")
    foreign = {path.name for path in run.iterdir()} - {*FOLDERS} if run.is_dir() else set()
    if any(not name.startswith(ASIDE) for name in foreign) and not (run / manifest.NAME).is_file():
        raise HeadwiseError(f"{run} holds other files: give --out a new folder, or that of an earlier run")
    if (run / manifest.NAME).is_file() and (holds := manifest.read(run)["kind"]) != "study":
        raise HeadwiseError(
            f"{run} holds a saved {holds}: give --out a new folder, or that of an earlier run"
        )
    for name in FOLDERS:
        make_folder(run / name)
    if begins or not (run / manifest.NAME).is_file():
        with tempfile.TemporaryDirectory() as staged:
            manifest.write(Path(staged), "study", study=kind, command=command.given())
            write_text(run / manifest.NAME, (Path(staged) / manifest.NAME).read_text(encoding="utf-8"))
    sweep(run)


def sweep(run: Path) -> None:
    """Removes what killed processes left: unfinished folders and locks that nobody holds. Files of others
    stay where they are."""
    asides = [path for path in (run / "work").iterdir() if path.is_dir() and not path.name.startswith(".")]
    unfinished = {path.name for path in (run / "running").iterdir() if path.is_file()} | {
        path.name.split(".")[0] for path in asides
    }
    for name in unfinished:
        if (
            not (run / "running" / name).is_dir()
            and (lock := locks.acquire(run / "running" / name)) is not None
        ):
            for aside in (aside for aside in asides if aside.name.startswith(f"{name}.")):
                shutil.rmtree(aside, ignore_errors=True)
            lock.release()
    for path in run.glob(f"{ASIDE}*"):
        if path.stat().st_mtime < time.time() - 3600:  # a younger one may be another process's
            path.unlink(missing_ok=True)
