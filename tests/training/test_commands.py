"""`headwise train` and the same from a recipe."""

import json
import tomllib
from pathlib import Path

import pandas as pd
import pytest
import toy
from typer.testing import CliRunner

import headwise
from headwise import runs
from headwise.cli import app
from headwise.runs.recipe import RecipeError
from headwise.runs.study import run_study, validate
from headwise.studies.training import study, table_of

RECIPES = Path(__file__).parent.parent.parent / "recipes"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a model, two data files and the TOML that defines tasks of them."""
    folder = tmp_path_factory.mktemp("user")
    toy.encoder().save_pretrained(folder / "model")
    toy.tokenizer().save_pretrained(folder / "model")
    for name in ("mood", "animal"):
        task = toy.task(name, 40)
        for split in ("train", "validation"):
            examples = task.split(split)
            rows = {"text": [text[0] for text in examples.texts], "label": [task.classes[i] for i in examples.labels]}
            (folder / name).mkdir(exist_ok=True)
            pd.DataFrame(rows).to_csv(folder / name / f"{split}.csv", index=False)
    blocks = [f'[{name}]\npath = "{name}"\ntext = "text"\nlabel = "label"\n' for name in ("mood", "animal")]
    (folder / "tasks.toml").write_text("\n".join(blocks))
    return folder


def command(place: Path, *more: str) -> list[str]:
    base = ["train", "--model", str(place / "model"), "--tasks-file", str(place / "tasks.toml"), "--epochs", "1"]
    return [*base, "--batch-size", "16", "--lr", "1e-3", "--set", "progress=false", *more]


def test_train_compares_methods_and_continues(place: Path, tmp_path: Path) -> None:
    words = command(place, "--method", "multi-task", "iat", "--alpha", "0.3", "--delta", "0.5", "--sampling", "annealed")
    words += ["--seeds", "2", "--out", str(tmp_path / "run"), "--json"]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    assert set(found["table"]) == {"multi-task", "iat"}
    assert len(found["scores"]) == 2 * 2 * 2
    assert " ± " in found["table"]["iat"]["average"]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.safetensors")}
    again = CliRunner().invoke(app, words)
    assert json.loads(again.stdout) == found
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.safetensors")}


def test_train_prints_a_table_and_one_training_is_a_model_folder(place: Path, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, command(place, "--tasks", "mood", "--out", str(tmp_path / "one")))
    assert shown.exit_code == 0, shown.output
    assert "mood" in shown.stdout
    assert "average" in shown.stdout
    assert set(headwise.load(tmp_path / "one").tasks) == {"mood"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--method", "itt"], "did you mean 'iat'"),
        (["--sampling", "anneal"], "did you mean 'annealed'"),
        (["--tasks", "nothing"], "nothing"),
        (["--set", "warmup"], "key=value"),
        (["--set", "warmp=0.1"], "did you mean 'warmup'"),
        (["--alpha", "30"], "alpha is 30"),
    ],
)
def test_mistakes_are_one_line(place: Path, tmp_path: Path, wrong: list[str], said: str) -> None:
    done = CliRunner().invoke(app, command(place, *wrong, "--out", str(tmp_path / "x")))
    assert done.exit_code != 0
    assert said in str(done.exception)


def recipe_of(place: Path, **changes: object) -> dict[str, object]:
    given: dict[str, object] = {
        "kind": "training",
        "models": [str(place / "model")],
        "tasks": {"file": str(place / "tasks.toml")},
        "methods": ["multi-task", "iat", "frozen"],
        "samplings": ["proportional", "annealed"],
        "delta": 0.5,
        "seeds": 2,
        "keep_models": False,
        "training": {"epochs": 1, "batch_size": 16, "learning_rate": 1e-3},
    }
    return {**given, **changes}


def test_a_recipe_gives_the_table_over_models_samplings_methods_and_seeds(place: Path, tmp_path: Path) -> None:
    recipe, plan = validate(study, recipe_of(place), place, tmp_path / "run")
    assert plan["cells"] == 2 * 2 * 2 + 1
    board = run_study(study, recipe, tmp_path / "run", jobs=0, quiet=True)
    assert board.failed == 0
    run = runs.open(tmp_path / "run")
    table = run.table("training")
    scores = run.table("scores")
    assert len(table) == 2 * 3 * 3  # samplings × methods × (two tasks and their average)
    row = table.query("sampling == 'annealed' and method == 'iat' and task == 'mood'").iloc[0]
    cells = scores.query("sampling == 'annealed' and method == 'iat' and task == 'mood'")["score"] * 100
    assert (row["mean"], row["sd"], row["seeds"]) == pytest.approx((cells.mean(), cells.std(), 2))
    average = table.query("sampling == 'annealed' and method == 'iat' and task == 'average'").iloc[0]
    by_seed = scores.query("sampling == 'annealed' and method == 'iat'").groupby("seed")["score"].mean() * 100
    assert (average["mean"], average["sd"]) == pytest.approx((by_seed.mean(), by_seed.std()))


def test_a_wrong_recipe_is_refused_before_any_work(place: Path, tmp_path: Path) -> None:
    for changes, said in (
        ({"training": {"epoch": 1}}, "did you mean 'epochs'"),
        ({"methods": ["iap"]}, "iat"),
        ({"samplings": ["anneal"]}, "'anneal' is unknown"),
        ({"training": {"warmup": 7.0}}, "share of the steps"),
        ({"tasks": {"names": ["xyz"], "file": str(place / "tasks.toml")}}, "xyz"),
    ):
        with pytest.raises(RecipeError, match=said):
            validate(study, recipe_of(place, **changes), place, tmp_path)


@pytest.mark.parametrize("name", ["table5", "table12", "table13", "training-small"])
def test_recipes_of_the_paper_are_valid(place: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.runs.recipe._on_hub", lambda model: True)
    recipe = runs.recipe.read_recipe(study.recipe, tomllib.loads((RECIPES / f"{name}.toml").read_text()), RECIPES)
    assert {"multi-task", "iat"} <= set(recipe.methods)
    assert recipe.training.epochs == (2 if name == "training-small" else 5)


def test_the_average_is_over_tasks_within_a_seed() -> None:
    rows = [
        {"model": "m", "sampling": "s", "method": "x", "split": "validation", "seed": seed, "task": task, "score": score}
        for seed, task, score in ((0, "a", 0.5), (0, "b", 0.7), (1, "a", 0.6), (1, "b", 0.6), (1, "c", float("nan")))
    ]
    table = table_of(pd.DataFrame(rows)).set_index("task")
    assert table.loc["average", "mean"] == pytest.approx(60)
    assert table.loc["average", "sd"] == pytest.approx(0)
    assert table.loc["a", "sd"] == pytest.approx(7.0710678)
