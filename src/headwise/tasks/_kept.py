"""Tokenised texts kept for the next call (in memory) and the next process (in the cache folder), found by
content.
"""

import hashlib
import os
import re
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from headwise._base.writing import ASIDE, save_tensors, whole_file
from headwise.store import cache_folder

Arrays = dict[str, NDArray[Any]]
KEPT = 32  # encodings remembered in this process
LEAST = 1000  # examples: tokenising fewer takes less than a tenth of a second
ROOM = (
    2_000_000_000  # bytes of the cache folder; the files that nobody has read for the longest time go first
)
# names of our files: whatever else lies in a folder is not ours to remove
OURS = re.compile(r"[0-9a-f]{32}\.safetensors")
UNFINISHED_S = 86_400.0  # what a killed process left behind goes after a day
_memory: OrderedDict[str, Arrays] = OrderedDict()


def recalled(key: str, folder: Path | None) -> Arrays | None:
    """The arrays kept under this key, in memory or in `folder`; None if there are none, or if the file is
    damaged.
    """
    if key in _memory:
        _memory.move_to_end(key)
        return _memory[key]
    if folder is None:
        return None
    arrays = _read(folder / f"{key}.safetensors")
    if arrays is not None:
        _in_memory(key, arrays)
    return arrays


def keep(key: str, arrays: Arrays, folder: Path | None) -> None:
    """Keeps arrays in memory and, unless it is None, in `folder`. A folder that cannot be written to is only
    a lost shortcut.
    """
    _in_memory(key, arrays)
    if folder is None:
        return
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    ours = folder == folder_for(LEAST)  # not one that the caller names, which has room for what is put there
    if ours and sum(array.nbytes for array in arrays.values()) > ROOM // 2:
        return  # it would drive out all others
    with suppress(OSError, SafetensorError):
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / f"{key}.safetensors") as aside:
            save_tensors(arrays, aside, {"checksum": _checksum(arrays)})
        if ours:
            _make_room(folder)


def folder_for(examples: int) -> Path | None:
    """Where encodings of a set of this size are kept; None: only in memory."""
    cache = cache_folder()
    if cache is None or examples < LEAST:
        return None
    return cache / "tokens"


def forget() -> None:
    """Empties the encodings remembered in this process."""
    _memory.clear()


def _in_memory(key: str, arrays: Arrays) -> None:
    _memory[key] = arrays
    while len(_memory) > KEPT:
        _memory.popitem(last=False)


def _read(file: Path) -> Arrays | None:
    try:
        with safe_open(file, framework="numpy") as stored:
            arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118  it is no dict
            checksum = (stored.metadata() or {}).get("checksum")
    except (OSError, SafetensorError):
        return None
    with suppress(OSError):  # another user's
        os.utime(file)  # read last: the last to go
    return arrays if checksum == _checksum(arrays) else None


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].data)
    return digest.hexdigest()


def _make_room(folder: Path) -> None:
    """Removes the files that were read longest ago until the newer ones fit into `ROOM`."""
    stats = {file: file.stat() for file in folder.iterdir()}
    size = 0
    for file, stat in sorted(stats.items(), key=lambda pair: pair[1].st_mtime, reverse=True):
        if OURS.fullmatch(file.name):
            size += stat.st_size
            if size > ROOM:
                file.unlink(missing_ok=True)
        elif file.name.startswith((ASIDE, ".tmp")) and time.time() - stat.st_mtime > UNFINISHED_S:
            file.unlink(missing_ok=True)
