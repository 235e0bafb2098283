"""A disk that is full: whatever is written, the error names the folder, and the files that were there stay."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from headwise import engine, figures
from headwise._base.writing import NoSpace, make_folder, whole_file
from headwise.cli import main
from headwise.errors import HeadwiseError
from headwise.figures._style import panels
from headwise.report.papers import write as write_papers
from headwise.scoring._files import load_scores, save_scores
from headwise.sections import Section, Table
from headwise.store._atomic import atomic_folder
from headwise.tasks import Sentence, write_glue
from headwise.tasks.readers import columns, conllu, ontonotes, propbank

LEFT = 8192  # bytes free on the disk: enough for names, too few for what is written
SENTENCES = [Sentence(("cats", "sleep"), entities=(), upos=("NOUN", "VERB"))] * 2000
SCORES = xr.DataArray(np.zeros((40, 30, 30)), dims=("task", "layer", "head"))


def noise(path: Path) -> None:
    figure, axes = panels()
    axes[0, 0].imshow(np.random.default_rng(0).random((200, 200)), interpolation="nearest")
    figures.save_figure(figure, path)


def papers(folder: Path) -> None:
    write_papers([Section("s", [], [Table("t", "T", pd.DataFrame({"x": np.arange(9000) / 7}))], "")], folder)


WRITERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "a figure": ("f.png", noise),
    "a figure for papers": ("f.pdf", noise),
    "scores": ("s.nc", lambda path: save_scores(SCORES, path)),
    "tables": ("", papers),
    "a GLUE submission": ("", lambda folder: write_glue({"sst2": np.zeros(9000)}, folder)),
    "CoNLL-U": ("x.conllu", lambda path: conllu.write(SENTENCES, path)),
    "columns": ("x.txt", lambda path: columns.write(SENTENCES, path)),
    "OntoNotes": ("x.conll", lambda path: ontonotes.write(SENTENCES, path)),
    "PropBank": ("x.jsonl", lambda path: propbank.write(SENTENCES, path)),
}


@pytest.fixture
def full_disk(small_disk: Path) -> Path:
    fill(small_disk)
    return small_disk


def fill(disk: Path) -> None:
    """Writes until `LEFT` bytes are free."""
    with open(disk / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(file.tell() - LEFT)


@pytest.mark.parametrize("what", WRITERS)
def test_what_does_not_fit_is_told_and_leaves_nothing(full_disk: Path, what: str) -> None:
    name, write = WRITERS[what]
    if name:
        (full_disk / name).write_text("before")
    with pytest.raises(
        NoSpace,
        match=rf"^no space left in {full_disk}: [48]",
    ) as told:
        write(full_disk / name)
    assert "\n" not in str(told.value)
    assert {path.name for path in full_disk.iterdir()} == {"filler", *([name] if name else [])}
    if name:
        assert (full_disk / name).read_text() == "before"


def test_a_folder_that_cannot_be_made_is_told(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,nr_inodes=3", small_disk], check=True)  # the disk itself is one
    with pytest.raises(NoSpace, match=f"no space left in {small_disk}/a/b/c: "):
        make_folder(small_disk / "a" / "b" / "c")
    with (
        pytest.raises(NoSpace, match=f"no space left in {small_disk}/whole: "),
        atomic_folder(small_disk / "whole"),
    ):
        pass


def test_the_report_and_the_export_of_a_study(
    tmp_path: Path, full_disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, _ = engine.validate(study, {"kind": f"{__name__}:study"}, tmp_path, tmp_path / "run")
    assert not engine.run_study(study, recipe, tmp_path / "run", jobs=0, quiet=True).failed
    run, left = str(tmp_path / "run"), {path.name for path in full_disk.iterdir()}
    for words in (
        ["report", run, "--output", str(full_disk / "report.html")],
        ["report", run, "--figures", str(full_disk)],
        ["study", "export", run, "--to", str(full_disk / "all")],
    ):
        monkeypatch.setattr(sys, "argv", ["headwise", *words])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr().err
        assert end.value.code == 2
        assert f"no space left in {full_disk}: " in said
        assert said.count("\n") == 1
        assert {path.name for path in full_disk.iterdir()} == left


def test_a_verb_tells_a_full_disk_that_nothing_nearer_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "cache" / "x"))

    monkeypatch.setattr("headwise.report.write_report", full)
    monkeypatch.setattr(sys, "argv", ["headwise", "report", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert f"error: no space left in {tmp_path}/cache: " in capsys.readouterr().err


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / "real.nc").write_text("before")
    (tmp_path / "link.nc").symlink_to("real.nc")
    save_scores(SCORES, tmp_path / "link.nc")
    assert (tmp_path / "link.nc").is_symlink()
    assert load_scores(tmp_path / "real.nc").equals(SCORES)
    save_scores(SCORES, "/dev/null")  # as whoever wants no file may write
    assert Path("/dev/null").is_char_device()
    with pytest.raises(HeadwiseError, match="is a folder: give the name of a file"):
        save_scores(SCORES, tmp_path)
    with pytest.raises(ZeroDivisionError), whole_file(tmp_path / "new") as aside:
        aside.write_bytes(b"half") / 0
    assert {path.name for path in tmp_path.iterdir()} == {"real.nc", "link.nc"}


@engine.step()
def numbers(out: engine.Out) -> None:
    out.table("numbers", pd.DataFrame({"n": np.random.default_rng(0).random(4000)}))


class NumbersRecipe(engine.Recipe):
    pass


def section(run: engine.Run) -> Section:
    return Section("Numbers", [], [Table("numbers", "Numbers", run.table("numbers"))], "")


study = engine.Study(NumbersRecipe, lambda recipe: [engine.Cell(numbers)], section=section)
