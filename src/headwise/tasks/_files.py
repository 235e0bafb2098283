"""Opening text files that may be compressed."""

import bz2
import gzip
import lzma
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from headwise._base.parsing import reading
from headwise.errors import HeadwiseError

OPENERS: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Opens a text file for reading as UTF-8, unpacking .xz, .gz and .bz2 on the way; a byte-order mark is left out.

    Raises:
        HeadwiseError: there is no such file, or (here or while it is read) it is not UTF-8 or not packed as its name says.
    """
    if not os.path.isfile(path):  # pathlib's own raises where a name is too long
        raise HeadwiseError(f"there is no file {path}")
    opener = OPENERS.get(path.suffix.lower(), open)
    with reading(path, "UTF-8 text"), opener(path, "rt", encoding="utf-8-sig") as handle:
        yield handle
