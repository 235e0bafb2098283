"""Files of a run and of saved folders that are broken, foreign or hostile: one clear line each, and what can go on goes on."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from sample_study import GridRecipe, grid

import headwise as hw
from headwise import engine
from headwise.engine._schedule import INDEX
from headwise.errors import HeadwiseError
from headwise.store import _manifest as manifest
from headwise.store._results import DamagedResult, Result, damaged_files

RECIPE = GridRecipe(kind="grid", widths=(8,), seeds=(0,), training={"steps": 1})
DEEP = b"[" * 100_000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    engine.run_study(grid, RECIPE, tmp_path / "run", jobs=0, quiet=True)
    return tmp_path / "run"


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b'{"format": 1, "kind": "stu',
        b"\xff\xfe",
        b'{"format": 1, "kind": []}',
        b'{"format": "1", "kind": "study"}',
        b"[]",
        b"",
        DEEP,
    ],
    ids=[
        "empty object",
        "cut off",
        "not UTF-8",
        "kind is a list",
        "format is text",
        "a list",
        "empty",
        "deep",
    ],
)
def test_a_broken_manifest_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / manifest.NAME).write_bytes(content)
    for call in (hw.load, engine.open, manifest.read):
        with pytest.raises(
            HeadwiseError, match=rf"{manifest.NAME} (is damaged|is not valid JSON|is nested too deeply)"
        ) as caught:
            call(tmp_path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "kind",
    ["multi-task", "task-model", "single-task", "dissociation", "removed-heads", "head-embedding", "probes"],
)
@pytest.mark.parametrize(
    "fields", [{}, {"tasks": 3, "heads": "x", "sets": {}, "model_class": []}], ids=["none", "wrong types"]
)
def test_a_folder_that_lacks_what_its_manifest_promises_is_damaged(
    tmp_path: Path, kind: str, fields: dict[str, Any]
) -> None:
    manifest.write(tmp_path, kind, **fields)
    with pytest.raises(HeadwiseError) as caught:
        hw.load(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_stray_files_and_an_empty_failure_stop_neither_the_study_nor_its_view(run: Path) -> None:
    cells = list(engine.open(run).cells())
    for place in (
        "work/.DS_Store",
        "work/stray",
        "work/[x].y",
        "running/notes.txt",
        "results/stray",
        "failures/stray.json",
    ):
        (run / place).write_bytes(b"")
    (run / "running" / "folder").mkdir()
    (run / "checkpoints" / "²").mkdir()
    (run / INDEX).write_bytes(b'\xff\n[]\n{"folder": "x"}\n')
    assert [cell["state"] for cell in engine.open(run).cells()] == [cell["state"] for cell in cells]
    board = engine.run_study(grid, RECIPE, run, jobs=0, quiet=True)
    assert (board.found, board.failed) == (board.total, 0)
    assert (run / "work" / ".DS_Store").is_file()
    name = cells[0]["folder"]
    (run / "results" / name).rename(run / "damaged" / "away")
    (run / "failures" / f"{name}.json").write_bytes(b"")
    shown = next(cell for cell in engine.open(run).cells() if cell["folder"] == name)
    assert shown["state"] == "failed"
    assert "which holds the error, is damaged" in shown["error"]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'{"folder": "../../etc", "step": "a", "coords": {}, "inputs": {}, "after": []}',
        b"\xff",
        DEEP,
    ],
)
def test_a_broken_plan_is_one_line_and_names_no_file_outside(run: Path, line: bytes) -> None:
    (run / "plan.jsonl").write_bytes(line + b"\n")
    with pytest.raises(HeadwiseError, match=r"plan.jsonl, line 1|cannot be the name of a result's folder"):
        list(engine.open(run).cells())


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "a/../../b"])
def test_a_provenance_that_names_a_file_outside_is_damage(run: Path, name: str) -> None:
    folder = next(run.glob("results/train-*"))
    record = json.loads((folder / manifest.NAME).read_bytes())
    record.pop("seal")
    record["files"][name] = [1, "0"]
    seal = hashlib.sha256(json.dumps(record, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    (folder / manifest.NAME).write_text(json.dumps({**record, "seal": seal}))
    assert "outside the folder" in damaged_files(folder)[0]
    with pytest.raises(DamagedResult, match="outside the folder"):
        _ = Result(folder).names


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff", DEEP], ids=["empty", "cut off", "a list", "not UTF-8", "deep"]
)
def test_a_broken_recipe_of_a_run_is_named(run: Path, content: bytes) -> None:
    from headwise.engine._study import stored_recipe

    (run / "recipe.json").write_bytes(content)
    with pytest.raises(HeadwiseError, match=r"has no recipe to resume: .*recipe.json"):
        stored_recipe(run)
