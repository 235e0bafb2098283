"""SentEval's file format, and folders of tables."""

from pathlib import Path

import pandas as pd
import pytest

from headwise.errors import HeadwiseError
from headwise.probing._senteval import SENTEVAL, senteval_name, senteval_tasks

ROWS = 'tr\t3\tA first sentence .\ntr\t5\tA "quoted" one .\nva\t5\tFor validation .\nte\t3\tFor the test .\n'


def test_reads_sentevals_own_format(tmp_path: Path) -> None:
    (tmp_path / "tree_depth.txt").write_text(ROWS, encoding="utf-8")
    (tmp_path / "unrelated.txt").write_text("x", encoding="utf-8")
    (task,) = senteval_tasks(tmp_path)
    assert task.name == "Depth"
    assert task.classes == ("3", "5")
    assert task.split("train").texts == [("A first sentence .",), ('A "quoted" one .',)]
    assert [len(task.split(split)) for split in ("train", "validation", "test")] == [2, 1, 1]


def test_reads_folders_of_tables_and_carves_validation(tmp_path: Path) -> None:
    folder = tmp_path / "past_present"
    folder.mkdir()
    for split in ("train", "test"):
        frame = pd.DataFrame(
            {"sentence": [f"{split} {i}" for i in range(60)], "label": ["Past", "Pres"] * 30}
        )
        frame.to_parquet(folder / f"{split}.parquet")
    (task,) = senteval_tasks(tmp_path, ["past_present"])
    assert task.name == "Tense"
    train, validation = (task.split(split).texts for split in ("train", "validation"))
    assert sorted(train + validation) == sorted((f"train {i}",) for i in range(60))  # each on one side
    assert 3 <= len(validation) <= 9
    assert task.split("test").texts == [(f"test {i}",) for i in range(60)]


def test_names() -> None:
    assert [senteval_name(name) for name in ("depth", "tree_depth", "TREE-DEPTH", "SubjNumber")] == [
        "Depth",
        "Depth",
        "Depth",
        "SubjNumber",
    ]
    assert len(SENTEVAL) == 10


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(HeadwiseError, match="holds no probing task"):
        senteval_tasks(tmp_path)
    with pytest.raises(HeadwiseError, match="not a folder"):
        senteval_tasks(tmp_path / "nowhere")
    (tmp_path / "tree_depth.txt").write_text(ROWS + "tr only two\n", encoding="utf-8")
    with pytest.raises(HeadwiseError, match="line 5: expected tr, va or te"):
        senteval_tasks(tmp_path, ["Depth"])[0].split("train")
    with pytest.raises(HeadwiseError, match="no task 'Length'"):
        senteval_tasks(tmp_path, ["Length"])


def test_a_word_that_only_the_test_split_has_is_a_class_that_no_probe_can_guess(tmp_path: Path) -> None:
    for split, words in {"train": ["dog", "cat"] * 8, "test": ["dog", "emu"]}.items():
        table = pd.DataFrame(
            {"sentence": [f"a {word} number {i} runs" for i, word in enumerate(words)], "label": words}
        )
        (tmp_path / "word_content").mkdir(exist_ok=True)
        table.to_parquet(tmp_path / "word_content" / f"{split}.parquet")
    (task,) = senteval_tasks(tmp_path, ["WordContent"])
    assert task.classes == ("cat", "dog", "emu")
    assert task.split("test").labels.tolist() == [1, 2]
