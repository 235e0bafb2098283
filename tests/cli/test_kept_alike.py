"""A study keeps what the same calls keep with `out=`: the same files, one format, sealed by one manifest."""

import json
from pathlib import Path
from typing import Any

import pytest

import headwise as hw
from headwise import engine
from headwise.engine._study import run_recipe
from headwise.store import _manifest as manifest
from headwise.studies._specialization import study as specialization
from headwise.tasks import TaskSource

TRAINING: dict[str, Any] = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-2, "max_length": 9}
LESIONS: dict[str, Any] = {"random_draws": 1, "bootstrap": 0, "score_examples": 12, "fraction": 0.25}
SOURCE = TaskSource(names=("mood", "animal"))
TIMES = {"seconds", "attempts", "command"}  # of training.json


@pytest.fixture(scope="module")
def run(place: Path) -> engine.Run:
    """A study of one training and one dissociation."""
    recipe = {
        "kind": "specialization",
        "models": {"tiny": str(place / "model")},
        "tasks": {"names": ["mood", "animal"], "file": str(place / "tasks.toml")},
        "seeds": 1,
        "training": TRAINING,
        "lesions": LESIONS,
    }
    return run_recipe(specialization, recipe, place / "alike", jobs=0, quiet=True)


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def facts(folder: Path) -> dict[str, Any]:
    """A manifest, but for where and when it was written, and by which cell."""
    record = manifest.read(folder)
    return {
        name: value for name, value in record.items() if name not in manifest.AROUND - {"key", "decision"}
    }


def test_a_dissociation_is_kept_as_its_call_keeps_it(run: engine.Run, place: Path, tmp_path: Path) -> None:
    ((_, trained),) = run.results("training")
    ((_, result),) = run.results("dissociation")
    tasks, _ = SOURCE.with_changes(file=place / "tasks.toml").find_trained()
    settings = {**LESIONS, "max_length": 9, "seed": 0, "quiet": True}
    hw.dissociate(trained.model("multi-task"), tasks, **settings, out=tmp_path / "by itself")
    kept, alone = files(result.folder), files(tmp_path / "by itself")
    assert kept.pop(manifest.NAME) != alone.pop(manifest.NAME)  # times, and which cell it is
    assert kept == alone
    assert facts(result.folder) == facts(tmp_path / "by itself")
    assert hw.load(result.folder).table("pairs").equals(hw.load(tmp_path / "by itself").table("pairs"))


def test_a_training_is_kept_as_its_call_keeps_it(run: engine.Run, place: Path, tmp_path: Path) -> None:
    ((_, result),) = run.results("training")
    model = result.model("multi-task")
    tasks, _ = SOURCE.with_changes(file=place / "tasks.toml").find_trained()
    hw.train(str(place / "model"), tasks, "multi-task", **TRAINING, quiet=True, out=tmp_path / "by itself")
    kept, alone = files(model), files(tmp_path / "by itself")
    descriptions = []
    for listed in (kept, alone):
        del listed[manifest.NAME]
        description = json.loads(listed.pop("training.json"))["description"]
        descriptions.append({name: value for name, value in description.items() if name not in TIMES})
    assert kept == alone  # the tokenizer, too, whatever was tokenised before
    assert descriptions[0] == descriptions[1]
    assert facts(model) == facts(tmp_path / "by itself")


def test_every_result_of_a_study_has_one_format(run: engine.Run) -> None:
    kinds = set()
    for _, result in run.results():
        record = manifest.read(result.folder)
        kinds.add(record["kind"])
        assert record["format"] == manifest.FORMAT
        assert record["cell"].keys() >= {"step", "key", "settings", "inputs", "seed", "seconds"}
        assert record["provenance"].keys() >= {"versions", "commit", "device"}
        assert hw.load(result.folder) is not None
    assert kinds == {"cell", "dissociation"}
    assert not list(run.folder.rglob("provenance.json"))
    assert not run.damage()
