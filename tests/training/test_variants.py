"""Variants of a training recipe: a method once more, under another name and with other options, from the same checkpoint."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import toy

from headwise.engine._recipe import RecipeError
from headwise.engine._study import run_study, validate
from headwise.errors import HeadwiseError
from headwise.studies._trained import only_training, trained_models
from headwise.studies._training import study
from headwise.training._grid import compare, grid_entries


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    toy.encoder().save_pretrained(folder / "model")
    toy.tokenizer().save_pretrained(folder / "model")
    for name in ("mood", "animal"):
        task = toy.task(name, 40)
        (folder / name).mkdir()
        for split in ("train", "validation"):
            examples = task.split(split)
            rows = {
                "text": [text[0] for text in examples.texts],
                "label": [task.classes[i] for i in examples.labels],
            }
            pd.DataFrame(rows).to_csv(folder / name / f"{split}.csv", index=False)
    blocks = [f'[{name}]\npath = "{name}"\ntext = "text"\nlabel = "label"\n' for name in ("mood", "animal")]
    (folder / "tasks.toml").write_text("\n".join(blocks))
    return folder


def recipe(place: Path, variants: dict[str, Any], **changes: Any) -> Any:
    given = {
        "kind": "training",
        "models": [str(place / "model")],
        "methods": ["multi-task", "iat"],
        "variants": variants,
        "alpha": 0.5,
        "delta": 0.5,
        "seeds": 1,
        "tasks": {"names": ["mood", "animal"], "file": str(place / "tasks.toml")},
        "training": {"epochs": 4, "batch_size": 16, "learning_rate": 1e-2, "weight_decay": 0.1},
        **changes,
    }
    return validate(study, given, place, place / "none")[0]


def weights_of(run: Path) -> dict[str, dict[str, Any]]:
    from safetensors.torch import load_file

    found: dict[str, dict[str, Any]] = {}
    for file in run.rglob("*.safetensors"):
        method = next(part for part in reversed(file.relative_to(run).parts) if part in NAMES)
        found.setdefault(method, {}).update(
            {f"{file.name}/{key}": value for key, value in load_file(file).items()}
        )
    return found


NAMES = ("multi-task", "iat", "as-before", "all-heads", "drift", "low-rank")


def test_variants_branch_with_their_method_and_keep_their_names(place: Path, tmp_path: Path) -> None:
    variants = {
        "as-before": {"method": "iat"},
        "all-heads": {"method": "iat", "options": {"alpha": 1.0}},
        "drift": {"method": "iat", "options": {"drift": True}},
        "low-rank": {"method": "lora", "options": {"rank": 2}},
    }
    run_study(study, recipe(place, variants), tmp_path / "run", jobs=0, quiet=True)
    tables = {
        path.stem: pd.read_parquet(path)
        for path in (tmp_path / "run").rglob("*.parquet")
        if path.stem in ("training", "differences")
    }
    assert set(tables["training"]["method"]) == set(NAMES)
    assert set(tables["differences"]["method"]) == set(NAMES) - {"multi-task"}
    scores = pd.concat(
        [pd.read_parquet(path) for path in (tmp_path / "run").rglob("scores.parquet")]
    ).set_index("method")
    assert set(scores.loc["all-heads", "alpha"]) == {1.0}
    assert set(scores.loc["drift", "alpha"]) == {0.5}
    found = weights_of(tmp_path / "run")

    def apart(a: str, b: str) -> float:
        return max(float((found[a][key] - found[b][key]).abs().max()) for key in found[a])

    assert apart("as-before", "iat") == 0  # the same training under another name
    assert apart("all-heads", "multi-task") < 1e-6  # all heads: plain training
    assert apart("drift", "iat") > 1e-4  # the option reached its training
    assert apart("iat", "multi-task") > 1e-4
    # every one of them can be the source of a transfer, under its own name
    assert {
        method: len(models) for method, models in trained_models(tmp_path / "run").items()
    } == dict.fromkeys(NAMES, 1)
    (plain,) = trained_models(tmp_path / "run")["multi-task"]
    assert only_training(tmp_path / "run", "multi-task") == plain
    # another recipe in the same folder: what only the first one asked for is not taken for its result
    run_study(study, recipe(place, {}, methods=["iat"]), tmp_path / "run", jobs=0, quiet=True)
    assert plain.is_dir()
    assert only_training(tmp_path / "run", "multi-task") is None
    assert list(trained_models(tmp_path / "run")) == ["iat"]


def test_a_variant_has_the_options_that_the_recipe_gives_its_method(place: Path) -> None:
    variants = {
        "drift": {"method": "iat", "options": {"drift": True}},
        "other": {"method": "iat", "options": {"variant": "eq4"}},
    }
    asked = recipe(place, variants, method_options={"iat": {"variant": "iap"}})
    told = [cell.settings["variants"] for cell in study.cells(asked) if cell.settings.get("variants")]
    assert [{name: one.options for name, one in each.items()} for each in told] == [
        {"drift": {"variant": "iap", "drift": True}, "other": {"variant": "eq4"}}
    ]


def test_a_variant_may_be_called_branches_and_options_may_be_its_methods_alone(
    place: Path, tmp_path: Path
) -> None:
    tasks = [toy.task("mood", 20), toy.task("animal", 20)]
    quick = {"epochs": 1, "batch_size": 16, "delta": 0.5, "quiet": True}
    found = compare(
        str(place / "model"),
        tasks,
        ["multi-task"],
        seeds=1,
        out=tmp_path,
        variants={"branches": {"method": "iat"}},
        **quick,
    )
    assert (tmp_path / "branches" / "seed-0").is_dir()
    assert set(found.results) == {("multi-task", 0), ("branches", 0)}


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ({"iat": {"method": "iat"}}, "a method has this name"),
        ({"mine": {"method": "iat", "options": {"drifts": True}}}, "variants.mine"),
        ({"mine": {"method": "itat"}}, "itat"),
        ({"../mine": {"method": "iat"}}, "it names a folder too"),
        ({"mine": {"method": "single-task"}}, "single-task cannot be a variant"),
        ({"a.b": {"method": "iat"}, "a_b": {"method": "iat"}}, "the same name"),
    ],
)
def test_wrong_variants_are_refused_before_any_training(
    place: Path, variants: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(place, variants)


def test_the_disk_that_kept_models_take_is_foreseen(place: Path) -> None:
    """Within a third, checkpoints and tables apart; nothing where none are kept."""
    weights = sum(file.stat().st_size for file in (place / "model").glob("*.safetensors")) / 1e6
    variants = {"drift": {"method": "iat", "options": {"drift": True}}}
    foreseen = [cell.megabytes for cell in study.cells(recipe(place, variants))]
    assert foreseen[0] == pytest.approx(3 * weights)
    assert next(iter(study.cells(recipe(place, variants, keep_models=False)))).megabytes == 0
    alone = next(iter(study.cells(recipe(place, {}, methods=["single-task"]))))
    assert alone.megabytes == pytest.approx(2 * weights)  # one for each task


def test_labels_of_variants() -> None:
    sweep = {"alpha": (0.1, 0.3), "delta": (0.2,)}
    found = grid_entries(
        ["multi-task", "iat"],
        sweep,
        {"all": {"method": "iat", "alpha": 1.0}, "leak": {"method": "iat", "leak": True}},
    )
    assert found["all"] == ("iat", {"delta": 0.2, "alpha": 1.0})  # what it sets itself is not swept
    assert found["leak-alpha-0.3"] == ("iat", {"alpha": 0.3, "delta": 0.2, "leak": True})
    with pytest.raises(HeadwiseError, match="two trainings would be called 'iat-alpha"):
        grid_entries(["iat"], sweep, {"iat-alpha-0.1": {"method": "iat", "alpha": 0.1}})
