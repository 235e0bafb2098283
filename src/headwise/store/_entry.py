"""A folder that holds one result: claimed by one process, compared with what decides it, continued or shown,
sealed when done."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from headwise._base.parsing import read_json
from headwise._base.writing import make_folder
from headwise.errors import HeadwiseError
from headwise.store import _locks as locks, _manifest as manifest
from headwise.store._atomic import sealed_text, write_text
from headwise.store._decision import Decision, differences, key_of
from headwise.store._loading import load
from headwise.store._provenance import surroundings, versions
from headwise.store._saving import STARTED_FILE

T = TypeVar("T")
NOTES = {STARTED_FILE, "seconds.json"}  # what a computation writes before it has computed anything
COMPARED = ("headwise", "torch", "transformers")  # versions that may change numbers


class Entry:
    """A folder for one result.

    Attributes:
        folder: where it is.
        decided: what decides it.
        finished: whether the result is there already.
        notes: what a reader of an existing result must know: library versions that have changed since.
        empty: whether a computation began here and left nothing.
    """

    def __init__(self, folder: str | Path, decided: Decision) -> None:
        self.folder = Path(folder)
        self.decided = decided
        self.notes: list[str] = []
        self.empty = False
        self.finished = self._compare()

    def begin(self) -> None:
        """Notes in the folder which result it is for, so that whatever continues it is compared with that."""
        if self.empty or not (self.folder / STARTED_FILE).is_file():
            make_folder(self.folder)
            write_text(
                self.folder / STARTED_FILE, sealed_text({"decision": self.decided, "versions": versions()})
            )

    def seals(self) -> dict[str, Any]:
        """The fields of a manifest that say what decided the result, and where it was computed."""
        return {"key": key_of(self.decided), "decision": self.decided, "provenance": surroundings()}

    def finish(self) -> None:
        """Seals the folder: its manifest then says what decided the result, and the checksum of every
        file."""
        manifest.amend(self.folder, **self.seals())
        (self.folder / STARTED_FILE).unlink(missing_ok=True)

    def _compare(self) -> bool:
        """Whether this very result is finished.

        Raises:
            HeadwiseError: the folder holds another result, or one that does not say what decided it.
        """
        record = manifest.read_any(self.folder)
        if "decision" in record:
            self._refuse_other(record["decision"], record["provenance"]["versions"])
            return True
        if (self.folder / STARTED_FILE).is_file():
            started = read_json(self.folder / STARTED_FILE)
            self.empty = {path.name for path in self.folder.iterdir()} <= NOTES
            if not self.empty:  # else it failed before anything was computed, and there is nothing to lose
                self._refuse_other(started["decision"], started["versions"])
        elif record:
            raise HeadwiseError(
                f"{self.folder} holds a {record['kind']!r} that does not say what it was computed from: "
                "choose another folder, or remove it"
            )
        elif self.folder.exists() and not self.folder.is_dir():
            raise HeadwiseError(f"{self.folder} is a file: give the name of a folder")
        return False

    def _refuse_other(self, before: Decision, computed_with: dict[str, str]) -> None:
        if wrong := differences(before, self.decided):
            raise HeadwiseError(
                f"{self.folder} holds another result: {'; '.join(wrong)}; choose another folder, or remove it"
            )
        now = versions()
        changed = [name for name in COMPARED if computed_with.get(name) != now.get(name)]
        if changed:
            old_versions = ", ".join(
                f"{name} {computed_with.get(name)} (now {now.get(name)})" for name in changed
            )
            self.notes = [
                f"{self.folder} was computed with {old_versions}; numbers may differ in their last digits"
            ]


def kept(folder: str | Path, decided: Decision, compute: Callable[[Entry], T]) -> tuple[T, list[str]]:
    """The result that `decided` decides: from `folder` if it is there, with no model opened, else computed
        and saved there.

    Args:
        folder: where it is, or will be.
        decided: what decides it.
        compute: computes the result and saves it, whole or not at all, with `entry.seals()` in its manifest.

    Returns:
        the result, and what its reader must know.

    Raises:
        HeadwiseError: the folder holds something else, or another process is computing into it.
    """
    entry = Entry(folder, decided)
    if not entry.finished:
        with claimed_folder(folder):
            entry = Entry(folder, decided)
            if not entry.finished:  # else another process has finished it meanwhile
                manifest.check_absent(folder)
                return compute(entry), []
    return load(folder), entry.notes


@contextmanager
def claimed_folder(folder: str | Path, claims: bool = True) -> Iterator[None]:
    """Inside the block no other process writes into `folder`; `claims=False` claims nothing (all but one
    process of a training).

    Raises:
        HeadwiseError: another process does; says which.
    """
    target = Path(folder).absolute()
    if not claims:
        yield
        return
    make_folder(target.parent)
    path = target.parent / f".{target.name}.running"
    lock = locks.acquire(path)
    if lock is None:
        raise HeadwiseError(
            f"{folder} is being written by {_holder(path)}: wait until it is done, or choose another folder"
        )
    lock.write({"host": socket.gethostname(), "pid": os.getpid(), "started": time.time()})
    try:
        yield
    finally:
        lock.release()


def _holder(path: Path) -> str:
    status = locks.running(path.parent, path.name).get(path.name, {})
    if not status:
        return "another process"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status["started"]))
    return f"process {status['pid']} on {status['host']}, since {since}"
