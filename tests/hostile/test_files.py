"""Hostile files get one clear line each, and files that are merely unusual are read."""

import gc
from pathlib import Path

import pytest
from files import HOSTILE, use

from headwise._base.parsing import one_line, reading
from headwise.errors import HeadwiseError
from headwise.tasks import Task, find_tasks
from headwise.tasks._classes import find_classes
from headwise.tasks._names import task_from_table
from headwise.tasks._sources import Raw
from headwise.tasks._tables import read_table
from headwise.tasks.readers import read_sentences


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_clear_line(tmp_path: Path, name: str) -> None:
    kind, file, content, expected = HOSTILE[name]
    (tmp_path / file).write_bytes(content)
    if "deep" in name:
        gc.collect()  # a reader that another test left open would be closed deep inside, where there is no room for it
    with pytest.raises(HeadwiseError, match=expected) as caught:
        use(kind, tmp_path / file)
    said = str(caught.value)
    assert "\n" not in said
    assert len(said) < 600
    said.encode()  # it can be printed


def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path: Path) -> None:
    bom = "\ufeff".encode()
    (tmp_path / "a.csv").write_bytes(bom + b'"text",label\na,b\n')
    (tmp_path / "a.tsv").write_bytes(bom + b"text\tlabel\na\tb\n")
    (tmp_path / "a.jsonl").write_bytes(bom + b'{"text": "a", "label": "b"}\n')
    (tmp_path / "a.json").write_bytes(bom + b'[{"text": "a", "label": "b"}]')
    for name in ("a.csv", "a.tsv", "a.jsonl", "a.json"):
        assert read_table(tmp_path / name).to_dict("records") == [{"text": "a", "label": "b"}]
    (tmp_path / "a.conllu").write_bytes(bom + b"1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n")
    assert read_sentences(tmp_path / "a.conllu")[0].words == ("Go",)
    (tmp_path / "t.toml").write_bytes(bom + b'[a]\npath = "a.csv"\n')
    assert [task.name for task in find_tasks([], file=tmp_path / "t.toml")] == ["a"]


def test_labels_that_only_look_like_numbers_are_names(tmp_path: Path) -> None:
    long = "9" * 5000
    for labels in (["²", "³"], [long, "1"], ["٣", "4"], ["10", "9", "-2"]):
        (tmp_path / "a.csv").write_text(
            "text,label\n" + "".join(f"a{i} b,x{label}\n" for i, label in enumerate(labels * 20))
        )
        table = read_table(tmp_path / "a.csv")
        table["label"] = table["label"].str[1:]
        expected = ("-2", "9", "10") if "-2" in labels else tuple(sorted(labels))
        assert find_classes(Raw("a", table=table), "label") == expected
        assert Task("t", data=table).classes == expected


def test_a_tasks_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HeadwiseError, match=r"the tasks file .*nowhere.toml could not be read: No such file"):
        find_tasks(["sst2"], file=tmp_path / "nowhere.toml")


def test_features_without_a_value_do_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text("1\tGo\tgo\tVERB\tVB\tAbbr|Mood=Imp\t0\troot\t_\t_\n")
    assert read_sentences(tmp_path / "a.conllu")[0].feature(0, "Mood") == "Imp"


def test_a_library_that_quotes_half_a_character_still_makes_a_line_that_can_be_printed(
    tmp_path: Path,
) -> None:
    with (
        pytest.raises(
            HeadwiseError, match=r"could not be read as a test: ValueError: \\ud800 here"
        ) as caught,
        reading(tmp_path, "a test"),
    ):
        raise ValueError("\ud800 here\nand there")
    str(caught.value).encode()
    assert one_line(ValueError("\n")) == "ValueError"


def test_nothing_stands_for_a_default_only_where_there_is_none() -> None:
    rows = {"train": [("a", "x"), ("b", "y")]}
    assert Task("t", data=rows, label=None, kind=None, classes=None).classes == ("x", "y")
    assert task_from_table("t", {"path": "a.csv", "text": None, "seed": None}).text == ("text",)
    for setting in ("text", "fractions", "seed", "skip_bad"):
        with pytest.raises(HeadwiseError, match=f"{setting} is None; expected"):
            Task("t", data=rows, **{setting: None})
