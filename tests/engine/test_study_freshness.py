"""A study never files a result under another key than that of what was read, and notices results under a key that is not theirs."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headwise import engine
from headwise.cli import app
from headwise.engine._plan import write_plan
from headwise.engine._worker import run_batch
from headwise.store._checksums import DamagedResult
from headwise.store._fingerprints import fingerprint, noting_files
from headwise.tasks._source import TaskSource


class Recipe(engine.Recipe):
    data: engine.DataPath
    factors: tuple[int, ...] = (1, 2, 3)


@engine.step()
def total(out: engine.Out, *, data: engine.DataPath, factor: int) -> None:
    """The sum of the numbers in a file; afterwards the file may be changed, by a line in a file beside it."""
    out.json("total", factor * sum(map(int, data.read_text().split())))
    if (change := data.with_suffix(".next")).is_file():
        data.write_text(change.read_text())


def cells(recipe: Recipe) -> Any:
    for factor in recipe.factors:
        yield engine.Cell(total, {"data": recipe.data, "factor": factor}, {"factor": factor})


study = engine.Study(Recipe, cells)


def ran(folder: Path) -> Any:
    recipe = Recipe(kind="totals", data=folder / "numbers.txt")
    return engine.run_study(study, recipe, folder / "run", jobs=0, quiet=True)


def totals(folder: Path) -> dict[int, int]:
    return {found["coords"]["factor"]: found["value"] for found in engine.open(folder / "run").json("total")}


def test_a_file_that_changes_between_plan_and_cell_fails_the_cell(tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("1 2 3")
    ran(tmp_path)
    (tmp_path / "numbers.txt").write_text("1 2 4")
    plan = write_plan(tmp_path / "run", cells(Recipe(kind="totals", data=tmp_path / "numbers.txt")))
    (tmp_path / "numbers.txt").write_text("1 2 5")
    (outcome,) = run_batch(str(tmp_path / "run"), [plan.task(0)], None)
    assert outcome["state"] == "failed"
    assert "numbers.txt has changed since the study was planned: rerun the study" in outcome["error"]
    assert ran(tmp_path).computed == 3  # planned anew
    assert totals(tmp_path) == {1: 8, 2: 16, 3: 24}


def test_a_file_that_changes_while_a_cell_reads_it_fails_the_cell(tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("1 2 3")
    (tmp_path / "numbers.next").write_text("9 9 9")
    assert ran(tmp_path).failed == 3
    assert ran(tmp_path).computed == 3
    assert totals(tmp_path) == {1: 27, 2: 54, 3: 81}


def test_exchanged_results_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("1 2 3")
    ran(tmp_path)
    first, second = sorted((tmp_path / "run" / "results").iterdir())[:2]
    first.rename(tmp_path / "held")
    second.rename(first)
    (tmp_path / "held").rename(second)
    with pytest.raises(DamagedResult, match="the result of another cell"):
        totals(tmp_path)
    shown = CliRunner().invoke(app, ["study", "show", str(tmp_path / "run"), "--check"])
    assert shown.exit_code == 1
    assert shown.output.count("holds the result of another cell") == 2
    assert ran(tmp_path).damaged == 2
    assert totals(tmp_path) == {1: 6, 2: 12, 3: 18}


def test_moved_data_are_the_same_data_and_nothing_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numbers.txt").write_text("1 2 3")
    ran(tmp_path)
    (tmp_path / "numbers.txt").rename(tmp_path / "moved.txt")
    monkeypatch.setattr(
        "headwise.engine._schedule.damaged_files", None
    )  # no checksum is computed: nobody wrote to the results
    recipe = Recipe(kind="totals", data=tmp_path / "moved.txt")
    assert engine.run_study(study, recipe, tmp_path / "run", jobs=0, quiet=True).found == 3


def test_a_changed_result_is_read_again_when_the_study_starts(tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("1 2 3")
    ran(tmp_path)
    file = next((tmp_path / "run" / "results").rglob("total.json"))
    file.write_text(file.read_text().replace("6", "7").replace("12", "13").replace("18", "19"))
    assert ran(tmp_path).damaged == 1
    assert totals(tmp_path) == {1: 6, 2: 12, 3: 18}


@pytest.mark.parametrize("path", ['"a.csv"', '{ train = "a.csv", validation = "b.csv" }', '"folder"'])
def test_data_that_a_tasks_file_names_is_part_of_a_cells_key(path: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("a.csv", "b.csv", "c.csv", "folder/train.csv"):
        (tmp_path / name).write_text("text,label\nfine,1\n")
    (tmp_path / "tasks.toml").write_text(
        f'[mine]\npath = {path}\n[other]\npath = "c.csv"\n[lost]\npath = "lost.csv"\n'
    )

    def key(*names: str, folder: Path = tmp_path) -> str:
        return fingerprint(TaskSource(file=folder / "tasks.toml", names=names))

    before, every = key("mine"), key()
    shutil.copytree(tmp_path, tmp_path / "moved")
    assert key("mine", folder=tmp_path / "moved") == before  # by content, wherever it lies
    (tmp_path / "folder" / "notes.md").write_text("not data")
    (tmp_path / "c.csv").write_text("text,label\nbad,0\n")
    assert key("mine") == before
    assert key() != every
    changed = tmp_path / ("folder/train.csv" if "folder" in path else "a.csv")
    changed.write_text("text,label\nbad,0\n")
    with noting_files() as files:
        assert key("mine") != before
    assert str(changed) in files  # so a cell notices a change while it runs
