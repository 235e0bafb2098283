"""Large inputs: what is kept of a text is its letters, in a mapped file; nothing is held as a Python object for every row."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from headwise.tasks import Examples, Task, encode
from headwise.tasks.texts import FEW, Texts, keep

ROWS = 30_000


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    dice = np.random.default_rng(0)
    words = np.array(["good", "fine", "bad", "poor", "cat", "dog", "tree", "sun", "rain", "hill", "Éclair", "日本", "naïve"])
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
    assert read == {text: "ab".index(label) for text, label in zip(table["text"], table["label"], strict=True)}


def test_kept_texts_read_like_a_list_of_them(table: pd.DataFrame) -> None:
    rows = [(text, text[::-1]) for text in table["text"][: FEW + 5]]
    kept = keep(iter(rows), len(rows))
    assert isinstance(kept, Texts)
    assert isinstance(keep(iter(rows[:FEW]), FEW), list)
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
    listed, mapped = Examples(rows, labels, "classes"), Examples(keep(iter(rows), len(rows)), labels, "classes")
    assert listed.fingerprint == mapped.fingerprint
    assert listed.sample(77).fingerprint == mapped.sample(77).fingerprint
    some = np.arange(FEW - 5, FEW + 5)
    one, other = (encode(part.subset(some), wordpiece) for part in (listed, mapped))
    np.testing.assert_array_equal(one.ids, other.ids)
