"""A similarity recipe takes its models from the run of a training study, and D from a specialization study or its exported table."""

import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import toy

from headwise import engine
from headwise.engine._recipe import RecipeError, apply_overrides, read_recipe_file
from headwise.engine._steps import tasks as tasks_of
from headwise.engine._study import run_recipe, validate
from headwise.errors import HeadwiseError
from headwise.store._loading import load
from headwise.studies import SIMILARITY
from headwise.studies._mean_d import read_dissociation
from headwise.studies._specialization import study as specialization
from headwise.studies._trained import place_of
from headwise.studies._training import study as training
from headwise.tasks import find_tasks
from headwise.training import train

TASKS = ["mood", "animal", "third"]
QUICK: dict[str, Any] = {"epochs": 4, "batch_size": 8, "learning_rate": 1e-2, "max_length": 9}


@pytest.fixture(scope="module")
def runs(place: Path) -> Path:
    """models/: a training study with two seeds; five/: a specialization study of two models and two seeds."""
    shared: dict[str, Any] = {
        "tasks": {"names": TASKS, "file": str(place / "tasks.toml")},
        "seeds": 2,
        "training": QUICK,
    }
    methods = ["single-task", "multi-task"]
    run_recipe(
        training,
        {"kind": "training", "models": [str(place / "model")], "methods": methods, **shared},
        place / "models",
        jobs=0,
        quiet=True,
    )
    toy.encoder(dropout=0.0, seed=5).save_pretrained(place / "other")
    toy.tokenizer().save_pretrained(place / "other")
    lesions = {"random_draws": 1, "bootstrap": 0, "score_examples": 12, "fraction": 0.25, "fractions": [0.5]}
    models = {"tiny": str(place / "model"), "other": str(place / "other")}
    recipe = {"kind": "specialization", "models": models, "frozen": ["tiny"], "lesions": lesions, **shared}
    run_recipe(specialization, recipe, place / "five", jobs=0, quiet=True)
    return place


def asked(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "similarity",
        "trained": str(folder / "models"),
        "where": {"seed": 1},
        "score_examples": 8,
        **changes,
    }


def cells(folder: Path, recipe: dict[str, Any]) -> list[str]:
    """The folders of a study's results, which are named by what decides them."""
    read, _ = validate(SIMILARITY, recipe, folder, folder / "none")
    return [task["folder"] for task, _ in tasks_of(SIMILARITY.cells(read))]


def places(folder: Path, method: str, seed: int) -> list[Path]:
    done = [file.parent for file in (folder / "models").rglob("training.json")]
    return [f for f in done if f.name == method and place_of(f)["seed"] == seed]


def test_models_and_d_come_from_the_runs_of_other_studies(runs: Path, tmp_path: Path) -> None:
    (alone,), (together,) = places(runs, "single-task", 1), places(runs, "multi-task", 1)
    chosen = {"dissociation": str(runs / "five"), "dissociation_model": "other"}
    recipe = asked(runs, **chosen)
    found = run_recipe(SIMILARITY, recipe, tmp_path / "run", jobs=0, quiet=True)
    pairs = found.table("similarity-pairs").set_index(["task", "other"])
    every = load(runs / "five").table("pairs-all")
    for a, b in (("mood", "animal"), ("mood", "third"), ("animal", "third")):  # by hand, over the two seeds
        rows = [
            row.D
            for row in every.itertuples()
            if (row.model, row.method, row.A, row.B) == ("other", "multi-task", a, b)
        ]
        assert len(rows) == 2
        assert pairs.loc[(a, b), "dissociation"] == pytest.approx(sum(rows) / 2 / 100)
    named = {"models": {task: str(alone / task) for task in TASKS}, "multitask": str(together)}
    by_name = {
        key: value for key, value in asked(runs, **chosen, **named).items() if key not in ("trained", "where")
    }
    assert cells(runs, by_name) == cells(runs, recipe) == [folder.name for folder in planned(found)]
    assert cells(runs, asked(runs, where={"seed": 0}, **chosen)) != cells(runs, recipe)
    shutil.copytree(runs / "models", tmp_path / "elsewhere")  # content decides, not the place
    assert cells(runs, recipe | {"trained": str(tmp_path / "elsewhere")}) == cells(runs, recipe)
    # what the recipe names counts: one model of another seed, no multi-task model of the run
    (other,) = places(runs, "single-task", 0)
    changed = cells(
        runs,
        asked(
            runs, **chosen, models=named["models"] | {"mood": str(other / "mood")}, multitask=str(together)
        ),
    )
    assert changed == cells(runs, recipe)[:1] + changed[1:]  # the head scores are the same


def planned(run: engine.Run) -> list[Path]:
    return [result.folder for _, result in run.results()]


def test_what_a_run_lacks_or_has_twice_is_named_before_any_work(runs: Path, tmp_path: Path) -> None:
    def says(message: str, recipe: dict[str, Any]) -> None:
        with pytest.raises(RecipeError, match=message):
            validate(SIMILARITY, recipe, runs, tmp_path / "run")

    says(
        r"trained: .*2 trainings by the method single-task, which differ in seed \(0, 1\): .*where.seed",
        asked(runs, where={}),
    )
    says(
        r"trained: where: no single-task training in .* has seed=7: seed is 0, 1",
        asked(runs, where={"seed": 7}),
    )
    says(
        r"trained: where.sed: unknown .did you mean 'seed'.*choose by model, sampling, seed or method",
        asked(runs, where={"sed": 0}),
    )
    says("trained: .*five holds no single-task training", asked(runs, trained=str(runs / "five"), where={}))
    says("models: three tasks or more .*; name them, or give trained", {"kind": "similarity"})
    one = {"mood": str(places(runs, "single-task", 1)[0] / "mood")}
    says("models: three tasks or more .*; given mood", asked(runs, models=one))
    shutil.copytree(runs / "models", tmp_path / "models")
    shutil.rmtree(places(tmp_path, "multi-task", 0)[0].parent)
    says(
        "trained: .*unfinished: 4 of its 5 cells are done; resume it with headwise study run", asked(tmp_path)
    )
    # folders of `headwise train`
    (alone,) = places(runs, "single-task", 0)
    shutil.copytree(alone, tmp_path / "two" / "alone")
    two = find_tasks(TASKS[:2], file=runs / "tasks.toml")
    train(str(runs / "model"), two, "multi-task", **QUICK, out=tmp_path / "two" / "multi", quiet=True)
    says(
        "trained: .*multi was not trained on third, as the single-task models were",
        asked(runs, trained=str(tmp_path / "two"), where={}),
    )
    (tmp_path / "two" / "more").mkdir()
    (tmp_path / "two" / "more" / "started.json").write_text("{}")
    says(
        "trained: the training in .*more is unfinished", asked(runs, trained=str(tmp_path / "two"), where={})
    )
    says(
        "dissociation: .*five has D of several models: .*dissociation_model: tiny, other",
        asked(runs, dissociation=str(runs / "five")),
    )


def test_d_of_exported_tables_is_that_of_the_study(runs: Path, tmp_path: Path) -> None:
    run = load(runs / "five")
    right = read_dissociation(runs / "five", TASKS, "tiny")
    for name in ("pairs-mean", "pairs-all"):
        text = run.table(name).to_csv(index=False)
        (tmp_path / f"{name}.csv").write_text("# study: x\n# model: all of them, see below\n" + text)
        assert read_dissociation(tmp_path / f"{name}.csv", TASKS, "tiny").values == pytest.approx(
            right.values
        )
    plain = [
        row
        for row in run.table("pairs-mean").itertuples()
        if (row.model, row.method) == ("tiny", "multi-task")
    ]
    assert {(row.A, row.B): float(right.sel(task=row.B, other=row.A)) for row in plain} == pytest.approx(
        {(row.A, row.B): row.D / 100 for row in plain}
    )
    for model, message in (
        (None, "several models: .*: tiny, other"),
        ("huge", "no D of the model 'huge'; .*: tiny, other"),
    ):
        with pytest.raises(HeadwiseError, match=message):
            read_dissociation(tmp_path / "pairs-mean.csv", TASKS, model)
    frame = run.table("pairs-all").query("model == 'tiny' and method == 'multi-task'")
    frame = frame.assign(D=[10.0 * n for n in range(len(frame))])
    both = pd.concat([frame, frame.assign(A=frame["B"], B=frame["A"])])  # a whole matrix for every seed
    for one in (frame, both):
        one.to_csv(tmp_path / "one.csv", index=False)
    assert read_dissociation(tmp_path / "one.csv", TASKS, "tiny").sel(
        task="mood", other="animal"
    ) == pytest.approx(frame.query("A == 'mood' and B == 'animal'")["D"].mean() / 100)
    for changed, message in (
        (frame.drop(columns="seed"), "2 values of D for the pair mood and animal, and no column seed"),
        (
            frame.assign(alpha=[0.1 * n for n in range(len(frame))]),
            "which differ in alpha: give a table of one",
        ),
        (frame.drop(columns="model"), "remove dissociation_model"),
        (frame.drop(columns="D"), r"lacks the columns \['d', 'other', 'task'\]"),
        (pd.concat([frame.assign(method="iat"), frame.assign(method="frozen")]), "several methods"),
    ):
        changed.to_csv(tmp_path / "changed.csv", index=False)
        with pytest.raises(HeadwiseError, match=message):
            read_dissociation(tmp_path / "changed.csv", TASKS, "tiny")
    with pytest.raises(HeadwiseError, match="models is the run of a study of kind 'training': give"):
        read_dissociation(runs / "models", TASKS)
    shutil.copytree(runs / "five", tmp_path / "five")
    for folder in (tmp_path / "five" / "results").glob("specialization-tables-*"):
        shutil.rmtree(folder)
    with pytest.raises(HeadwiseError, match="five is unfinished: resume it with headwise study run"):
        read_dissociation(tmp_path / "five", TASKS, "tiny")


def test_the_published_recipe_reads_the_published_d(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command in its head, with folders for the placeholders, up to the models of other tasks; and every D that the page shows."""
    place = Path(__file__).parents[2] / "docs" / "results" / "similarity"
    data = read_recipe_file(place / "recipe.toml")
    command = " ".join(
        line.strip("# \\\n") for line in (place / "recipe.toml").read_text(encoding="utf-8").splitlines()[3:5]
    )
    given = re.findall(r"--set ([\w.]+=\S+)", command)
    assert [one.split("=")[0] for one in given] == ["trained", "tasks.data", "sentences", "brain"]
    for name in ("DIR", "SENTENCES", "PEREIRA"):
        (tmp_path / name).touch()
    shutil.copytree(runs / "models", tmp_path / "runs" / "models")
    monkeypatch.chdir(tmp_path)
    apply_overrides(data, [*given, "where.seed=0"])
    with pytest.raises(
        RecipeError, match=r"^dissociation: .*pairs-mean.csv has no D of the pair mood and animal$"
    ):
        validate(SIMILARITY, data, place, tmp_path / "run")
    shown = pd.read_csv(place / "pairs.csv", comment="#")
    names = list(dict.fromkeys([*shown["task"], *shown["other"]]))
    found = read_dissociation(place / data["dissociation"], names, data["dissociation_model"])
    assert len(shown) == 10
    for row in shown.itertuples():
        assert float(found.sel(task=row.task, other=row.other)) == pytest.approx(row.dissociation, abs=5.1e-5)
