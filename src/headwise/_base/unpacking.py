"""Packed files that others made: read up to a limit, so that a small file cannot fill the memory.

The limit is 256 MB, or 50 times the size of the file where that is more: real text and tables pack less than
that. HEADWISE_UNPACK_LIMIT is another limit for every file: "4GB", or "none".
"""

import bz2
import gzip
import io
import lzma
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from headwise._base.writing import readable
from headwise.errors import HeadwiseError

if TYPE_CHECKING:
    import pandas as pd

VARIABLE = "HEADWISE_UNPACK_LIMIT"
LEAST, TIMES = 256_000_000, 50  # bytes that any file may unpack to, and multiples of its size
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "B": 1, "": 1}
OPENERS: dict[str, Callable[[Path], Any]] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}
BATCH = 4096  # rows of a parquet file unpacked at once, and fewer where one text may fill
ROOM = 16_000_000  # bytes


def unpack_limit(path: Path) -> float:
    """Bytes that a packed file may unpack to.

    Raises:
        HeadwiseError: the environment's limit is no size.
    """
    size = os.environ.get(VARIABLE, "").strip().upper().replace(" ", "")
    if not size:
        return max(LEAST, TIMES * path.stat().st_size)
    if size == "NONE":
        return float("inf")
    number = size.rstrip("KMGTB")
    try:
        return float(number) * UNITS[size[len(number) :]]
    except (ValueError, KeyError):
        raise HeadwiseError(
            f"{VARIABLE} is {size!r}; expected a size such as 4GB or 500MB, or none"
        ) from None


def too_large(path: Path, limit: float) -> HeadwiseError:
    """The error for a file that unpacks to more than its limit."""
    return HeadwiseError(
        f"{path} has {readable(path.stat().st_size)} and unpacks to more than {readable(limit)}, which is "
        "refused so that a small file cannot fill the memory: if you trust it, unpack it yourself, or set "
        f"{VARIABLE}, for instance to 8GB"
    )


class _Bounded(io.RawIOBase):
    """What a packed file holds, up to its limit."""

    def __init__(self, path: Path, source: IO[bytes]) -> None:
        self.path, self.source, self.limit, self.count = path, source, unpack_limit(path), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self.source.read(len(buffer))
        buffer[: len(block)] = block
        self.count += len(block)
        if self.count > self.limit:
            raise too_large(self.path, self.limit)
        return len(block)

    def close(self) -> None:
        self.source.close()
        super().close()


def open_bytes(path: Path) -> IO[bytes]:
    """Opens a file for reading; .xz, .gz and .bz2 are unpacked on the way, up to their limit."""
    opener = OPENERS.get(path.suffix.lower())
    if opener is None:
        return open(path, "rb")
    return io.BufferedReader(_Bounded(path, opener(path)), 1 << 16)


def check_zip(path: Path) -> None:
    """Raises a HeadwiseError if a zip file (.npz too) unpacks to more than its limit; what it says of its
    size is held to when it is read."""
    limit = unpack_limit(path)
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > limit:
            raise too_large(path, limit)


def read_parquet(path: Path) -> "pd.DataFrame":
    """A parquet file as a table, up to its limit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    limit = unpack_limit(path)
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        if sum(group.total_byte_size for group in groups) > limit:
            raise too_large(path, limit)
        batches, count = [], 0
        for batch in file.iter_batches(batch_size=max(1, min(BATCH, ROOM // _longest(path)))):
            for column in batch.columns:
                if pa.types.is_dictionary(column.type):
                    column = column.indices
                count += column.nbytes
            if count > limit:
                raise too_large(path, limit)
            batches.append(batch)
        table = pa.Table.from_batches(batches, schema=file.schema_arrow)
    return table.to_pandas()


def _longest(path: Path) -> int:
    """Bytes of the longest text that the file's dictionaries hold: with a few bytes a page repeats it in a
    million rows."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    longest = 1
    kinds = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    with pq.ParquetFile(path) as plain:
        texts = [field.name for field in plain.schema_arrow if field.type in kinds]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        for number in range(file.metadata.num_row_groups if texts else 0):
            for batch in file.iter_batches(batch_size=1, row_groups=[number], columns=texts):
                held = [column.dictionary for column in batch.columns if pa.types.is_dictionary(column.type)]
                longest = max([longest, *(pc.max(pc.binary_length(words)).as_py() or 0 for words in held)])
                break
    return longest
