"""Packed files are read up to a limit, and messages are as long as they need to be."""

import bz2
import gzip
import io
import lzma
import resource
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwise._base.unpacking import LEAST, check_zip, open_bytes, read_parquet, unpack_limit
from headwise._base.writing import NoSpace
from headwise.errors import HeadwiseError, MissingExtra, bounded
from headwise.similarity import read_pereira
from headwise.tasks import Task
from headwise.tasks.readers import read_sentences

PACKERS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
MB = 1 << 20


def tables(folder: Path, packing: str, rows: int) -> dict[str, Path]:
    """Files of every packed format with `rows` times the same text."""
    contents = {
        "a.csv": b"text,label\n" + b"a fine film,1\na poor film,0\n" * (rows // 2),
        "a.jsonl": b'{"text": "a fine film", "label": 1}\n{"text": "a poor film", "label": 0}\n'
        * (rows // 2),
        "a.txt": b"a fine film\n" * rows,
        "a.conll": b"a\tO\n\n" * rows,
    }
    found = {}
    for name, content in contents.items():
        found[name] = folder / f"{name}{packing}"
        found[name].write_bytes(PACKERS[packing](content))
    return found


@pytest.mark.parametrize("packing", PACKERS)
def test_what_unpacks_to_more_than_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packing: str
) -> None:
    files = tables(tmp_path, packing, 40_000)
    kinds: dict[str, Any] = {"a.txt": {"kind": "next-token"}, "a.conll": {"kind": "spans"}}
    monkeypatch.setenv("HEADWISE_UNPACK_LIMIT", "100 kB")
    for name, file in files.items():
        with pytest.raises(
            HeadwiseError,
            match=r"unpacks to more than 100 kB, which .* set HEADWISE_UNPACK_LIMIT, for instance to 8GB",
        ):
            Task("t", path=file, **kinds.get(name, {})).splits  # noqa: B018
    monkeypatch.setenv("HEADWISE_UNPACK_LIMIT", "none")
    assert len(read_sentences(files["a.conll"])) == 40_000
    assert len(Task("t", path={"train": files["a.jsonl"]}).split("train")) == 40_000


def test_a_file_stops_where_its_limit_is_reached(tmp_path: Path) -> None:
    """The 2.2 GiB that a gzip of 696 KiB took: read to the limit, a piece at a time."""
    path = tmp_path / "a.csv.gz"
    packed = gzip.compress(b"text,label\n" + b"a,b\n" * 2_000_000, 9)
    with path.open("wb") as file:
        for _ in range(60):  # gzip files may follow one another in one file
            file.write(packed)
    assert path.stat().st_size < 2 * MB
    assert unpack_limit(path) == LEAST
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sizes: list[int] = []

    def measure() -> None:
        with open_bytes(path) as unpacked:
            sizes.extend(map(len, iter(lambda: unpacked.read(MB), b"")))

    with pytest.raises(HeadwiseError, match="unpacks to more than 256 MB, which is refused"):
        measure()
    assert LEAST - 2 * MB < sum(sizes) <= LEAST
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 100_000  # kB


def test_the_limit_is_a_size_or_none_and_grows_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.touch()
    for given, limit in (("4GB", 4e9), ("500 mb", 5e8), ("1000", 1000), ("none", np.inf), ("", LEAST)):
        monkeypatch.setenv("HEADWISE_UNPACK_LIMIT", given)
        assert unpack_limit(path) == limit
    for wrong in ("much", "4 GiB", "GB", "-"):
        monkeypatch.setenv("HEADWISE_UNPACK_LIMIT", wrong)
        with pytest.raises(
            HeadwiseError, match=r"HEADWISE_UNPACK_LIMIT is .*; expected a size such as 4GB or 500MB, or none"
        ):
            unpack_limit(path)
    monkeypatch.delenv("HEADWISE_UNPACK_LIMIT")
    with path.open("wb") as file:
        file.truncate(100 * MB)
    assert unpack_limit(path) == 50 * 100 * MB


def test_a_parquet_page_that_repeats_a_text_is_counted_unpacked(tmp_path: Path) -> None:
    rows = 5000
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 200_000]))
    table = pa.table({"text": texts, "label": pa.array(np.arange(rows) % 2)})
    pq.write_table(table, tmp_path / "a.parquet", store_schema=False, dictionary_pagesize_limit=MB)
    assert (tmp_path / "a.parquet").stat().st_size < MB
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(HeadwiseError, match=r"a\.parquet has .* kB and unpacks to more than 256 MB"):
        Task("t", path=tmp_path / "a.parquet").splits  # noqa: B018
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 600_000  # kB


def test_parquet_pages_beyond_the_limit_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pd.DataFrame({"text": [f"text {i}" for i in range(20_000)]}).to_parquet(tmp_path / "a.parquet")
    monkeypatch.setenv("HEADWISE_UNPACK_LIMIT", "10kB")
    with pytest.raises(HeadwiseError, match=r"unpacks to more than 10\.0 kB"):
        read_parquet(tmp_path / "a.parquet")


def test_parquet_files_are_what_pandas_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"text {i % 700}" for i in range(10_000)]
    table = pd.DataFrame(
        {"text": texts, "n": range(10_000), "x": np.linspace(0, 1, 10_000), "words": [["a", "b"]] * 10_000}
    )
    for made in (table, table.astype({"text": "category"}), table[:0], table.assign(text=None)):
        made.to_parquet(path, row_group_size=3000)
        pd.testing.assert_frame_equal(read_parquet(path), pd.read_parquet(path))


def test_zipped_arrays_are_measured_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "responses.npz", responses=np.zeros((10, 100, 100)))
    monkeypatch.setenv("HEADWISE_UNPACK_LIMIT", "500kB")
    with pytest.raises(HeadwiseError, match=r"responses\.npz has .* and unpacks to more than 500 kB"):
        read_pereira(tmp_path)
    with zipfile.ZipFile(tmp_path / "small.zip", "w") as archive:
        archive.writestr("a", "a")
    check_zip(tmp_path / "small.zip")


def test_messages_keep_their_beginning_and_their_end() -> None:
    short = "a message that says what is wrong"
    assert bounded(short) == str(HeadwiseError(short)) == short
    long = f"the file is wrong: {'x' * 789_000}; fix the row"
    for error in (HeadwiseError(long), MissingExtra(long, "data"), NoSpace(Path("/tmp"), long)):
        said = str(error)
        assert len(said) < 4100
        assert "the file is wrong: xxx" in said
        assert "characters in all" in said
        assert said.endswith(("fix the row", "headwise[data]'", "then rerun"))
    assert HeadwiseError().args == ()


def test_tables_of_many_columns_and_long_names_make_short_messages() -> None:
    rows = {
        "train": [(f"text {i}", f"{'ab'[i % 2] * 100_000}") for i in range(40)],
        "validation": [("new", "c" * 100_000)],
    }
    with pytest.raises(HeadwiseError, match="is not among the classes") as caught:
        Task("t", data=rows).splits  # noqa: B018
    assert len(str(caught.value)) < 600
    for table in (
        pd.DataFrame(np.zeros((3, 5000))),
        pd.DataFrame({f"{'c' * 100_000}{i}": ["a"] for i in range(5)}),
    ):
        with pytest.raises(HeadwiseError, match="has no column 'text', only: ") as caught:
            Task("t", data=table).splits  # noqa: B018
        assert len(str(caught.value)) < 600


def test_a_closed_file_closes_what_it_unpacks(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"abc"))
    with open_bytes(tmp_path / "a.gz") as file:
        assert file.read() == b"abc"
        assert isinstance(file, io.BufferedReader)
        source = file.raw.source
    assert source.closed
