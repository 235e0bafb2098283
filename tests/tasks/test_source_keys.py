"""What of a data folder decides a result: the sets that its tasks read, and no others."""

from pathlib import Path

import pandas as pd
import pytest

from headwise.store import fingerprint
from headwise.tasks._source import TaskSource


def write(folder: Path, word: str = "word") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = {"sentence": [f"{word} {i}" for i in range(20)], "label": [i % 2 for i in range(20)]}
    for split in ("train", "validation"):
        pd.DataFrame(rows).to_parquet(folder / f"{split}.parquet")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("sst2", "cola"):
        write(tmp_path / name)
    return tmp_path


def key(data: Path, *names: str) -> str:
    return fingerprint(TaskSource(names=names, data=data))


def test_a_set_beside_those_that_are_read_does_not_count(data) -> None:
    before = key(data, "sst2", "grammar:topic")
    write(data / "rte", "other")
    write(data / "cola", "changed")
    assert key(data, "sst2", "grammar:topic") == before


@pytest.mark.parametrize("name", ["sst2", "SST-2"])
def test_a_set_that_is_read_counts_by_its_content(data, name) -> None:
    before, both = key(data, name), key(data, name, "cola")
    assert before != both
    write(data / "cola", "changed")
    assert key(data, name) == before
    assert key(data, name, "cola") != both
    write(data / "sst2", "changed")
    assert key(data, name) != before


def test_ag_pair_is_made_from_ag_news(data) -> None:
    write(data / "ag_news")
    before = key(data, "ag_pair")
    write(data / "ag_news", "changed")
    changed = key(data, "ag_pair")
    assert changed != before
    write(data / "ag_pair")
    assert key(data, "ag_pair") != changed


@pytest.mark.parametrize("names", [(), ("treebank:dep",), ("sst2", "treebank:dep")])
def test_where_it_is_not_known_what_is_read_everything_counts(data, names) -> None:
    before = key(data, *names)
    write(data / "cola", "changed")
    assert key(data, *names) != before


def test_a_folder_that_is_the_set_itself_counts_as_a_whole(data) -> None:
    before = key(data / "sst2", "sst2")
    write(data / "sst2", "changed")
    assert key(data / "sst2", "sst2") != before
