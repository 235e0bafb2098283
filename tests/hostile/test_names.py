"""Names of tasks that would be paths: refused where a task is made, and in what is read back. Nothing is touched outside."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import headwise as hw
from headwise._base.names import check_name, file_name, inside
from headwise.errors import HeadwiseError
from headwise.models._decoders.output import SavedTask
from headwise.store import _manifest as manifest
from headwise.tasks import Task, read_toml

ROWS = {"train": [("a b", "x"), ("c d", "y")] * 8, "validation": [("e f", "x"), ("g h", "y")]}
WRONG = [
    "/tmp/absolute",
    "../../x",
    "a/b",
    "a\\b",
    "..",
    ".",
    ".hidden",
    "",
    "  ",
    "a\0b",
    "a\nb",
    "a\x1bb",
    "\ud800",
    "x" * 500,
    3,
    None,
]


@pytest.mark.parametrize("name", WRONG, ids=repr)
def test_a_task_is_refused_a_name_that_no_file_could_have(name: str) -> None:
    with pytest.raises(HeadwiseError, match="cannot be the name of a task"):
        Task(name, data=ROWS)
    with pytest.raises(HeadwiseError, match="cannot be the name of a task"):
        Task("fine", data=ROWS).renamed(name)
    with pytest.raises(HeadwiseError, match="cannot be the name of a task"):
        SavedTask(name, "classes", ("x", "y"), "accuracy")


@pytest.mark.parametrize("name", ["sst2", "Größe 2", "grammar:topic", "a.b", "情感", "x" * 100])
def test_ordinary_names_pass(name: str) -> None:
    assert Task(name, data=ROWS).name == name


def test_a_name_in_a_tasks_file_is_a_name_too() -> None:
    with pytest.raises(HeadwiseError, match=r"'\.\./\.\./x' cannot be the name of a task"):
        read_toml('["../../x"]\npath = "a.csv"\n')


def test_training_writes_nothing_outside_its_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    for name in (str(outside), "../../x"):
        with pytest.raises(HeadwiseError, match="cannot be the name of a task"):
            hw.train("demo", [Task(name, data=ROWS)], "single-task", out=tmp_path / "a" / "b" / "out")
    assert [*tmp_path.rglob("*")] == []


def test_a_manifest_that_names_a_file_outside_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    manifest.write(other, "no such kind")
    folder = tmp_path / "saved"
    folder.mkdir()
    for name in ("../../etc/passwd", "../other", str(other)):
        manifest.write(folder, "single-task", tasks=[name])
        with pytest.raises(HeadwiseError, match="cannot be the name of a task"):
            hw.load(folder)


@given(st.text())
def test_any_text_makes_a_file_name(text: str) -> None:
    name = file_name(text)
    assert check_name(name, "a file") == name
    assert (Path("/folder") / name).parent == Path("/folder")
    assert inside(Path("/folder"), name) == Path("/folder") / name


@given(st.text(alphabet="./\\ab\0", max_size=6))
def test_what_lies_inside_stays_inside(text: str) -> None:
    try:
        found = inside(Path("/folder"), text)
    except HeadwiseError:
        return
    assert str(found.resolve()).startswith("/folder/")


def test_a_name_that_torch_has_taken_is_refused_clearly() -> None:
    from headwise.models import MultiTaskModel

    for name in ("keys", "training", "forward"):
        with pytest.raises(HeadwiseError, match="rename the task"):
            MultiTaskModel.from_pretrained("demo", [Task(name, data=ROWS)])
