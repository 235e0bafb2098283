"""Folders and files that appear whole or not at all: written aside, flushed to the disk, then renamed."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from headwise._base.parsing import parse_json
from headwise._base.writing import ASIDE, room_in, settle, write_bytes
from headwise.errors import HeadwiseError


@contextmanager
def atomic_folder(target: str | Path) -> Iterator[Path]:
    """Gives an empty folder to write into; when the block ends well, it becomes `target` in one rename.

    If the block raises, or the process dies, `target` does not appear. If another process has made `target`
    meanwhile, that one stays and this one is dropped: both computed the same thing.
    """
    target = Path(target)
    aside = target.parent / f"{ASIDE}{target.name}-{os.getpid()}-{secrets.token_hex(4)}"
    with room_in(target):
        try:
            aside.mkdir(parents=True)
            yield aside
            publish((aside, target))
        finally:
            shutil.rmtree(aside, ignore_errors=True)  # gone already if it was renamed


def publish(*pairs: tuple[Path, Path]) -> None:
    """Flushes every `aside` folder of the (aside, target) pairs to the disk, then renames each to its target.

    Where a target is there already, that one stays and its `aside` is removed. Several results at once cost
    little more than one: the disk joins flushes that wait at the same time.
    """
    flush_all(*(aside for aside, _ in pairs))
    for aside, target in pairs:
        try:
            os.rename(aside, target)
        except OSError:
            if not target.is_dir():
                raise
            shutil.rmtree(aside, ignore_errors=True)
    for parent in {target.parent for _, target in pairs}:
        flush_to_disk(parent)


def flush_all(*folders: Path) -> None:
    """Gives all files in some folders the usual mode, and waits until they are on the disk."""
    paths: list[str] = []
    for folder in folders:
        settle(folder)
        for directory, _, names in os.walk(folder):
            paths += [directory, *(os.path.join(directory, name) for name in names)]
    list(_flushers().map(flush_to_disk, paths))


def write_text(path: Path, text: str, durable: bool = True) -> None:
    """Replaces the file `path` by `text` in one rename; `durable=False` skips the flush for files that may be
    lost."""
    write_bytes(path, text.encode(), durable)
    if durable:
        flush_to_disk(path.parent)


def write_sealed(path: Path, record: dict[str, Any]) -> None:
    """Writes `record` as JSON with a checksum of itself under "seal"."""
    path.write_text(sealed_text(record), encoding="utf-8")


def sealed_text(record: dict[str, Any]) -> str:
    """`record` as JSON, with its checksum."""
    plain = json.loads(json.dumps(record))  # keys are text, lists are lists, as whoever reads it finds them
    return json.dumps({**plain, "seal": seal(plain)}, indent=1, sort_keys=True) + "\n"


def read_sealed(path: Path) -> dict[str, Any]:
    """Reads what `write_sealed` wrote.

    Raises:
        ValueError: it is missing, is not JSON, or does not match its own seal; the message says which.
    """
    try:
        record = parse_json(path.read_bytes(), path.name)
    except FileNotFoundError:
        raise ValueError(f"{path.name} is missing") from None
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from None
    except HeadwiseError:
        raise ValueError(f"{path.name} is not whole JSON: truncated or overwritten") from None
    if not isinstance(record, dict) or record.pop("seal", None) != seal(record):
        raise ValueError(f"{path.name} does not match its own seal: edited or damaged")
    return record


def checksum(path: Path) -> str:
    """SHA-256 of a file, as hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush_to_disk(path: str | Path) -> None:
    """Waits until a file's bytes, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@cache
def _flushers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(32, thread_name_prefix="flush")


def seal(record: dict[str, Any]) -> str:
    """Checksum of a record of JSON values."""
    return hashlib.sha256(json.dumps(record, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
