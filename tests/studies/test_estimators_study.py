"""The league of estimators: areas against a fine sum, planted heads that come first, and the whole study in miniature."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import planted
from headwise import engine
from headwise.engine._recipe import RecipeError
from headwise.engine._study import run_study, validate
from headwise.heads import HeadSet, default_model
from headwise.lesions import lesion
from headwise.report import write_report
from headwise.studies import _estimators_study as league
from headwise.studies._estimators_study import study
from headwise.studies._sections.estimators import finding, of_estimators
from words import initial_tokenizer


def test_areas_are_means_of_the_curve() -> None:
    share, kept = [0.1, 0.3, 0.5], [90.0, 80.0, 50.0]
    curves = pd.DataFrame(
        {"estimator": "x", "order": "most", "fraction": share, "performance": kept, "loss": [0.1, 0.3, 0.5]}
    )
    (row,) = league.areas(curves.sample(frac=1, random_state=0), 92.0, 0.05).to_dict("records")
    fine = np.linspace(0, 0.5, 100_001)
    drop = 92 - np.interp(fine, [0, *share], [92, *kept])
    rise = np.interp(fine, [0, *share], [0.05, 0.1, 0.3, 0.5]) - 0.05
    assert row["drop"] == pytest.approx(drop.mean(), abs=1e-3)
    assert row["rise"] == pytest.approx(rise.mean(), abs=1e-5)


def areas_of(drops: dict[tuple[str, str], list[float]], weak: bool = False) -> pd.DataFrame:
    """Tables as the cells leave them, from each estimator's drops by seed."""
    same = {"rise": 0.0, "seconds": 1.0, "intact": 90.0, "chance": 50.0, "at_chance": weak, "examples": 60}
    rows = [
        {"model": "m", "task": "t", "estimator": name, "order": order, "seed": seed, "drop": drop, **same}
        for (name, order), each in drops.items()
        for seed, drop in enumerate(each)
    ]  # fmt: skip
    return pd.DataFrame(rows).sample(frac=1, random_state=1)


def test_the_league_pairs_by_seed_and_ranks_by_order() -> None:
    drops = {
        ("good", "most"): [20.0, 30.0], ("random", "most"): [10.0, 24.0], ("bad", "most"): [12.0, 20.0],
        ("good", "least"): [1.0, 2.0], ("random", "least"): [10.0, 24.0], ("bad", "least"): [11.0, 30.0],
    }  # fmt: skip
    table = league.league_of(areas_of(drops)).set_index(["estimator", "order"])
    assert table["over_random"].to_dict()["good", "most"] == pytest.approx(8.0)  # (10 + 6) ÷ 2
    assert table["over_random"].to_dict()["bad", "most"] == pytest.approx(-1.0)
    assert table["better"].to_dict() == {
        ("good", "most"): 2, ("bad", "most"): 1, ("random", "most"): 0, ("good", "least"): 2, ("bad", "least"): 0, ("random", "least"): 0,
    }  # fmt: skip
    assert table["rank"].to_dict()["good", "least"] == table["rank"].to_dict()["good", "most"] == 1
    assert table["rank"].to_dict()["bad", "least"] == table["rank"].to_dict()["bad", "most"] == 3
    assert table["drop_low"].isna().all()  # two seeds carry no interval
    assert "2 of 2 trainings" in finding(table.reset_index().query("order == 'most'"), "most")


def test_eight_seeds_carry_an_interval() -> None:
    rng = np.random.default_rng(0)
    drops = {("x", "most"): list(rng.normal(5, 1, 8)), ("random", "most"): list(rng.normal(5, 1, 8))}
    table = league.league_of(areas_of(drops)).set_index("estimator")
    assert table["drop_low"]["x"] < table["drop"]["x"] < table["drop_high"]["x"]


def test_draws_of_one_model_are_not_called_trainings() -> None:
    """With `train = false` a seed draws examples: tables and sentences say so, and that the interval is of one model."""
    drops = {
        ("x", "most"): [5.0 + 0.1 * i for i in range(8)],
        ("random", "most"): [1.0] * 8,
        ("x", "least"): [0.5] * 8,
        ("random", "least"): [1.0] * 8,
    }
    areas = areas_of(drops)
    curves = areas.assign(fraction=0.1, performance=areas["intact"] - areas["drop"])
    for unit, plural, of in (
        ("training", "trainings", ""),
        ("draw of examples", "draws of examples", " of one model, which say nothing"),
    ):
        table = league.league_of(areas, unit)
        run = SimpleNamespace(table={"league": table, "curves": curves, "areas": areas}.__getitem__, files=())
        section = of_estimators(run)
        shown = next(block for block in section.blocks if block.name == "league")
        assert plural in shown.frame
        assert f"Intervals: Student's t over 8 {plural}{of}" in shown.caption
        assert f"in 8 of 8 {plural}." in section.findings[0]
        assert "seed" not in " ".join([*section.findings, shown.caption, *map(str, shown.frame)])
    older = table.drop(columns="unit").rename(columns={"units": "seeds"})
    run = SimpleNamespace(table={"league": older, "curves": curves, "areas": areas}.__getitem__, files=())
    assert "in 8 of 8 seeds." in of_estimators(run).findings[0]


def test_equal_estimators_are_named_together() -> None:
    drops = {("x", "most"): [9.0], ("y", "most"): [9.0], ("random", "most"): [2.0]}
    assert finding(league.league_of(areas_of(drops)), "most").startswith(
        "x and y find equally well the heads that hurt most"
    )


def test_a_league_without_a_winner_says_so() -> None:
    drops = {("x", "most"): [1.0, 2.0], ("random", "most"): [2.0, 3.0]}
    said = finding(league.league_of(areas_of(drops)), "most")
    assert said.startswith("no estimator's top heads cost more than random heads do")
    weak = finding(
        league.league_of(areas_of({("x", "most"): [9.0, 9.0], ("random", "most"): [1.0, 1.0]}, weak=True)),
        "most",
    )
    assert weak.startswith("the intact model is at chance in 2 of 2 trainings")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose task "a" hangs on head 1.2 alone, and its data."""
    folder = tmp_path_factory.mktemp("planted")
    both = planted.tasks()
    planted.model({"a": (1, 2), "b": (0, 1)}, both).save(folder / "model")
    for split in ("train", "validation"):
        examples = both["a"].split(split)
        with (folder / f"{split}.csv").open("w", newline="") as file:
            rows = (
                (text[0], str(label)) for text, label in zip(examples.texts, examples.labels, strict=True)
            )
            csv.writer(file).writerows([("text", "label"), *rows])
    (folder / "tasks.toml").write_text(
        '[a]\nkind = "classes"\nclasses = ["0", "1"]\npath = {train = "train.csv", validation = "validation.csv"}\n'
    )
    return folder


def recipe(place: Path, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "estimators",
        "models": {"planted": str(place / "model")},
        "tasks": {"names": ["a"], "file": str(place / "tasks.toml")},
        "train": False,
        "estimators": {"gate-gradient": {}, "alone": {"method": "ablation"}},
        "fractions": [0.25, 0.125],
        "random_draws": 3,
        "seeds": 1,
        **changes,
    }


def test_planted_heads_come_first(place: Path, tmp_path: Path) -> None:
    checked, _ = validate(study, recipe(place), tmp_path, tmp_path / "run")
    board = run_study(study, checked, tmp_path / "run", jobs=0, quiet=True)
    assert not board.failed
    run = engine.open(tmp_path / "run")
    table = run.table("league").set_index(["estimator", "order"])
    (task,) = checked.tasks.find()
    alone = lesion(place / "model", task, {"it": HeadSet([(1, 2)])}, quiet=True).performance["a"]
    first = 100 * (alone["intact"] - alone["it"])
    assert first > 30
    curves = run.table("curves").set_index(["estimator", "order", "fraction"])["performance"].to_dict()
    for name in ("gate-gradient", "alone"):  # one head of eight is the task
        assert curves[name, "most", 0.125] == pytest.approx(100 * alone["it"])
        assert table["drop"].to_dict()[name, "most"] > 0.6 * first  # half of it on the way, then nearly all
        assert table["drop"].to_dict()[name, "least"] < 5
    assert 0 <= table["drop"].to_dict()["random", "most"] < 0.6 * first
    assert (
        table["drop"].to_dict()["random", "most"] == table["drop"].to_dict()["random", "least"]
    )  # random heads have no order
    assert set(run.table("curves")["fraction"]) == {0.125, 0.25}
    assert list(run.array("scores")["estimator"].values) == ["gate-gradient", "alone"]
    assert len(run.table("agreement")) == 1
    page = write_report([tmp_path / "run"], tmp_path / "page.html").read_text()
    assert "gate-gradient and alone find equally well the heads that hurt most" in page
    assert "No intervals: 1 draw of examples; 8 are needed." in page
    assert "in the one draw of examples there is" in page


def test_models_can_be_trained_first(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(planted.WORDS), **size)).save_pretrained(tmp_path / "model")
    initial_tokenizer(len(planted.WORDS)).save_pretrained(tmp_path / "model")
    asked = {
        "kind": "estimators",
        "models": {"tiny": str(tmp_path / "model")},
        "tasks": {"names": ["grammar:topic"], "size": 64},
        "estimators": {"gate-gradient": {"examples": 16}},
        "training": {"epochs": 1, "max_length": 16, "batch_size": 16},
        "lesions": {"examples": 20},
        "random_draws": 1,
        "seeds": 2,
    }
    checked, _ = validate(study, asked, tmp_path, tmp_path / "run")
    assert not run_study(study, checked, tmp_path / "run", jobs=0, quiet=True).failed
    assert set(engine.open(tmp_path / "run").table("league")["units"]) == {2}
    assert set(engine.open(tmp_path / "run").table("league")["unit"]) == {"training"}


def test_all_methods_take_part_by_default_and_mistakes_are_told(place: Path, tmp_path: Path) -> None:
    checked, _ = validate(
        study, {k: v for k, v in recipe(place).items() if k != "estimators"}, tmp_path, tmp_path / "run"
    )
    assert {"shapley", "ablation", "l0"} < set(checked.estimators)
    assert all(name == settings.method for name, settings in checked.estimators.items())
    for changes, message in (
        ({"estimators": {"shapley": {"options": {"permutation": 3}}}}, "has no option 'permutation'"),
        ({"estimators": {"random": {}}}, "random heads always take part"),
        ({"estimators": {"ablation": {"seed": 3}}}, r"estimators\.ablation\.seed"),
        ({"training": {"epochs": 2}}, "train = false"),
        ({"estimators": {"mine": {"method": "guess"}}}, "unknown"),
    ):
        with pytest.raises(RecipeError, match=message):
            validate(study, recipe(place, **changes), tmp_path, tmp_path / "other")


def test_data_that_a_tasks_file_names_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "tasks.toml").write_text('[mine]\npath = "texts/all.csv"\n')
    recipe = {
        "kind": "estimators",
        "models": {"m": default_model()},
        "train": False,
        "tasks": {"file": str(tmp_path / "tasks.toml")},
    }
    with pytest.raises(
        RecipeError, match=r"tasks: .*tasks.toml names data that is not there: .*texts/all.csv"
    ):
        validate(study, recipe, tmp_path, tmp_path / "run")
