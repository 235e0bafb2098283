"""Opening text files that may be compressed."""

import bz2
import gzip
import lzma
from pathlib import Path
from typing import TextIO, cast

from headwise.errors import HeadwiseError


def open_text(path: Path) -> TextIO:
    """Opens a text file for reading as UTF-8, unpacking .xz, .gz and .bz2 on the way.

    Raises:
        HeadwiseError: there is no such file.
    """
    if not path.is_file():
        raise HeadwiseError(f"there is no file {path}")
    name = path.suffix.lower()
    if name == ".xz":
        return lzma.open(path, "rt", encoding="utf-8")
    if name == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8"))
    if name == ".bz2":
        return cast(TextIO, bz2.open(path, "rt", encoding="utf-8"))
    return open(path, encoding="utf-8")
