"""Opening text files that may be compressed."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from headwise._base.parsing import reading
from headwise._base.unpacking import open_bytes
from headwise.errors import HeadwiseError


@contextmanager
def open_text(path: Path, newline: str | None = None) -> Iterator[TextIO]:
    """Opens a text file for reading as UTF-8, unpacking .xz, .gz and .bz2 on the way; a byte-order mark is left out.

    Args:
        path: the file.
        newline: as for `open`: "" leaves line ends as they are.

    Raises:
        HeadwiseError: there is no such file, or (here or while it is read) it is not UTF-8, not packed as its name says, or unpacks to
            more than it may.
    """
    if not os.path.isfile(path):  # pathlib's own raises where a name is too long
        raise HeadwiseError(f"there is no file {path}")
    with (
        reading(path, "UTF-8 text"),
        open_bytes(path) as file,
        io.TextIOWrapper(file, encoding="utf-8-sig", newline=newline) as handle,
    ):
        yield handle
