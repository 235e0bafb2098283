"""Choices that the command line must offer: the metric of every verb that evaluates, variants of importance, each accident alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import headwise
from headwise.cli import app
from headwise.models._memory import remembered_tasks
from headwise.tasks._source import TaskSource

ACCIDENTS = ("drift", "eval_mode", "leak")


def hw(*words: Any) -> Any:
    found = CliRunner().invoke(app, [*map(str, words), "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout[found.stdout.index("{") :])


def train(place: Path, out: Path, *more: Any) -> dict[str, Any]:
    """What an important-head training of one epoch says of itself."""
    tasks = [
        "--tasks",
        "mood",
        "animal",
        "--tasks-file",
        place / "tasks.toml",
        "--max-length",
        9,
        "--epochs",
        1,
    ]
    hw("train", "--model", place / "model", *tasks, "--batch-size", 16, "--delta", 0.5, *more, "--out", out)
    description: dict[str, Any] = json.loads((out / "training.json").read_text())["description"]
    return description


@pytest.mark.parametrize("verb", ["train", "score", "dissociate", "transfer", "similarity", "probe"])
def test_every_verb_that_evaluates_takes_a_metric(verb: str) -> None:
    group: Any = get_command(app)
    names = {name for option in group.commands[verb].params for name in option.opts}
    assert "--metric" in names


def test_variants_are_chosen_on_the_command_line(place: Path) -> None:
    described = train(place, place / "iap", "--method", "iat", "--variant", "iap")
    assert described["variant"] == "iap"
    tasks = remembered_tasks(place / "iap", TaskSource())
    found = {}
    for variant in ("eq4", "michel"):
        record = hw("score", "--model", place / "iap", "--variant", variant, "--device", "cpu")
        found[variant] = np.array([record["scores"][task.name] for task in tasks])
        right = headwise.score(place / "iap", tasks, variant=variant, device="cpu", quiet=True)
        np.testing.assert_allclose(found[variant], right, rtol=1e-5)
    assert not np.allclose(found["eq4"], found["michel"], rtol=1e-2)
    quick = ["--random-draws", 0, "--bootstrap", 0, "--device", "cpu"]
    assert (
        hw("dissociate", "--model", place / "iap", "--variant", "michel", *quick)["settings"]["variant"]
        == "michel"
    )


@pytest.mark.parametrize("one", [None, *ACCIDENTS])
def test_each_accident_of_the_released_code_is_switched_on_alone(one: str | None, place: Path) -> None:
    more = ["--set", f"{one}=true"] if one else []
    described = train(place, place / f"accident-{one}", "--method", "iat", *more)
    assert {name: described[name] for name in ACCIDENTS} == {name: name == one for name in ACCIDENTS}
    assert described["output_projection"] is True
