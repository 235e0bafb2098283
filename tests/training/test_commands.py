"""`headwise train` and the same from a recipe."""

import json
import tomllib
from pathlib import Path

import pandas as pd
import pytest
import toy
from typer.testing import CliRunner

import headwise
from headwise import engine
from headwise.cli import app
from headwise.engine._recipe import RecipeError
from headwise.engine._study import run_study, validate
from headwise.studies._training import study
from headwise.studies._training_tables import table_of
from headwise.training.methods import METHODS

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
            rows = {
                "text": [text[0] for text in examples.texts],
                "label": [task.classes[i] for i in examples.labels],
            }
            (folder / name).mkdir(exist_ok=True)
            pd.DataFrame(rows).to_csv(folder / name / f"{split}.csv", index=False)
    blocks = [f'[{name}]\npath = "{name}"\ntext = "text"\nlabel = "label"\n' for name in ("mood", "animal")]
    (folder / "tasks.toml").write_text("\n".join(blocks))
    return folder


def command(place: Path, *more: str) -> list[str]:
    base = [
        "train",
        "--model",
        str(place / "model"),
        "--tasks-file",
        str(place / "tasks.toml"),
        "--epochs",
        "1",
    ]
    return [*base, "--batch-size", "16", "--lr", "1e-3", "--quiet", *more]


def test_train_compares_methods_and_continues(place: Path, tmp_path: Path) -> None:
    words = command(
        place, "--method", "multi-task", "iat", "--alpha", "0.3", "--delta", "0.5", "--sampling", "annealed"
    )
    words += ["--seeds", "2", "--out", str(tmp_path / "run"), "--json"]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    assert set(found["tables"]["training"][0]) - {"task", "metric", "chance"} == {"multi-task", "iat"}
    assert len(found["tables"]["scores"]) == 2 * 2 * 2
    assert " ± " in found["tables"]["training"][-1]["iat"]
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
        (["--set", "alfa=0.1"], "did you mean 'alpha'"),
        (["--set", "warmup=0.1"], "but a setting: --warmup"),
        (["--set", "ratios=[0.1]"], "which belongs to ticket-share"),
        (["--warmup", "2"], "--warmup: given 2; must be less than or equal to 1; a fraction"),
        (["--early-stopping", "2"], "evaluate='epoch'"),
        (["--alpha", "30"], "alpha: given 30; must be less than or equal to 1"),
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


def test_a_recipe_gives_the_table_over_models_samplings_methods_and_seeds(
    place: Path, tmp_path: Path
) -> None:
    recipe, plan = validate(study, recipe_of(place), place, tmp_path / "run")
    assert plan["cells"] == 2 * 2 * 2 + 1
    board = run_study(study, recipe, tmp_path / "run", jobs=0, quiet=True)
    assert board.failed == 0
    run = engine.open(tmp_path / "run")
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
        ({"methods": ["iap"]}, "did you mean 'iat'"),
        ({"methods": ["distil"]}, "has the method distil and no teacher"),
        ({"further": {str(place): ["pals"]}}, "config.json"),
        ({"further": {str(place / "model"): ["plas"]}}, "did you mean 'pals'"),
        ({"method_options": {"pals": {"size": 24}}}, "no model has the method 'pals'"),
        ({"method_options": {"iat": {"alpha": 30}}}, "method_options.iat: alpha: given 30; must be less"),
        ({"method_options": {"iat": {"alfa": 0.3}}}, "no option 'alfa'"),
        ({"teachers": {str(place / "model"): str(place / "model")}}, "is a student itself"),
        ({"samplings": ["anneal"]}, "did you mean 'annealed'"),
        ({"training": {"warmup": 7.0}}, "training.warmup: given 7; .* less than or equal to 1"),
        ({"training": {"seed": 3}}, "training.seed: the study sets it"),
        ({"training": {"start": "x"}}, "training.start: the study sets it"),
        ({"training": {"alpha": 0.3}}, "alpha are options of methods"),
        ({"training": {"epochs": "1"}}, "training.epochs: given .* valid integer"),
        ({"tasks": {"names": ["xyz"], "file": str(place / "tasks.toml")}}, "xyz"),
    ):
        with pytest.raises(RecipeError, match=said):
            validate(study, recipe_of(place, **changes), place, tmp_path)


@pytest.mark.parametrize("name", ["table5", "table12", "table13", "training-small"])
def test_recipes_of_the_paper_are_valid(place: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.engine._recipe._on_hub", lambda model: True)
    recipe = engine._recipe.read_recipe(
        study.recipe, tomllib.loads((RECIPES / f"{name}.toml").read_text()), RECIPES
    )
    assert {"multi-task", "iat"} <= set(recipe.methods)
    assert recipe.training.epochs == (2 if name == "training-small" else 5)


def test_table_5_has_every_row_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwise.studies._training import cells

    monkeypatch.setattr("headwise.engine._recipe._on_hub", lambda model: True)
    monkeypatch.setattr("headwise.engine._recipe.ModelName.fingerprint", lambda self: str(self))
    recipe = engine._recipe.read_recipe(
        study.recipe, tomllib.loads((RECIPES / "table5.toml").read_text()), RECIPES
    )
    tiny, base, large, roberta, deberta = map(str, recipe.models)
    plain = {"single-task", "multi-task", "iat"}
    rows = {(model, method) for model in (tiny, base, large, roberta, deberta) for method in plain}
    rows |= {(base, method) for method in ("pals", "ca-mtl", "ticket-share")}
    rows |= {(large, method) for method in ("houlsby", "ca-mtl", "ticket-share")}
    made = [cell for cell in cells(recipe) if "group" in cell.coords]
    assert {(cell.coords["model"], method) for cell in made for method in cell.settings["methods"]} == rows
    assert {
        cell.settings["options"].get("size") for cell in made if cell.settings["methods"] == ["houlsby"]
    } == {256}  # Adapters-256
    for cell in made:
        needs = {
            name: (needed.coords["model"], needed.settings["methods"]) for name, needed in cell.inputs.items()
        }
        if cell.coords["model"] == tiny and cell.settings["methods"] == ["multi-task", "iat"]:
            assert needs == {"student": (tiny, ["distil"])}
            teacher = cell.inputs["student"].inputs["taught"]
            assert teacher.key in {
                other.key for other in made
            }  # BERT-base's own training serves as the teacher
            assert "multi-task" in teacher.settings["methods"]
        elif cell.coords["model"] == tiny:
            assert (cell.settings["methods"], str(cell.settings["teacher"]), needs) == (
                ["single-task"],
                base,
                {},
            )
        else:
            assert not needs


def test_a_student_is_distilled_and_then_trained_by_the_other_methods(place: Path, tmp_path: Path) -> None:
    from headwise.training import shallow

    student = place / "student"
    shallow(toy.encoder(), 1).save_pretrained(student)
    toy.tokenizer().save_pretrained(student)
    changes = {
        "models": [str(student)],
        "teachers": {str(student): str(place / "model")},
        "samplings": ["proportional"],
        "seeds": 1,
    }
    changes |= {"methods": ["single-task", "distil", "multi-task", "iat"], "keep_models": True}
    recipe, _ = validate(study, recipe_of(place, **changes), place, tmp_path / "run")
    assert run_study(study, recipe, tmp_path / "run", jobs=0, quiet=True).failed == 0
    run = engine.open(tmp_path / "run")
    table = run.table("training")
    assert set(table["method"]) == {"single-task", "distil", "multi-task", "iat"}
    assert set(table["model"]) == {str(student)}
    kept = {
        path.parent.name: path.parent
        for path in (tmp_path / "run").rglob("training.json")
        if path.parent.name in METHODS
    }
    noted = json.loads((kept["iat"] / "training.json").read_text())["description"]
    assert noted["model"].endswith("distil")  # it starts from the distilled student
    single = json.loads((kept["single-task"] / "mood" / "training.json").read_text())["description"]
    assert (single["method"], single["teacher"]) == ("distil", str(place / "model"))
    assert not (kept["single-task"] / "mood" / "teacher").exists()  # a teacher is not part of the result
    assert headwise.load(kept["distil"]).encoder.config.num_hidden_layers == 1


def test_the_average_is_over_tasks_within_a_seed() -> None:
    rows = [
        {
            "model": "m",
            "sampling": "s",
            "method": "x",
            "split": "validation",
            "seed": seed,
            "task": task,
            "score": score,
        }
        for seed, task, score in (
            (0, "a", 0.5),
            (0, "b", 0.7),
            (1, "a", 0.6),
            (1, "b", 0.6),
            (1, "c", float("nan")),
        )
    ]
    table = table_of(pd.DataFrame(rows)).set_index("task")
    assert table.loc["average", "mean"] == pytest.approx(60)
    assert table.loc["average", "sd"] == pytest.approx(0)
    assert table.loc["a", "sd"] == pytest.approx(7.0710678)
