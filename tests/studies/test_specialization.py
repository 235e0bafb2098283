"""The specialization study: its tables against the paper's own figures, and the whole of it in miniature."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from transformers import BertConfig, BertModel

import planted
from headwise import engine
from headwise.engine._recipe import RecipeError, apply_scale, read_recipe, read_recipe_file
from headwise.engine._study import run_study, validate
from headwise.report import write_figures
from headwise.report.folders import sections_of
from headwise.store._loading import load
from headwise.studies import _specialization_tables as tables
from headwise.studies._specialization import SpecializationRecipe, groups_of, study
from words import initial_tokenizer

PAIRS = [("MNLI", "QQP"), ("MNLI", "QNLI"), ("MNLI", "AG"), ("MNLI", "SST-2"), ("QQP", "QNLI"), ("QQP", "AG"), ("QQP", "SST-2"), ("QNLI", "AG"),
         ("QNLI", "SST-2"), ("AG", "SST-2")]  # fmt: skip
# Functional specialization, Table 9: D_A, D_B of each pair
TABLE_9 = {
    ("BERT-base", "multi-task"): (
        "2.78 2.60 2.34 2.63 11.36 16.26 13.81 0.21 1.92 4.82 28.97 10.39 11.34 3.18 13.27 6.91 32.87 3.28 2.98 4.05"
    ),
    (
        "BERT-base",
        "frozen",
    ): "-0.96 0.35 -0.13 1.21 5.59 4.53 3.27 1.20 0.01 0.15 0.82 3.94 -1.07 6.95 6.74 0.90 7.68 2.14 2.48 3.90",
    ("RoBERTa-base", "multi-task"): (
        "8.56 10.86 1.31 4.32 17.43 38.23 5.48 8.40 2.43 0.54 23.27 22.73 22.19 5.59 15.96 47.73 16.09 5.01 6.62 6.16"
    ),
}


def paper() -> pd.DataFrame:
    rows = []
    for (model, method), text in TABLE_9.items():
        values = [float(value) for value in text.split()]
        for number, (a, b) in enumerate(PAIRS):
            d_a, d_b = values[2 * number : 2 * number + 2]
            place = {
                "model": model,
                "method": method,
                "alpha": 1.0,
                "delta": 0.0,
                "group": f"{a}+{b}",
                "seed": 0,
            }
            rows.append(
                {
                    **place,
                    "A": a,
                    "B": b,
                    "D_A": d_a,
                    "D_B": d_b,
                    "D": (d_a + d_b) / 2,
                    "D_corrected": 0.0,
                    "overlap": 0.0,
                    "verdict": "",
                }
            )
    return pd.DataFrame(rows)


def test_the_papers_summary_figures_follow_from_its_table() -> None:
    grid = tables.grid(paper()).set_index("label")
    assert grid.loc["RoBERTa-base", "average"] == pytest.approx(13.44, abs=0.01)
    assert grid.loc["BERT-base", "average"] - grid.loc["BERT-base*", "average"] == pytest.approx(
        6.32, abs=0.01
    )
    two_texts = {"MNLI": True, "QQP": True, "QNLI": True, "AG": False, "SST-2": False}
    means = tables.paradigms(paper(), two_texts).set_index(["model", "method", "paradigm"])["D"]
    assert means["BERT-base", "multi-task", "same"] == pytest.approx(3.016, abs=0.005)
    assert means["BERT-base", "multi-task", "different"] == pytest.approx(12.654, abs=0.005)
    verdicts = tables.pairs_over_seeds(paper())
    bert = verdicts[(verdicts["model"] == "BERT-base") & (verdicts["method"] == "multi-task")]
    assert (
        bert["verdict"] == "distinct"
    ).sum() == 4  # §6.1: "a distinct functional specialization phenomenon in four"
    assert set(bert["verdict"]) == {"distinct", "double"}


def test_seeds_are_averaged_and_resampled_only_if_there_are_eight() -> None:
    some = paper().iloc[:10]
    three, eight = (
        pd.concat([some.assign(seed=seed, D=some["D"] + seed) for seed in range(n)]) for n in (3, 8)
    )
    means = tables.pairs_over_seeds(three)
    assert means["D"].tolist() == pytest.approx((some["D"] + 1).tolist())
    assert means["D_sd"].tolist() == pytest.approx([1.0] * 10)
    assert means["D_seed_low"].isna().all()
    assert tables.pairs_over_seeds(eight)["D_seed_low"].notna().all()
    assert not means["seeds_at_chance"].any()
    three.loc[(three["seed"] == 2) & (three["B"] == "AG"), "D_corrected"] = float(
        "nan"
    )  # a task that was not learnt
    counted = tables.pairs_over_seeds(three).set_index(["A", "B"])["seeds_at_chance"]
    assert counted.to_dict() == {pair: int(pair[1] == "AG") for pair in PAIRS}


def test_p_is_corrected_over_pairs_though_every_pair_has_a_model_of_its_own() -> None:
    some = paper().iloc[:10]
    p = [0.005, 0.01, 0.03, 0.04, 0.05, 0.2, 0.3, 0.5, 0.9, 1.0]
    two = pd.concat(
        [some.assign(seed=0, p=p, p_fdr=p), some.assign(seed=1, p=p[::-1], p_fdr=p[::-1])], ignore_index=True
    )
    found = tables.corrected(two)
    by_hand = [
        min(p[j] * 10 / (j + 1) for j in range(i, 10)) for i in range(10)
    ]  # Benjamini and Hochberg, within a seed
    assert found.loc[found["seed"] == 0, "p_fdr"].tolist() == pytest.approx(by_hand)
    assert found.loc[found["seed"] == 1, "p_fdr"].tolist() == pytest.approx(by_hand[::-1])
    counts = tables.pairs_over_seeds(found)["seeds_significant"].tolist()
    assert counts == [1.0, 1.0, *[0.0] * 6, 1.0, 1.0]
    untested = tables.pairs_over_seeds(tables.corrected(two.assign(p=float("nan"))))
    assert untested["seeds_significant"].isna().all()


def test_tasks_improved_are_counted_against_plain_training() -> None:
    rows = []
    for method, alpha, scores in (
        ("multi-task", 1.0, (0.5, 0.6, 0.7)),
        ("iat", 0.3, (0.6, 0.7, 0.6)),
        ("iat", 0.5, (0.6, 0.7, 0.8)),
    ):
        for task, value in zip("xyz", scores, strict=True):
            for seed in (0, 1):
                place = {
                    "model": "m",
                    "method": method,
                    "alpha": alpha,
                    "delta": 0.1 if method == "iat" else 0.0,
                    "group": "x+y+z",
                    "seed": seed,
                }
                rows.append({**place, "task": task, "split": "validation", "score": value + 0.02 * seed})
    table = tables.averages(pd.DataFrame(rows)).set_index(["method", "alpha"])
    assert table.loc[("iat", 0.3), "tasks_improved"] == 2
    assert table.loc[("iat", 0.5), "tasks_improved"] == 3
    assert np.isnan(table.loc[("multi-task", 1.0), "tasks_improved"])
    assert table.loc[("iat", 0.3), "average"] == pytest.approx(100 * (1.9 / 3 + 0.01))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    config = BertConfig(
        vocab_size=len(planted.WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=16,
    )
    BertModel(config).save_pretrained(folder)
    initial_tokenizer(len(planted.WORDS)).save_pretrained(folder)
    return folder


def small(model: Path, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "specialization",
        "models": {"tiny": str(model)},
        "tasks": {"names": ["grammar:topic", "grammar:tense", "grammar:sentiment"], "size": 64},
        "seeds": 1,
        "training": {"epochs": 1, "max_length": 32, "batch_size": 16},
        "lesions": {
            "random_draws": 2,
            "bootstrap": 199,
            "score_examples": 16,
            "fraction": 0.25,
            "fractions": [0.5],
        },
        **changes,
    }


def test_a_study_in_miniature(model: Path, tmp_path: Path) -> None:
    groups = [["grammar:topic", "grammar:tense"], ["grammar:tense", "grammar:sentiment"]]
    recipe, _ = validate(
        study,
        small(model, groups=groups, methods=["multi-task", "iat"], frozen=["tiny"]),
        tmp_path,
        tmp_path / "run",
    )
    board = run_study(study, recipe, tmp_path / "run", jobs=0, quiet=True)
    assert not board.failed
    run = engine.open(tmp_path / "run")
    pairs = run.table("pairs-all")
    assert len(pairs) == 2 * 3  # two groups, three trainings each
    assert set(pairs["method"]) == {"multi-task", "iat", "frozen"}
    assert pairs.loc[pairs["method"] == "iat", "alpha"].tolist() == [0.3, 0.3]
    assert pairs.loc[pairs["method"] == "multi-task", "alpha"].tolist() == [1.0, 1.0]
    assert set(run.table("grid")["label"]) == {"tiny", "tiny*", "tiny + iat"}
    assert len(run.table("training")) == 6
    _, result = next(run.results("dissociation", method="iat"))
    saved = load(result.folder)
    assert saved.tasks in (("topic", "tense"), ("tense", "sentiment"))
    drawn = write_figures([tmp_path / "run"], tmp_path / "figures", tables=False)
    assert {path.stem for path in drawn} >= {"1-grid", "1-methods"}


def test_sweeps_train_plain_only_once(model: Path, tmp_path: Path) -> None:
    recipe = read_recipe(
        SpecializationRecipe,
        small(model, methods=["multi-task", "iat"], alphas=[0.1, 0.5], dissociate=False),
        tmp_path,
    )
    methods = [cell.coords["methods"] for cell in study.cells(recipe) if "methods" in cell.coords]
    assert methods == ["multi-task+iat"]


def test_mistakes_are_found_before_any_work(model: Path, tmp_path: Path) -> None:
    for changes, message in (
        ({"groups": [["grammar:topic"]]}, "compares two"),
        ({"groups": [["grammar:topic", "sst2"]]}, "not among the tasks"),
        ({"frozen": ["big"]}, "not among the models"),
        ({"methods": ["single-task"]}, "cannot be dissociated"),
        ({"lesions": {"method": "guess"}}, "unknown"),
    ):
        with pytest.raises(RecipeError, match=message):
            validate(study, small(model, **changes), tmp_path, tmp_path / "run")


RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("specialization*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_are_sound_at_both_scales(path: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="small"):
        apply_scale(read_recipe_file(path), "tiny")
    whole, less = read_recipe_file(path), read_recipe_file(path)
    apply_scale(whole, None)
    apply_scale(less, "small")
    recipe, _ = validate(study, less, path.parent, tmp_path / "run")
    assert list(recipe.models) == ["MiniLM"]
    whole["models"] = {"MiniLM": "demo"}  # the real ones come from the hub
    whole["frozen"] = []
    full = read_recipe(SpecializationRecipe, whole, path.parent)
    assert full.seeds == 3
    assert full.training.epochs == 5  # type: ignore[attr-defined]


def test_a_sweep_is_one_training_cell_whose_settings_share_their_first_steps(
    model: Path, tmp_path: Path
) -> None:
    recipe, _ = validate(
        study,
        small(
            model,
            groups=[["grammar:topic", "grammar:tense"]],
            methods=["multi-task", "iat"],
            alphas=[0.25, 0.5],
            deltas=[0.3],
        )
        | {
            "method_options": {"iat": {"variant": "iap", "drift": True}},
            "lesions": {**small(model)["lesions"], "variant": "michel"},
        },
        tmp_path,
        tmp_path / "run",
    )
    assert not run_study(study, recipe, tmp_path / "run", jobs=0, quiet=True).failed
    run = engine.open(tmp_path / "run")
    (_, trained), *others = run.results("training")
    assert not others
    assert study.section(run).methods.endswith("The text of topic, tense is synthetic.")
    assert {(row.method, row.alpha, row.delta) for row in trained.table("scores").itertuples()} == {
        ("multi-task", 1.0, 0.0),
        ("iat", 0.25, 0.3),
        ("iat", 0.5, 0.3),
    }
    folders = [trained.model(name) for name in ("iat-alpha-0_25", "iat-alpha-0_5")]
    described = [json.loads((folder / "training.json").read_text())["description"] for folder in folders]
    assert [(one["alpha"], one["variant"], one["drift"], one["leak"]) for one in described] == [
        (0.25, "iap", True, False),
        (0.5, "iap", True, False),
    ]
    losses = [
        pd.read_parquet(folder / "history.parquet")["loss"]
        for folder in (*folders, trained.model("multi-task"))
    ]
    shared = round(0.7 * len(losses[0]))
    assert losses[0][:shared].equals(losses[1][:shared])
    assert losses[0][:shared].equals(losses[2][:shared])
    pairs = run.table("pairs-all")
    assert sorted(zip(pairs["method"], pairs["alpha"], strict=True)) == [
        ("iat", 0.25),
        ("iat", 0.5),
        ("multi-task", 1.0),
    ]
    _, result = next(run.results("dissociation", method="iat", alpha=0.5))
    assert load(result.folder).settings["variant"] == "michel"


def test_every_way_to_score_heads_has_a_dissociation_of_the_same_training(
    model: Path, tmp_path: Path
) -> None:
    from headwise.lesions import dissociate
    from headwise.models import open_model

    ways = {
        "eq4": {},
        "iat": {"variant": "iat"},
        "leave-one-out": {"method": "ablation", "score_examples": 16},
    }
    two = small(model, groups=[["grammar:topic", "grammar:tense"]], scorings=ways)
    recipe, plan = validate(study, two, tmp_path, tmp_path / "run")
    assert plan["cells"] == 1 + 3 + 1
    assert not run_study(study, recipe, tmp_path / "run", jobs=0, quiet=True).failed
    run = engine.open(tmp_path / "run")
    table = run.table("scorings").set_index("scoring")
    assert list(table.index) == list(ways)
    ((_, trained),) = run.results("training")
    tasks, _ = recipe.tasks.with_changes(names=("grammar:topic", "grammar:tense")).find_trained()
    alone = recipe.lesions.with_changes(
        variant="iat", max_length=recipe.lesions.max_length or recipe.training.max_length, seed=0
    )
    own = dissociate(open_model(trained.model("multi-task")), tasks, **alone.given())
    assert table.loc["iat", "D"] == pytest.approx(own.table("summary").loc["all", "D"])
    sets = {}
    for name in ways:
        ((_, result),) = run.results("dissociation", scoring=name)
        sets[name] = load(result.folder).sets
    for name in ways:
        a, b = (set(map(tuple, heads)) for heads in sets[name].values())
        assert table.loc[name, "overlap_of_tasks"] == pytest.approx(100 * len(a & b) / len(a))
        first = [set(map(tuple, heads)) for heads in sets["eq4"].values()]
        shared = [len(x & y) / len(y) for x, y in zip((a, b), first, strict=True)]
        assert table.loc[name, "overlap_with_first"] == pytest.approx(100 * np.mean(shared))
    assert set(run.table("pairs-mean")["scoring"]) == set(ways)  # not averaged over ways
    engine.export(run, tmp_path / "numbers")  # saved models and dissociations are folders, not tables
    numbers = pd.read_parquet(tmp_path / "numbers.parquet").query("item == 'scorings' and variable == 'D'")
    assert [json.loads(labels)["scoring"] for labels in numbers["labels"]] == list(ways)
    assert numbers["value"].tolist() == pytest.approx(table["D"].tolist())
    study_section, *each = sections_of(tmp_path / "run")
    assert [section.title for section in each] == [
        f"Which heads each task needs: run, scoring {name}" for name in ways
    ]
    said = ("by gate-gradient (Eq. 4) on", "by gate-gradient, variant iat on", "by ablation on")
    assert [text in section.methods for text, section in zip(said, each, strict=True)] == [True] * 3
    assert "Eq. 4" not in study_section.methods
    (shown,) = [part for part in study_section.blocks if part.name == "specialization-scorings"]
    assert "last_layer: heads of a task in the last layer" in shown.caption
    with pytest.raises(RecipeError, match=r"fraction cannot be set here.*set it under \[lesions\]"):
        validate(study, two | {"scorings": {"x": {"fraction": 0.5}}}, tmp_path, tmp_path / "run")
    with pytest.raises(RecipeError, match="did you mean 'eq4'"):
        validate(study, two | {"scorings": {"x": {"variant": "eq9"}}}, tmp_path, tmp_path / "run")


def test_options_of_methods_and_variants_are_checked_before_anything_runs(
    model: Path, tmp_path: Path
) -> None:
    wrong = small(
        model, methods=["iat"], method_options={"iat": {"variant": "eq5"}, "prune": {"drifts": True}}
    )
    wrong["lesions"] = {**wrong["lesions"], "variant": "eq6"}
    with pytest.raises(RecipeError) as error:
        validate(study, wrong, tmp_path, tmp_path / "run")
    for said in ("'drifts'", "variant 'eq5' is unknown", 'variant: given "eq6"'):
        assert said in str(error.value)


def test_a_tasks_file_without_names_means_all_of_its_tasks(model: Path, tmp_path: Path) -> None:
    (tmp_path / "tasks.toml").write_text(
        "".join(f'[{name}]\ngrammar = "{name}"\nsize = 64\n' for name in ("topic", "tense", "ner"))
    )
    given = small(model, tasks={"file": "tasks.toml"}, groups="pairs")
    recipe, plan = validate(study, given, tmp_path, tmp_path / "run")
    assert plan["cells"] == 3 + 3 + 1  # trainings, dissociations, tables
    assert groups_of(recipe) == [("topic", "tense"), ("topic", "ner"), ("tense", "ner")]
    validate(study, given | {"groups": [["tense", "ner"]]}, tmp_path, tmp_path / "run")
    with pytest.raises(RecipeError, match="'tenses' is not among the tasks: topic, tense, ner"):
        validate(study, given | {"groups": [["tenses", "ner"]]}, tmp_path, tmp_path / "run")
    with pytest.raises(RecipeError, match="no task was named") as error:
        validate(study, given | {"tasks": {}, "groups": "together"}, tmp_path, tmp_path / "run")
    assert "groups" not in str(error.value)


def test_pairs_with_a_task_at_chance_are_counted_by_the_rule_of_every_note() -> None:
    """A task may score above the guess and still be at chance by its permutation test, so that D_corrected is there."""
    pairs = pd.DataFrame(
        {
            "A": ["a", "a"],
            "B": ["b", "c"],
            "D_A": 1.0,
            "D_B": 1.0,
            "D": 1.0,
            "D_corrected": 2.0,
            "overlap": 50.0,
            "verdict": "double",
        }
    )
    place = {"model": "m", "method": "multi-task", "alpha": 1.0, "delta": 0.0, "group": "a+b+c"}
    every = tables.stacked(
        [tables.marked(pairs, {"b"}), tables.marked(pairs, ())], [{**place, "seed": seed} for seed in (0, 1)]
    )
    assert tables.pairs_over_seeds(every)["seeds_at_chance"].tolist() == [1, 0]
