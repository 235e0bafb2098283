"""Tables of recipes: a study's own defaults hold for what a table does not say, and a method's own for what the recipe does not."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from headwise.engine import RecipeError
from headwise.engine._recipe import read_recipe
from headwise.engine._study import read, run_study as run, stored_recipe
from headwise.studies._probing_finetuning import FineTuningRecipe, check as check_finetuning
from headwise.studies._roles_study import RolesRecipe
from headwise.studies._similarity_study import SimilarityRecipe
from headwise.studies._specialization import cells as specialization_cells, study as specialization
from headwise.studies._stemcells_settings import PAPER
from headwise.studies._stemcells_study import StemCellRecipe, check
from headwise.studies._training import cells, study
from headwise.training._settings import Train
from headwise.training.methods import METHODS

MODELS = {"a": "demo", "b": "demo", "c": "demo"}
TASKS = {"names": ["grammar:tense", "grammar:sentiment"], "size": 64}


def recipe_of(recipe: type[Any], **tables: Any) -> Any:
    return read_recipe(recipe, tables, ".")


def test_a_table_keeps_the_studys_own_defaults_for_what_it_does_not_say() -> None:
    similarity = recipe_of(SimilarityRecipe, models=MODELS, fewshot={"learning_rate": 1e-3})
    assert (similarity.fewshot.epochs, similarity.fewshot.learning_rate) == (3, 1e-3)
    assert recipe_of(SimilarityRecipe, models=MODELS, fewshot={"epochs": 7}).fewshot.epochs == 7
    tuned = recipe_of(
        FineTuningRecipe,
        kind="head-finetuning",
        models=MODELS,
        tasks={"source": "tasks"},
        probing={"seed": 4},
    )
    assert (tuned.probing.pairs, tuned.probing.seed) == ("together", 4)


def test_trainings_of_all_studies_are_declared_in_one_class() -> None:
    stem = recipe_of(StemCellRecipe, kind="stem-cells", model="demo", training={"epochs": 2, "warmup": 0.2})
    assert isinstance(stem.training, Train)
    assert {name: getattr(stem.training, name) for name in PAPER} == PAPER | {"epochs": 2, "warmup": 0.2}
    assert not list(check(stem))
    tuned = recipe_of(
        FineTuningRecipe,
        kind="head-finetuning",
        models=MODELS,
        tasks={"source": "tasks"},
        training={"optimizer": "sgd"},
    )
    assert tuned.training == Train(epochs=3, max_length=128, optimizer="sgd")
    with pytest.raises(RecipeError, match=r"training.gated_learning_rate: given -1 .* greater than 0"):
        recipe_of(StemCellRecipe, kind="stem-cells", model="demo", training={"gated_learning_rate": -1})


@pytest.mark.parametrize(
    ("table", "name"), [({"seed": 3}, "seed"), ({"pooling": "mean"}, "pooling"), ({"out": "x"}, "out")]
)
def test_a_fine_tuning_says_what_its_table_cannot_set(table: dict[str, Any], name: str) -> None:
    tuned = recipe_of(
        FineTuningRecipe, kind="head-finetuning", models=MODELS, tasks={"source": "tasks"}, training=table
    )
    assert any(wrong.startswith(f"training.{name}: the study sets it") for wrong in check_finetuning(tuned))


@pytest.mark.parametrize("method", ["lora", "houlsby", "mt-dnn", "multi-task"])
@pytest.mark.parametrize("rate", [None, 2e-5])
def test_a_methods_own_rate_holds_unless_the_recipe_says_one(method: str, rate: float | None) -> None:
    table = {} if rate is None else {"learning_rate": rate}
    given = {"tasks": TASKS, "methods": [method], "seeds": 1, "training": table}
    recipe = read(study, {"kind": "training", "models": ["demo"], **given}, ".")
    (cell, _) = cells(recipe)
    lesioned = read(
        specialization, {"kind": "specialization", "models": {"m": "demo"}, **given, "dissociate": False}, "."
    )
    (other, _) = specialization_cells(lesioned)
    for found in (cell, other):
        option = METHODS[method].Options.model_fields.get("learning_rate")
        assert found.settings["training"].learning_rate == (rate or (option.default if option else 2e-5))


@pytest.mark.parametrize("kind", ["training", "specialization"])
def test_a_rate_that_replaces_a_methods_own_is_warned_of(kind: str) -> None:
    models: Any = ["demo"] if kind == "training" else {"m": "demo"}
    of = {"training": study, "specialization": specialization}[kind]
    given = {"kind": kind, "models": models, "tasks": TASKS, "methods": ["multi-task", "lora"], "seeds": 1}
    with pytest.warns(
        UserWarning,
        match=r"lora trains with the recipe's learning_rate 2e-05, not with its own 0.0003; .*method_options",
    ):
        list(of.check(read(of, {**given, "training": {"learning_rate": 2e-5}}, ".")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(of.check(read(of, {**given, "training": {"epochs": 1}}, ".")))
        kept = {"lora": {"learning_rate": 3e-4}}
        list(of.check(read(of, {**given, "training": {"learning_rate": 2e-5}, "method_options": kept}, ".")))


def test_a_run_of_trainings_is_resumed_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "kind": "training",
        "models": ["demo"],
        "tasks": TASKS,
        "methods": ["lora"],
        "seeds": 1,
        "training": {"epochs": 1},
    }
    recipe = read(study, given, ".")
    monkeypatch.setattr("headwise.engine._study.carry_out", lambda *_: pytest.fail("stopped"))
    with pytest.raises(BaseException, match="stopped"):
        run(study, recipe, tmp_path / "run", jobs=0, quiet=True)
    again = read(study, stored_recipe(tmp_path / "run"), ".")
    assert [cell.key for cell in cells(again)] == [cell.key for cell in cells(recipe)]


@pytest.mark.parametrize(
    ("page", "recipe"),
    [("training", study.recipe), ("dissociation", specialization.recipe), ("roles", RolesRecipe)],
)
def test_the_pages_table_of_keys_has_every_key_of_the_recipe(page: str, recipe: type[Any]) -> None:
    text = (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text(encoding="utf-8")
    table = text.split("| key of the recipe |")[1].split("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines()[2:]]
    keys = {key for cell in first for key in re.findall(r"`\[?(\w+)(?:\.\w+)?\]?`", cell)}
    assert keys == set(recipe.model_fields) - {"kind", "title"}
