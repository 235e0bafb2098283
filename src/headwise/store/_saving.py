"""Folders of models: written aside, and put in their place as a whole. Another model that is there stays,
unless `overwrite` says otherwise.

A process that is killed leaves the model that was there, or the new one, or, where there was none, a folder
that nobody takes for one.
"""

import ctypes
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from headwise._base.writing import ASIDE, make_folder, room_in
from headwise.errors import HeadwiseError
from headwise.store import _manifest as manifest
from headwise.store._atomic import flush_all, flush_to_disk
from headwise.store._checksums import contents, file_damage

STARTED_FILE = "started.json"  # in an unfinished folder: what decides the result that is being computed
MODELS = ("multi-task", "task-model", "single-task", "removed-heads", "head-embedding", "embedded-model")
# files of a model and of a tokenizer, as transformers, PEFT and headwise call them
WEIGHTS = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "pytorch_model*",
    "adapter_*",
    "*.gguf",
)
TOKENIZER = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "spiece.model",
    "*.jinja",
)
README_NOTE = "Open this folder with "  # begins the README.md that is written beside a model
LAST = (
    "config.json",
    "training.json",
)  # without which nobody takes a folder for a model, or for a finished training
EXCHANGE = 2  # of the system call renameat2
HERE = -100  # its AT_FDCWD: names are relative to the current folder


def save_model(
    target: str | Path,
    write: Callable[[Path], dict[str, Any]],
    overwrite: bool = False,
    *,
    begun: bool = False,
) -> None:
    """Writes a model, with a manifest where it says what it needs.

    Args:
        target: the folder. Files in it that belong to no model stay.
        write: writes all files into an empty folder, and returns the fields of the manifest, its kind first;
            {}: there is none.
        overwrite: put it in the place of another model that is there. The same model is never an error.
        begun: the model is that of the result which was begun in the folder and is not finished, see
            `Entry.begin`.

    Raises:
        HeadwiseError: another model is there, or something else that is no model.
    """
    target = Path(target).resolve() if Path(target).is_symlink() else Path(target)
    if target.exists() and not target.is_dir():
        raise HeadwiseError(f"{target} is a file: give the name of a folder")
    unfinished = (target / STARTED_FILE).is_file()
    if unfinished and not begun:
        raise HeadwiseError(
            f"{target} holds a result that is not finished: finish it, choose another folder, or remove it "
            "first"
        )
    occupied = target.is_dir() and not unfinished and _holds_model(target)
    if occupied and overwrite:
        _check_replaceable(target)
    make_folder(target.parent)
    # beside what it replaces; else inside, where the folder may be a mounted disk or the current folder
    inside = target.is_dir() and not (occupied and overwrite)
    aside = (
        target if inside else target.parent
    ) / f"{ASIDE}{target.name or 'model'}-{os.getpid()}-{secrets.token_hex(4)}"
    with room_in(target):
        try:
            aside.mkdir()
            fields = write(aside)
            if occupied and not overwrite:
                _check_same(aside, target, fields)
            elif inside:
                _move_in(aside, target, fields)
            else:
                if occupied:
                    _carry(target, aside)
                _seal(aside, fields)
                flush_all(aside)
                (swap if occupied else _rename)(aside, target)
                flush_to_disk(target.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def swap(aside: Path, target: Path) -> None:
    """Puts `aside` in the place of the folder `target`, which is then called `aside`; in one step where the
    system can.

    Raises:
        HeadwiseError: the folder cannot be moved, as a mounted disk cannot.
    """
    if exchanged(aside, target):
        return
    before = target.parent / f"{ASIDE}{target.name}-before-{secrets.token_hex(4)}"
    try:
        os.rename(target, before)
    except OSError as error:
        raise HeadwiseError(
            f"{target} cannot be replaced as a whole ({error.strerror}), as where a disk is mounted: choose "
            "a folder in it, or remove the model that is there first"
        ) from error
    try:
        os.rename(aside, target)
    except BaseException:
        os.rename(before, target)
        raise
    os.rename(before, aside)


def exchanged(first: Path, second: Path) -> bool:
    """Whether two folders have changed places in one step: Linux can, on most file systems."""
    if sys.platform != "linux":
        return False
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    return call is not None and call(HERE, os.fsencode(first), HERE, os.fsencode(second), EXCHANGE) == 0


def _holds_model(folder: Path) -> bool:
    """Whether a folder holds a finished model, or another result."""
    names = [path.name for path in folder.iterdir() if path.is_file()]
    return manifest.NAME in names or any(_like(name, WEIGHTS) for name in names)


def _check_replaceable(target: Path) -> None:
    """Raises a HeadwiseError where replacing a folder would take more than a model, or the ground from under
    this process."""
    kind = manifest.read_any(target).get("kind", MODELS[0])
    if kind not in MODELS:
        raise HeadwiseError(
            f"{target} holds a {kind!r}, which is no model: choose another folder, or remove it first"
        )
    if Path.cwd().is_relative_to(target.resolve()):
        raise HeadwiseError(
            f"{target} is the current folder, which cannot be replaced: give a folder in it, or change to "
            "another"
        )


def _check_same(aside: Path, target: Path, fields: dict[str, Any]) -> None:
    """Raises a HeadwiseError if a folder holds anything but what was just written."""
    if not _same(aside, target, fields):
        kind = f" ({manifest.read(target)['kind']})" if (target / manifest.NAME).is_file() else ""
        raise HeadwiseError(
            f"{target} holds another model{kind}: choose another folder, remove it first, or put this model "
            "in its place with overwrite=True"
        )


def _seal(folder: Path, fields: dict[str, Any]) -> None:
    if fields:
        manifest.write(folder, **fields)


def _move_in(aside: Path, target: Path, fields: dict[str, Any]) -> None:
    """Moves everything into a folder that holds no finished model; the manifest, which makes it one, comes
    last."""
    (target / manifest.NAME).unlink(missing_ok=True)
    flush_all(aside)
    for path in sorted(aside.iterdir(), key=lambda path: LAST.count(path.name)):
        destination = target / path.name
        if destination.is_dir() and path.is_dir():
            shutil.rmtree(destination)  # of an attempt that did not end
        os.replace(path, destination)
    _seal(target, fields)


def _rename(aside: Path, target: Path) -> None:
    try:
        os.rename(aside, target)
    except OSError:
        if not target.exists():
            raise
        raise HeadwiseError(
            f"{target} has been written by another process meanwhile: choose another folder"
        ) from None


def _carry(target: Path, aside: Path) -> None:
    """Takes what belongs to no model along, as further names of the same files; a tokenizer too, unless the
    new model has its own."""
    listed = manifest.read_any(target).get("files", {})
    model_files = {manifest.NAME, *(name.split("/")[0] for name in listed)}
    reads = any(aside.rglob("tokenizer_config.json"))
    for path in target.iterdir():
        if _like(path.name, TOKENIZER):
            stays = not reads
        else:
            stays = not (
                path.name in model_files
                or _like(path.name, WEIGHTS)
                or path.name.startswith(ASIDE)
                or is_note(path)
            )
        if not stays or (aside / path.name).exists():
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, aside / path.name, symlinks=True, copy_function=_linked)
        else:
            _linked(path, aside / path.name)


def _linked(source: str | Path, destination: str | Path) -> None:
    try:
        os.link(source, destination, follow_symlinks=False)
    except OSError:  # a file system without hard links
        shutil.copy2(source, destination, follow_symlinks=False)


def is_note(path: Path) -> bool:
    """Whether a file is the README.md that headwise writes beside a model."""
    return path.name == "README.md" and path.read_text(encoding="utf-8", errors="replace").startswith(
        README_NOTE
    )


def _like(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _same(aside: Path, target: Path, fields: dict[str, Any]) -> bool:
    """Whether the folder holds what was just written: the same files, and the same in manifests, whose dates
    differ."""
    names = contents(aside, manifest.APART)
    inner = [(aside / name).parent for name in names if name.endswith(f"/{manifest.NAME}")]
    if _facts(target) != json.loads(json.dumps(fields)):
        return False
    if any(_facts(folder) != _facts(target / folder.relative_to(aside)) for folder in inner):
        return False
    return not any(
        file_damage(target / name, size_and_digest, 0.0)
        for name, size_and_digest in names.items()
        if not name.endswith(manifest.NAME)
    )


def _facts(folder: Path) -> dict[str, Any]:
    """What the manifest of a folder says of a model; {} where there is none."""
    record = manifest.read_any(folder)
    return {name: value for name, value in record.items() if name not in manifest.AROUND}
