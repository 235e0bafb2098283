"""Names in place of tasks, and names that are misspelt, get an error that says what to write."""

from pathlib import Path
from typing import Any

import pytest

import headwise as hw
from headwise.errors import HeadwiseError
from headwise.tasks import Task, find_tasks

ROWS = {"train": [("a", "x"), ("b", "y")] * 4, "validation": [("c", "x"), ("d", "y")]}


@pytest.mark.parametrize("call", [hw.train, hw.probe, hw.score, hw.dissociate])
@pytest.mark.parametrize("tasks", ["sst2", ["sst2"], [Task("one", data=ROWS), "sst2"]])
def test_a_name_is_not_a_task(call: Any, tasks: Any) -> None:
    with pytest.raises(HeadwiseError, match=r"'sst2' is a name.*find_tasks\(\['sst2'\]"):
        call("demo", tasks)
    with pytest.raises(HeadwiseError, match="expected a headwise Task, got int"):
        call("demo", [3])


def test_a_file_in_place_of_a_task_is_told_the_call() -> None:
    with pytest.raises(HeadwiseError, match=r"use headwise.tasks.read_toml\('tasks.toml'\)"):
        hw.score("demo", "tasks.toml")
    with pytest.raises(
        HeadwiseError,
        match=r"use headwise.Task\('reviews', path='data/reviews.csv', text=COLUMN, label=COLUMN\)",
    ):
        hw.score("demo", "data/reviews.csv")


def test_misspelt_names_are_told_what_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "tasks.toml"
    file.write_text(
        '[reviews]\npath = "r.csv"\ntext = "review"\nlabel = "stars"\n[tense]\ngrammar = "tense"\n',
        encoding="utf-8",
    )
    with pytest.raises(
        HeadwiseError, match=r"no task 'reviewz' \(did you mean 'reviews'\?\); it has: reviews, tense"
    ):
        find_tasks(["reviewz"], file=file)
    with pytest.raises(HeadwiseError, match=r"no preset 'imbd' \(did you mean 'imdb'\?\)"):
        find_tasks(["imbd"], file=file)
    with pytest.raises(HeadwiseError, match=r"no task 'tens' \(did you mean 'tense'\?\)"):
        find_tasks(["grammar:tens"])


def test_a_data_file_in_place_of_a_task_is_told_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text("text,label\n", encoding="utf-8")
    said = r'write a file tasks.toml with the lines \[reviews\] and path = "reviews.csv", and give it as --tasks-file tasks.toml'
    with pytest.raises(HeadwiseError, match=f"reviews.csv is a file, not the name of a task: {said}"):
        find_tasks([str(tmp_path / "reviews.csv")])
    with pytest.raises(HeadwiseError, match=f"reviews.csv holds data; a tasks file is TOML .*: {said}"):
        find_tasks([], file=tmp_path / "reviews.csv")


def test_a_folder_of_several_trainings_says_where_they_are(tmp_path: Path) -> None:
    inside = tmp_path / "iat" / "seed-0"
    inside.mkdir(parents=True)
    (inside / "headwise.json").write_text("{}", encoding="utf-8")
    with pytest.raises(
        HeadwiseError, match=r"no headwise.json in it, but in .*iat/seed-0: open one of these"
    ):
        hw.load(tmp_path)
    with pytest.raises(HeadwiseError, match="there is no folder"):
        hw.load(tmp_path / "nowhere")
