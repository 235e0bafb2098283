"""Scores and dissociations that are kept in folders: never an old result, never two at once; `load` and the report open them all."""

import os
import re
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import test_freshness
from test_freshness import fewer_tasks, other_metric, other_row
from typer.testing import CliRunner

import headwise as hw
from headwise.cli import app
from headwise.errors import HeadwiseError
from headwise.harness import HarnessResult
from headwise.report import read, write_report
from headwise.store import _manifest as manifest
from headwise.store._checksums import DamagedResult
from headwise.store._entry import Entry, claimed_folder
from headwise.store._loading import LOADERS
from headwise.tasks import read_toml
from light import shown_without_torch
from opened import opened_files

finished, place = test_freshness.finished, test_freshness.place  # the same fixtures

FEW: dict[str, Any] = {"random_draws": 1, "bootstrap": 0, "score_examples": 8}


def invoked(*words: Any) -> str:
    """What a verb says."""
    found = CliRunner().invoke(app, [*map(str, words)])
    if isinstance(found.exception, HeadwiseError):
        raise found.exception
    assert found.exit_code == 0, found.output
    return found.output


def dissociated(place: Path, *more: str) -> str:
    """A small dissociation of the trained model from the command line; what it says."""
    few = ["--random-draws", "1", "--bootstrap", "0", "--score-examples", "8", "--no-figures"]
    words = ["--model", place / "run", "--tasks-file", place / "tasks.toml"]
    return invoked("dissociate", *words, *few, "--out", place / "d", *more)


def dissociated_by_python(place: Path, **more: Any) -> Any:
    return hw.dissociate(place / "run", read_toml(place / "tasks.toml"), out=place / "d", **{**FEW, **more})


def scored(place: Path, *more: str) -> str:
    """Scores of the trained model from the command line; what it says."""
    words = ["--model", place / "run", "--tasks-file", place / "tasks.toml", "--examples", "8"]
    return invoked("score", *words, "--out", place / "s", *more)


def scored_by_python(place: Path, **more: Any) -> Any:
    return hw.score(
        place / "run", read_toml(place / "tasks.toml"), out=place / "s", **{"examples": 8, **more}
    )


Ways = tuple[Callable[..., Any], Callable[..., Any], str, str]
# by words, by Python, its folder, the split it is judged on
KEPT: list[Ways] = [
    (dissociated, dissociated_by_python, "d", "validation"),
    (scored, scored_by_python, "s", "train"),
]


@pytest.mark.parametrize("way", [dissociated, scored])
def test_what_is_kept_is_shown_without_torch(
    place: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[..., str]
) -> None:
    way(place)
    monkeypatch.setattr(sys.modules[__name__], "invoked", shown_without_torch)
    assert "mood" in way(place)


@pytest.mark.parametrize("ways", KEPT, ids=["dissociate", "score"])
def test_what_is_kept_is_never_an_old_result(
    place: Path, monkeypatch: pytest.MonkeyPatch, ways: Ways
) -> None:
    words, python, folder, split = ways
    first = words(place)
    with monkeypatch.context() as patch:
        patch.setattr("headwise._passes.subject.open_model", None)  # no model is opened
        with opened_files() as by_words:
            assert words(place) == first
        with opened_files() as by_python:
            assert python(place) is not None
    for paths in (by_words, by_python):
        assert len(paths) < 40
        assert {
            paths.count(path) for path in paths if path.endswith((".csv", ".safetensors", "tokenizer.json"))
        } == {1}
    for name, value, said in (
        ("seed", 1, "seed was 0 and is 1"),
        ("max_length", 5, "max_length was None and is 5"),
    ):
        with pytest.raises(HeadwiseError, match=said):
            words(place, f"--{name.replace('_', '-')}", str(value))
        with pytest.raises(HeadwiseError, match=said):
            python(place, **{name: value})
    with pytest.raises(HeadwiseError, match="the metric of mood was accuracy and is f1"):
        words(place, "--metric", "f1")
    with pytest.raises(HeadwiseError, match=r"metric given for was \[\] and is \['mood', 'animal'\]"):
        words(place, "--metric", "accuracy")  # else what the model remembers would hold
    with pytest.raises(HeadwiseError, match=r"silenced was \[\] and is \[\[0, 0\]\]"):
        python(place, silenced=hw.HeadSet([(0, 0)]))
    changes = [
        (
            f"mood-{split}.csv",
            other_row(split),
            f"the {'training' if split == 'train' else split} data of mood changed",
        ),
        ("tasks.toml", other_metric, "the metric of animal was accuracy and is f1"),
        ("tasks.toml", fewer_tasks if folder == "s" else other_metric, "animal"),
    ]
    for file, change, said in changes:
        before = (place / file).read_text()
        change(place)
        for way in (words, python):
            with pytest.raises(HeadwiseError, match=rf"holds another result: .*{said}.*; choose"):
                way(place)
        (place / file).write_text(before)
    assert words(place) == first
    (place / "run").rename(place / "elsewhere")  # another place is no other model
    (place / "elsewhere").rename(place / "run")
    assert words(place) == first
    tokenizer = place / "run" / "encoder" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("Whitespace", "WhitespaceSplit"))
    for way in (words, python):
        with pytest.raises(HeadwiseError, match="the tokenizer changed"):
            way(place)


@pytest.mark.parametrize("ways", KEPT, ids=["dissociate", "score"])
def test_two_into_one_folder(place: Path, ways: Ways) -> None:
    words, python, folder, _ = ways
    with claimed_folder(place / folder):
        for start in (words, python):
            with pytest.raises(
                HeadwiseError, match=rf"{folder} is being written by process {os.getpid()} on .*, since"
            ):
                start(place)
    (place / folder).mkdir()
    (place / folder / "mine.txt").write_text("mine")
    for start in (words, python):  # said before anything is computed
        with pytest.raises(HeadwiseError, match=f"{folder} exists already"):
            start(place)
    assert [file.name for file in (place / folder).iterdir()] == ["mine.txt"]


def test_scores_are_loaded_verified_and_given_to_a_dissociation(place: Path) -> None:
    found = scored_by_python(place)
    assert hw.load(place / "s").identical(found)
    dissociated(place, "--scores", f"{place}/s")
    assert hw.load(place / "d").scores.identical(found)
    shutil.rmtree(place / "s")
    with pytest.raises(HeadwiseError, match=r"scores was '?\w+'? and is None|scores changed"):
        dissociated(place)
    scored(place, "--seed", "3", "--examples", "4")
    with pytest.raises(HeadwiseError, match="scores changed"):
        dissociated(place, "--scores", f"{place}/s")
    file = place / "s" / "scores.nc"
    raw = bytearray(file.read_bytes())
    raw[-3] ^= 1
    file.write_bytes(raw)
    with pytest.raises(DamagedResult, match=r"scores\.nc"):
        hw.load(place / "s")
    with pytest.raises(HeadwiseError, match="give the name of a folder"):
        hw.score(place / "run", read_toml(place / "tasks.toml"), out=place / "scores.nc")


def test_a_report_reads_through_load(place: Path, tmp_path: Path) -> None:
    """Whatever a report shows is compared with its checksums first."""
    scored_by_python(place)
    dissociated_by_python(place)
    folders = [place / name for name in ("s", "d", "run")]
    titles = [section.title for section in read(folders)]
    assert titles == ["Importance of every head: s", "Which heads each task needs: d", "Training: run"]
    assert "Importance of every head" in write_report(folders, tmp_path / "page.html").read_text(
        encoding="utf-8"
    )
    for folder, name in (
        ("s", "scores.nc"),
        ("d", "predictions.parquet"),
        ("run", "scores.parquet"),
        ("run", "training.json"),
    ):
        file = place / folder / name
        whole = file.read_bytes()
        file.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
        with pytest.raises(DamagedResult, match=name.replace(".", r"\.")):
            read([place / folder])
        file.write_bytes(whole)
    assert len(read(folders)) == 3


def test_a_result_saved_where_one_is_already_is_refused(tmp_path: Path) -> None:
    """Not dropped in silence for the one that is there."""
    found = HarnessResult(pd.DataFrame({"note": [""]}), pd.DataFrame({"example": [0]}), {}, [])
    found.save(tmp_path / "first")
    with pytest.raises(HeadwiseError, match="first exists already; choose another folder"):
        found.save(tmp_path / "first")


def test_every_kind_of_folder_that_is_written_can_be_loaded() -> None:
    """Each `manifest.write`, `new_folder` and writer of models names a kind that `headwise.load` has a loader for, and each loader is there."""
    root = Path(hw.__file__).parent
    kinds = {manifest.CELL}  # what steps of studies save, which `write_cell` seals
    for file in root.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        models = (
            re.findall(r'{\s*"kind": ([A-Z]+)', text) if "save_model" in text or "def write" in text else []
        )
        for kind in [*re.findall(r"manifest\.(?:write|new_folder)\([^,]+,\s*([\w\"-]+)", text), *models]:
            named = (
                re.search(rf'^{kind}(?:, \w+)* = "([\w-]+)"', text, re.MULTILINE)
                if not kind.startswith('"')
                else None
            )
            kinds.add(named[1] if named else kind.strip('"'))
    assert kinds == set(LOADERS)
    for loader in LOADERS.values():
        module, function = loader.split(":")
        assert callable(getattr(import_module(module), function))


def test_a_folder_in_which_nothing_was_computed_takes_another_result(tmp_path: Path) -> None:
    def decided(rate: int) -> dict[str, Any]:
        return {"operation": "train", "version": 1, "settings": {"rate": rate}, "tasks": []}

    Entry(tmp_path / "out", decided(1)).begin()
    (tmp_path / "out" / "seconds.json").write_text("{}")
    other = Entry(tmp_path / "out", decided(2))  # the first failed before its first step
    assert not other.finished
    other.begin()
    (tmp_path / "out" / "checkpoint").mkdir()
    assert not Entry(tmp_path / "out", decided(2)).finished
    with pytest.raises(HeadwiseError, match="rate was 2 and is 1"):
        Entry(tmp_path / "out", decided(1))
