"""Each kind of mistake in a recipe: one clear message, exit status 2, nothing computed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sample_study import GridRecipe
from typer.testing import CliRunner

from headwise.cli import app
from headwise.engine._recipe import RecipeError, apply_overrides, read_recipe, read_recipe_file
from headwise.errors import HeadwiseError
from headwise.studies._training import TrainingRecipe

GOOD = 'kind = "sample_study:grid"\nwidths = [8]\nseeds = [0]\n[training]\nsteps = 3\n'


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            GOOD + "epoch = 3\n",
            r"training.epoch: unknown key; allowed here: learning_rate, optimizer, pause, steps, width",
        ),
        (GOOD.replace("steps", "stesp"), "training.stesp: unknown key; did you mean 'steps'?"),
        (GOOD.replace("widths", "witdhs"), "witdhs: unknown key; did you mean 'widths'?"),
        (
            GOOD.replace("steps = 3", 'steps = "three"'),
            'training.steps: given "three" (text); must be a valid integer',
        ),
        (
            GOOD.replace("steps = 3", 'steps = "3"'),
            'training.steps: given "3" (text); must be a valid integer',
        ),
        (
            GOOD.replace("steps = 3", "steps = true"),
            "training.steps: given true (true/false); must be a valid integer",
        ),
        (
            GOOD.replace("steps = 3", "steps = 2.5"),
            "training.steps: given 2.5 (a number); must be a valid integer",
        ),
        (
            GOOD.replace("steps = 3", "steps = 0"),
            "training.steps: given 0 (a whole number); must be greater than 0",
        ),
        (
            GOOD.replace("steps = 3", 'optimizer = "adam"'),
            """given "adam" (text); must be 'adamw' or 'sgd'; did you mean 'adamw'?""",
        ),
        (GOOD.replace("[8]", "8"), "widths: given 8 (a whole number); must be a valid array"),
        (GOOD.replace("[8]", '[8, "x"]'), 'widths.1: given "x" (text); must be a valid integer'),
        (GOOD.replace("[8]", "[]"), "widths"),
        (
            'data = "mising.csv"\n' + GOOD,
            "data: looked for {here}/mising.csv, which does not exist; there is missing.csv",
        ),
        ('data = "sub/x.csv"\n' + GOOD, "data: looked for {here}/sub/x.csv, which does not exist"),
        ('model = "./bert"\n' + GOOD, "model: looked for a model folder {here}/bert, which does not exist"),
        (
            'model = "empty"\n' + GOOD,
            "model: looked for a model in {here}/empty, which has neither config.json nor headwise.json",
        ),
        (
            'model = "weightless"\n' + GOOD,
            "looked for a model in {here}/weightless, which has no weights as *.safetensors",
        ),
        (
            'model = "decoders"\n' + GOOD,
            "looked for a model in {here}/decoders/encoder, which has no weights as *.safetensors",
        ),
        (
            'model = "bert-base"\n' + GOOD,
            "looked for a model folder {here}/bert-base and for 'bert-base' in the hub's cache (offline)",
        ),
        (GOOD.replace("sample_study:grid", "dissociatoin"), "kind: given 'dissociatoin'"),
        (GOOD.replace("sample_study:grid", "sample_study:gird"), "cannot find 'sample_study:gird'"),
        (
            GOOD.replace("sample_study:grid", "sample_study:train"),
            "kind: 'sample_study:train' is a Step, not a headwise.engine.Study",
        ),
        (GOOD.replace("kind", "knid"), "kind: missing"),
        ("kind = \n", "line 1"),
        (
            GOOD.replace("[0]", "[]").replace("[training]", "overview = false\n[training]"),
            "the recipe has no cells",
        ),
    ],
)
def test_mistakes(recipe: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "missing.csv").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "weightless").mkdir()
    (tmp_path / "weightless" / "config.json").write_text("{}")
    (tmp_path / "decoders" / "encoder").mkdir(parents=True)
    for name in ("headwise.json", "decoders.safetensors"):
        (tmp_path / "decoders" / name).touch()
    file = tmp_path / "recipe.toml"
    file.write_text(recipe)
    for verb in ("run", "validate"):
        result = CliRunner().invoke(app, ["study", verb, str(file), "--out", str(tmp_path / "run")])
        assert isinstance(result.exception, HeadwiseError)
        assert message.format(here=tmp_path) in str(result.exception)
        assert len(str(result.exception).splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_the_command_prints_one_line_and_exits_with_two(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(GOOD.replace("steps", "stesp"))
    command = [sys.executable, "-c", "from headwise.cli import main; main()", "study", "run", "recipe.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: training.stesp: unknown key; did you mean 'steps'?\n"
    assert not (tmp_path / "runs").exists()


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        read_recipe(GridRecipe, {"kind": "x", "widths": "8", "sedes": [1]}, tmp_path)
    assert len(str(caught.value).splitlines()) == 2


def test_overrides(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(GOOD)
    data = read_recipe_file(tmp_path / "recipe.toml")
    apply_overrides(
        data,
        [
            "training.steps=9",
            "training.optimizer=sgd",
            "widths=[4, 6]",
            "widths.0=5",
            "title='a = b'",
            "training.width = 12",
        ],
    )
    recipe = read_recipe(GridRecipe, data, tmp_path)
    assert (recipe.training.steps, recipe.training.optimizer, recipe.widths, recipe.title) == (
        9,
        "sgd",
        (5, 6),
        "a = b",
    )
    assert recipe.training.width == 12
    for wrong in ("steps", "=3", "widths.7=1", "title.x=3", "training..steps=1"):
        with pytest.raises(RecipeError, match="--set"):
            apply_overrides(data, [wrong])
    models: dict[str, dict[str, str]] = {"models": {"MiniLM-L6": "hub"}}
    apply_overrides(
        models, ['models."MiniLM-L6"=folder', 'models."gpt2.small"=other']
    )  # quoted as in the recipe
    assert models == {"models": {"MiniLM-L6": "folder", "gpt2.small": "other"}}
    apply_overrides(data, ["training.stepz=9"])
    with pytest.raises(RecipeError, match=r"training\.stepz: unknown key; did you mean 'steps'\?"):
        read_recipe(GridRecipe, data, tmp_path)


def test_paths_that_are_typed_start_at_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("here", "recipes"):
        for name in ("model", "other"):
            (tmp_path / folder / name).mkdir(parents=True)
            (tmp_path / folder / name / "config.json").write_text("{}")
            (tmp_path / folder / name / "model.safetensors").write_bytes(b"weights")
    monkeypatch.chdir(tmp_path / "here")
    data = {"kind": "x", "model": "model"}
    assert read_recipe(GridRecipe, data, tmp_path / "recipes").model == str(tmp_path / "recipes" / "model")
    apply_overrides(data, ["model=other"])
    assert read_recipe(GridRecipe, data, tmp_path / "recipes").model == str(tmp_path / "here" / "other")
    (tmp_path / "recipes" / "only").mkdir()
    apply_overrides(data, ["model=./only"])
    with pytest.raises(RecipeError, match=f"model folder {tmp_path}/here/only, which does not exist"):
        read_recipe(GridRecipe, data, tmp_path / "recipes")
    several = {"kind": "training", "models": [], "tasks": {"names": ["sst2"]}}
    apply_overrides(several, ['models=["other"]'])  # also within a list
    assert read_recipe(TrainingRecipe, several, tmp_path / "recipes").models == (
        str(tmp_path / "here" / "other"),
    )


def test_a_model_counts_by_its_weights(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name / "encoder").mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "README.md").write_text(f"this is the {name}")
        (tmp_path / name / "encoder" / "model.safetensors").write_bytes(b"weights")

    def prints() -> list[str]:
        return [
            read_recipe(GridRecipe, {"kind": "x", "model": name}, tmp_path).model.fingerprint()
            for name in ("first", "second")
        ]

    assert len(set(prints())) == 1
    (tmp_path / "second" / "encoder" / "model.safetensors").write_bytes(b"others!")
    assert len(set(prints())) == 2


def test_the_disk_is_checked_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('kind = "sample_study:many"\ncells = 5\nmegabytes = 1e9\n')
    result = CliRunner().invoke(
        app, ["study", "run", str(tmp_path / "r.toml"), "--out", str(tmp_path / "run")]
    )
    assert "needs about 5,000,000,000 MB for cells that are not done" in str(result.exception)
    assert not (tmp_path / "run").exists()


def test_a_folder_of_other_results_holds_no_runs(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["study", "runs", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (0, f"no runs of studies in {tmp_path}\n")


def test_run_show_ls_validate_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.toml").write_text('kind = "sample_study:many"\ncells = 5\nfail = [2]\nflag = "/nowhere"\n')

    def call(*arguments: str, status: int = 0) -> dict:
        result = CliRunner().invoke(app, ["study", *arguments, "--json"])
        assert result.exit_code == status, result.output
        return json.loads(result.stdout)

    assert call("validate", "r.toml")["cells"] == 5
    (tmp_path / "flag").touch()
    flag = f"flag='{tmp_path}/flag'"
    made = call("run", "r.toml", "--set", flag, "--jobs", "0", status=1)
    assert (made["computed"], made["failed"]) == (4, 1)
    shown = call("show", "runs/r")
    assert shown["steps"]["trivial"] == {"done": 4, "failed": 1}
    (failed,) = [cell for cell in shown["cells"] if cell["state"] == "failed"]
    assert failed["error"] == "ValueError: cell 2 fails on purpose"
    text = CliRunner().invoke(app, ["study", "show", "runs/r"]).stdout
    assert "trivial number=2" in text
    assert "ValueError: cell 2 fails on purpose" in text
    (tmp_path / "flag").unlink()
    again = call("run", "runs/r", "--jobs", "0")  # the folder knows its recipe
    assert (again["found"], again["computed"], again["failed"]) == (4, 1, 0)
    assert call("runs") == [{"run": "runs/r", "cells": 5, "done": 5, "running": 0, "failed": 0}]
    assert call("export", "runs/r")["rows"] == 10
    whole = CliRunner().invoke(app, ["study", "show", "runs/r", "--check"]).stdout
    assert "checked: every result is as it was written" in whole
    victim = next((tmp_path / "runs" / "r" / "results").glob("*/value.json"))
    victim.write_text("{}")
    assert "value.json is truncated" in json.dumps(call("show", "runs/r", "--check", status=1)["damaged"])
