"""Checksums of the files in a folder, and in words what happened to a file that no longer has its own."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headwise._base.names import inside, shown
from headwise._base.writing import ASIDE
from headwise.errors import HeadwiseError
from headwise.store._atomic import checksum

_sound: set[tuple[Any, ...]] = set()  # files that this process has found as they were written


class DamagedResult(HeadwiseError):
    """A stored result is not what was written."""


def contents(folder: Path, but: Iterable[str] = (), ends: str = "") -> dict[str, list[Any]]:
    """Relative name to [bytes, SHA-256] of every file in `folder`, notes of people (.md) aside.

    Args:
        folder: the folder.
        but: names of files and folders at its top that do not count.
        ends: of a folder inside that has a file of this name, only that file counts: it vouches for the
            others.
    """
    listing: dict[str, list[Any]] = {}
    skipped = set(but)
    for path in sorted(folder.iterdir()):
        if path.name in skipped or path.name.startswith(ASIDE):
            continue
        if path.is_dir():
            if ends and (path / ends).is_file():
                inner_files = {ends: _measured(path / ends)}
            else:
                inner_files = contents(path, ends=ends)
            listing |= {
                f"{path.name}/{name}": size_and_digest for name, size_and_digest in inner_files.items()
            }
        elif path.is_file() and path.suffix != ".md":  # notes of people, who may change them
            listing[path.name] = _measured(path)
    return listing


def check_listing(folder: Path, files: Any) -> None:
    """Refuses a listing that is none, or that names files outside the folder.

    Raises:
        ValueError: says what is wrong.
    """
    if not isinstance(files, dict):
        raise ValueError("it does not say which files there are")
    for name, size_and_digest in files.items():
        try:
            inside(folder, name)
            size, digest = size_and_digest
            if not isinstance(size, int) or not isinstance(digest, str):
                raise TypeError
        except (HeadwiseError, TypeError, ValueError):
            raise ValueError(
                f"it names a file outside the folder, or one without size and checksum: {shown(name)}"
            ) from None


def verify(folder: Path, files: Mapping[str, Any], finished: float, remedy: str = "") -> None:
    """Compares files with their checksums, each once in a process as long as nobody writes to it.

    Raises:
        DamagedResult: names the file and what happened to it.
    """
    for name, size_and_digest in files.items():
        path = folder / name
        try:
            stat = path.stat()
            stamp: tuple[Any, ...] = (
                str(path.absolute()),
                size_and_digest[1],
                stat.st_ino,
                stat.st_mtime_ns,
                stat.st_ctime_ns,
            )
        except OSError:
            stamp = ()
        if stamp in _sound:
            continue
        if wrong := file_damage(path, size_and_digest, finished):
            raise DamagedResult(f"{folder}: {wrong}{remedy}")
        _sound.add(stamp)


def file_damage(path: Path, size_and_digest: list[Any], finished: float) -> str:
    """Names what happened to a file: missing, truncated, edited, or a bit flipped under it; "" if it is as it
    was written."""
    size, digest = size_and_digest
    name = path.name
    try:
        stat = path.stat()
    except FileNotFoundError:
        return f"{name} is missing"
    if stat.st_size < size:
        return f"{name} is truncated: {stat.st_size} of {size} bytes"
    if stat.st_size == size and checksum(path) == digest:
        return ""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stat.st_mtime))
    if stat.st_size > size:
        return f"{name} was edited: it has {stat.st_size} bytes instead of {size}, last written {when}"
    if stat.st_mtime > finished + 2:
        return f"{name} was edited: same size, other bytes, last written {when}, after the step had finished"
    return f"{name} has flipped bits: same size and date, other bytes (a disk error or a failed copy)"


def _measured(path: Path) -> list[Any]:
    return [path.stat().st_size, checksum(path)]
