"""Who computes what just now: one locked file per running cell, which also tells how far it is.

Not by filelock: it cannot read who holds a lock without permission to write, fails on storage that refuses
locks (ENOLCK, ENOTSUP), and leaves a file behind for every cell. A killed process's lock is free at once with
either.
"""

import errno
import fcntl
import json
import os
import threading
from pathlib import Path
from typing import Any


class Lock:
    """An exclusive lock that the system drops when its process dies, however it dies. Its file holds the
    cell's progress."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        # a write after the release could land in whatever file got the number next
        self._guard = threading.Lock()
        self._held = True

    def write(self, status: dict[str, Any]) -> None:
        """Replaces the status that others read."""
        raw = json.dumps(status).encode()
        with self._guard:
            if self._held:
                os.pwrite(self._descriptor, raw, 0)
                os.ftruncate(self._descriptor, len(raw))

    def release(self) -> None:
        with self._guard:
            self._held = False
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)


def acquire(path: Path) -> Lock | None:
    """Takes the lock `path`, or gives None at once if another process holds it.

    On storage without locks every process gets it: two may then compute one cell, and the first to finish is
        kept.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                os.close(descriptor)
                raise
        try:
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return Lock(path, descriptor)
        except FileNotFoundError:
            pass
        os.close(descriptor)  # the last holder removed the file between our open and our lock


def running(folder: Path, name: str = "*") -> dict[str, dict[str, Any]]:
    """Name to status of the locks in `folder` that some process holds; needs no permission to write."""
    statuses: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob(name)):
        try:
            with open(path, "rb") as file:
                raw = file.read()
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (FileNotFoundError, IsADirectoryError):
            continue
        except BlockingIOError:
            try:
                statuses[path.name] = json.loads(raw or b"{}")
            except ValueError:  # read in the middle of a write
                statuses[path.name] = {}
    return statuses
