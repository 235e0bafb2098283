"""A tenth of train in place of the validation split, to choose settings by."""

from pathlib import Path

import pandas as pd
import pytest

from headwise import grammar
from headwise.store import fingerprint
from headwise.tasks import Task, find_tasks
from headwise.tasks._source import TaskSource


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    (root / "sst2").mkdir()
    for split, size in {"train": 400, "validation": 60, "test": 60}.items():
        rows = {
            "sentence": [f"{split} number {i // 2}" for i in range(size)],
            "label": [i % 2 for i in range(size)],
        }
        pd.DataFrame(rows).to_parquet(root / "sst2" / f"{split}.parquet")
    return root


def texts(task: Task, split: str) -> list[str]:
    return [text for (text,) in task.split(split).texts]


def test_validation_comes_from_train_and_is_not_trained_on(folder) -> None:
    (plain,) = find_tasks(["sst2"], folder)
    (chosen,) = find_tasks(["sst2"], folder, held_out=True)
    assert sorted(texts(chosen, "train") + texts(chosen, "validation")) == sorted(texts(plain, "train"))
    assert not set(texts(chosen, "train")) & set(
        texts(chosen, "validation")
    )  # every text occurs twice: both on one side
    assert 20 <= len(texts(chosen, "validation")) <= 60
    assert texts(chosen, "test") == texts(plain, "test")
    assert chosen.validation_carved
    assert not plain.validation_carved
    assert all(text.startswith("validation") for text in texts(plain, "validation"))


def test_the_seed_decides_which_tenth(folder) -> None:
    first, again, other = (find_tasks(["sst2"], folder, held_out=True, seed=seed)[0] for seed in (0, 0, 1))
    assert texts(first, "validation") == texts(again, "validation") != texts(other, "validation")


def test_a_task_that_was_read_before_holds_out_too() -> None:
    (task,) = grammar.tasks(["topic"], size=100)
    before = texts(task, "train")
    held = task.held_out()
    assert sorted(texts(held, "train") + texts(held, "validation")) == sorted(before)
    assert texts(task, "train") == before


def test_keys_are_those_of_before_unless_it_is_asked_for(folder) -> None:
    plain, chosen = (TaskSource(names=("sst2",), data=folder, held_out=value) for value in (None, True))
    assert "held_out" not in plain.decides()
    assert fingerprint(plain.decides()) != fingerprint(chosen.decides())
    (task,) = chosen.find()
    assert task.origin is not None
    assert task.origin["held_out"] is True
