"""Large inputs: what is kept of a text is its letters, in a mapped file; nothing is held as a Python object for every row."""

import gc
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from headwise._base.memory import release
from headwise.errors import HeadwiseError
from headwise.tasks import Examples, Task, _kept as kept, _rows, encode
from headwise.tasks._texts import FEW, Texts, keep_texts

ROWS = 30_000
MB = 1 << 20


def own() -> int:
    """Resident bytes without the pages of mapped files."""
    resident, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    dice = np.random.default_rng(0)
    words = np.array(
        [
            "good",
            "fine",
            "bad",
            "poor",
            "cat",
            "dog",
            "tree",
            "sun",
            "rain",
            "hill",
            "Éclair",
            "日本",
            "naïve",
        ]
    )
    texts = [f"{i} {' '.join(row)}" for i, row in enumerate(words[dice.integers(0, len(words), (ROWS, 10))])]
    return pd.DataFrame({"text": texts, "label": np.array(["a", "b"])[dice.integers(0, 2, ROWS)]})


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_reading_holds_no_object_for_every_row(tmp_path: Path, table: pd.DataFrame, kind: str) -> None:
    path = tmp_path / f"rows.{kind}"
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path, index=False)
    tracemalloc.start()
    task = Task("rows", path=path)
    assert sum(len(task.split(name)) for name in task.splits) == ROWS
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 100 * ROWS  # tuples of strings take more than twice that
    read = {
        text: label
        for name in task.splits
        for (text,), label in zip(task.split(name).texts, task.split(name).labels, strict=True)
    }
    assert read == {
        text: "ab".index(label) for text, label in zip(table["text"], table["label"], strict=True)
    }


def test_kept_texts_read_like_a_list_of_them(table: pd.DataFrame) -> None:
    rows = [(text, text[::-1]) for text in table["text"][: FEW + 5]]
    kept = keep_texts(iter(rows), len(rows))
    assert isinstance(kept, Texts)
    assert isinstance(keep_texts(iter(rows[:FEW]), FEW), list)
    assert kept == rows
    assert kept != rows[:-1]
    assert (kept[7], kept[-1], kept[3:6], kept[::4000]) == (rows[7], rows[-1], rows[3:6], rows[::4000])
    with pytest.raises(IndexError):
        kept[len(rows)]
    chosen = np.random.default_rng(1).permutation(len(rows))[:50]
    assert kept.take(chosen).take(np.arange(40, 50)) == [rows[i] for i in chosen[40:50]]


def test_tokens_fingerprints_and_subsets_are_those_of_a_list(table: pd.DataFrame, wordpiece: Any) -> None:
    rows = [(text,) for text in table["text"][: FEW + 100]]
    labels = np.zeros(len(rows), np.int64)
    listed, mapped = (
        Examples(rows, labels, "classes"),
        Examples(keep_texts(iter(rows), len(rows)), labels, "classes"),
    )
    assert listed.fingerprint == mapped.fingerprint
    assert listed.sample(77).fingerprint == mapped.sample(77).fingerprint
    some = np.arange(FEW - 5, FEW + 5)
    one, other = (encode(part.subset(some), wordpiece) for part in (listed, mapped))
    np.testing.assert_array_equal(one.ids, other.ids)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_is_given_back_to_the_system_once_it_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows.{kind}"
    words = np.array([f"word{i:04}" * 4 for i in range(2000)])
    texts = [
        f"{i} {' '.join(row)}"
        for i, row in enumerate(words[np.random.default_rng(0).integers(0, 2000, (ROWS, 40))])
    ]
    part = pd.DataFrame({"text": texts, "label": ["a", "b"] * (ROWS // 2)})
    part.to_csv(path, index=False) if kind == "csv" else part.to_parquet(
        path, index=False, compression="none"
    )
    del part, texts, words
    size = path.stat().st_size if kind == "csv" else ROWS * 40 * 33
    Task("warm", path=path).split(
        "train"
    )  # what the allocators set up once for a table of this size is no leak
    gc.collect()
    release()
    before = own()
    task = Task("rows", path=path)
    assert len(task.split("train")) > FEW
    assert size > 36 * MB
    assert own() - before < 12 * MB  # labels and places take one


@pytest.mark.parametrize("kind", ["classes", "masked-token"])
def test_tokens_are_gathered_in_the_space_they_take(
    table: pd.DataFrame, wordpiece: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_rows, "CHUNK", 100)
    rows = [(text,) for text in table["text"][: FEW + 1000]]
    examples = Examples(keep_texts(iter(rows), len(rows)), np.zeros(len(rows), np.int64), kind)
    wordpiece(rows[0][0])
    tracemalloc.start()
    encoded = encode(examples, wordpiece, 64, remember=False)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    arrays = (encoded.ids, encoded.types, encoded.special, encoded.starts, encoded.rows, encoded.sizes)
    tokens = sum(array.nbytes for array in arrays if array is not None)
    assert tokens > 2 * MB
    assert held < 1.1 * tokens + MB
    assert peak < 1.1 * tokens + MB  # what is being tokenised is there as Python lists besides


def test_a_stream_of_pieces_is_not_remembered(table: pd.DataFrame, wordpiece: Any) -> None:
    kept.forget()
    examples = Examples([(text,) for text in table["text"][:50]], np.zeros(50, np.int64), "classes")
    first = encode(examples, wordpiece, remember=False)
    assert not kept._memory
    np.testing.assert_array_equal(first.ids, encode(examples, wordpiece).ids)
    assert encode(examples, wordpiece).ids is encode(examples, wordpiece, remember=False).ids


def test_rows_are_named_as_the_file_counts_them_whatever_their_split(
    tmp_path: Path, table: pd.DataFrame
) -> None:
    for bad in (0, 17, ROWS - 1):
        broken = table.copy()
        broken.loc[bad, "text"] = " "
        broken.to_csv(tmp_path / "rows.csv", index=False)
        with pytest.raises(HeadwiseError, match=f"row {bad + 1}: text is empty"):
            Task("rows", path=tmp_path / "rows.csv").splits  # noqa: B018
