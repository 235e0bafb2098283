"""What one verb writes the next reads: train → score → dissociate → similarity, train → transfer, train → probe, through files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from headwise._passes.subject import task_subject
from headwise.cli import app
from headwise.errors import HeadwiseError
from headwise.lesions import lesion
from headwise.models._memory import remembered_tasks
from headwise.store import _manifest as manifest
from headwise.store._loading import load
from headwise.studies._mean_d import read_dissociation
from headwise.studies._trained import trained_models
from headwise.tasks._source import TaskSource
from headwise.training._evaluation import evaluate

QUICK = ["--epochs", "2", "--batch-size", "8", "--lr", "1e-3", "--max-length", "9"]
FEW = ["--shots", "4", "--seeds", "2", "--epochs", "2", "--evaluate", "12", "--jobs", "0"]


def hw(*words: Any) -> Any:
    """A verb run in this process; its JSON."""
    found = CliRunner().invoke(app, [*map(str, words), "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout[found.stdout.index("{") :])


def said(*words: Any) -> str:
    found = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return " ".join(found.stdout.split())


@pytest.fixture(scope="module")
def trained(place: Path) -> Path:
    """One model of qqp and mood, trained and judged by accuracy, with texts cut at nine tokens."""
    tasks = ["--tasks", "qqp", "mood", "--data", place / "data", "--tasks-file", place / "tasks.toml"]
    hw(
        "train",
        "--model",
        place / "model",
        *tasks,
        "--metric",
        "accuracy",
        "--method",
        "multi-task",
        *QUICK,
        "--out",
        place / "both",
    )
    return place / "both"


def test_a_dissociation_of_a_model_trained_with_accuracy_says_accuracy(trained: Path) -> None:
    record = hw(
        "dissociate",
        "--model",
        trained,
        "--random-draws",
        "1",
        "--bootstrap",
        "0",
        "--out",
        trained.parent / "d",
        "--no-figures",
    )
    assert record["settings"]["metrics"] == {"qqp": "accuracy", "mood": "accuracy"}
    assert record["settings"]["max_length"] == {"qqp": 9, "mood": 9}
    intact = {row["task"]: row["score"] for row in load_scores(trained) if row["split"] == "validation"}
    table = {row["lesion"]: row for row in record["tables"]["performance"]}
    assert {name: table["intact"][name] / 100 for name in intact} == pytest.approx(
        intact
    )  # the very figures of the training
    shown = said("dissociate", "--model", trained, "--random-draws", "1", "--bootstrap", "0")
    assert "Metric: accuracy; texts cut at 9 tokens" in shown
    other = hw(
        "dissociate",
        "--model",
        trained,
        "--random-draws",
        "1",
        "--bootstrap",
        "0",
        "--metric",
        "f1",
        "--max-length",
        "20",
    )
    assert other["settings"]["metrics"] == {"qqp": "f1", "mood": "f1"}
    assert other["settings"]["max_length"] == {"qqp": 20, "mood": 20}


def load_scores(folder: Path) -> list[dict[str, Any]]:
    return pd.read_parquet(folder / "scores.parquet").to_dict("records")


def test_a_model_remembers_its_tasks_wherever_they_are_asked(trained: Path) -> None:
    (qqp,) = remembered_tasks(trained, TaskSource(names=("qqp",)))  # no folder is named: the model knows it
    assert qqp.metric == "f1"  # the preset's own, which nobody chose
    assert not qqp.metric_given
    model = load(trained)
    assert model.tasks["qqp"].metric == "accuracy"
    assert (model.tasks["mood"].max_length, model.tasks["mood"].origin["file"]) == (
        9,
        str(trained.parent / "tasks.toml"),
    )
    assert lesion(model, qqp, [], quiet=True).tasks["qqp"].metric == "accuracy"
    assert lesion(model, qqp.with_metric("f1"), [], quiet=True).tasks["qqp"].metric == "f1"
    subject = task_subject(model, qqp)
    assert subject.task.metric == "accuracy"
    assert max(batch.inputs["input_ids"].shape[1] for batch in subject.plan()) == 9
    assert evaluate(model, qqp, quiet=True).losses == pytest.approx(
        evaluate(model, qqp, max_length=9, quiet=True).losses
    )


def test_a_model_judged_on_a_tenth_of_train_remembers_it_and_can_be_judged_on_validation(
    place: Path, tmp_path: Path
) -> None:
    settings = ["--method", "multi-task", *QUICK, "--epochs", "1", "--out", tmp_path / "m"]
    hw(
        "train",
        "--model",
        place / "model",
        "--tasks",
        "qqp",
        "--data",
        place / "data",
        "--held-out",
        *settings,
    )
    (tenth,), (own,) = (
        remembered_tasks(tmp_path / "m", TaskSource(held_out=value)) for value in (None, False)
    )
    assert {text for pair in tenth.split("train").texts for text in pair} < {
        t for pair in own.split("train").texts for t in pair
    }
    assert (tenth.validation_carved, own.validation_carved) == (True, False)
    (judged,) = (row for row in load_scores(tmp_path / "m") if row["split"] == "validation")
    assert judged["examples"] == len(tenth.split("validation")) != len(own.split("validation"))
    assert "--no-held-out" in said("score", "--help")
    named = "Judged on a tenth of train, not on the validation split (held_out): qqp"
    again = said(
        "train",
        "--model",
        place / "model",
        "--tasks",
        "qqp",
        "--data",
        place / "data",
        "--held-out",
        *settings,
    )
    assert named in again


def test_examples_that_a_model_was_trained_on_are_not_called_held_out(trained: Path) -> None:
    with pytest.raises(
        HeadwiseError, match="was trained on all training examples of qqp, so none of them are held out"
    ):
        remembered_tasks(trained, TaskSource(names=("qqp",), held_out=True))
    assert len(remembered_tasks(trained, TaskSource(names=("qqp",), held_out=False))) == 1


def test_data_that_have_gone_are_asked_for(trained: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(trained, tmp_path / "model")
    tasks = json.dumps(manifest.read(tmp_path / "model")["tasks"]).replace(
        str(trained.parent / "data"), "/gone/away"
    )
    manifest.amend(tmp_path / "model", tasks=json.loads(tasks))
    with pytest.raises(
        HeadwiseError, match="learnt qqp from /gone/away, which no longer exists: give --data"
    ):
        remembered_tasks(tmp_path / "model", TaskSource())


def test_train_score_dissociate_similarity(place: Path) -> None:
    tasks = ["--tasks-file", place / "tasks.toml", "--model", place / "model", *QUICK]
    hw("train", *tasks, "--method", "single-task", "--out", place / "single")
    hw("train", *tasks, "--method", "multi-task", "--out", place / "multi")
    scored = hw("score", "--model", place / "multi", "--out", place / "scores")
    assert set(scored["settings"]["max_length"].values()) == {9}
    quick = ["--random-draws", "1", "--bootstrap", "0", "--no-figures", "--fraction", "0.25"]
    found = hw(
        "dissociate",
        "--model",
        place / "multi",
        "--scores",
        place / "scores",
        *quick,
        "--out",
        place / "pairs",
    )
    assert (
        found["sets"] == hw("dissociate", "--model", place / "multi", *quick)["sets"]
    )  # scores of the same examples
    similar = ["--models", place / "single", "--multitask", place / "multi", "--jobs", "0"]
    for number, given in enumerate((place / "pairs", place / "pairs" / "pairs.csv")):
        out = hw("similarity", *similar, "--dissociation", given, "--out", place / f"similarity-{number}")
        rows = {(row["task"], row["other"]): row["dissociation"] for row in out["tables"]["similarity-pairs"]}
        right = {(row["A"], row["B"]): row["D"] / 100 for row in found["tables"]["pairs"]}
        assert rows == pytest.approx(right)
    shown = said("similarity", *similar, "--dissociation", place / "pairs", "--out", place / "similarity-0")
    assert "p by relabelling tasks, the unit" in shown
    assert (
        "no p: 6 relabellings of the tasks, 20 are needed for p to reach 0.05" in shown
        or "no test: one of the matrices is" in shown
    )
    assert "docs/statistics.md" in shown


def test_pairs_that_are_missing_are_named(tmp_path: Path) -> None:
    pd.DataFrame({"A": ["a"], "B": ["b"], "D": [10.0]}).to_csv(tmp_path / "pairs.csv")
    assert float(
        read_dissociation(tmp_path / "pairs.csv", ["a", "b"]).sel(task="a", other="b")
    ) == pytest.approx(0.1)
    with pytest.raises(
        HeadwiseError, match="was not saved by headwise"
    ):  # a folder is opened by `load`, which verifies it
        read_dissociation(tmp_path, ["a", "b"])
    with pytest.raises(HeadwiseError, match="no D of the pair a and c"):
        read_dissociation(tmp_path / "pairs.csv", ["a", "b", "c"])


def test_train_transfer(place: Path) -> None:
    tasks = [
        "--tasks",
        "mood",
        "animal",
        "--tasks-file",
        place / "tasks.toml",
        "--model",
        place / "model",
        *QUICK,
    ]
    hw(
        "train",
        *tasks,
        "--method",
        "multi-task",
        "houlsby",
        "--seeds",
        "2",
        "--set",
        "size=4",
        "--out",
        place / "sources",
    )
    found = trained_models(place / "sources")
    assert {method: [folder.name for folder in folders] for method, folders in found.items()} == {
        "multi-task": ["seed-0", "seed-1"],
        "houlsby": ["seed-0", "seed-1"],
    }
    to = ["--to", "third", "--tasks-file", place / "tasks.toml", *FEW]
    out = hw("transfer", "--from", place / "sources", *to, "--out", place / "transfer")
    assert {(row["method"], row["sources"]) for row in out["tables"]["transfer-scores"]} == {
        ("multi-task", 2),
        ("houlsby", 2),
    }
    assert "Metric: third accuracy; texts cut at 9 tokens." in said(
        "transfer", "--from", place / "sources", *to, "--out", place / "transfer"
    )


def test_a_training_recipe_makes_the_sources_of_a_transfer_recipe(place: Path) -> None:
    shared = f'names = ["mood", "animal"]\nfile = "{place / "tasks.toml"}"\n'
    (place / "train.toml").write_text(
        f'kind = "training"\nmodels = ["{place / "model"}"]\nmethods = ["multi-task", "iat", "frozen"]\nseeds = 2\n'
        f"[tasks]\n{shared}[training]\nepochs = 1\nbatch_size = 8\nmax_length = 9\n"
    )
    hw("study", "run", place / "train.toml", "--out", place / "trained", "--jobs", "0")
    models = trained_models(place / "trained")
    assert list(models) == [
        "multi-task",
        "frozen",
        "iat",
    ]  # plain training first, the others as the table of methods has them
    seeds = {
        m: [json.loads((f / "training.json").read_text())["description"]["settings"]["seed"] for f in fs]
        for m, fs in models.items()
    }
    assert set(map(tuple, seeds.values())) == {(0, 1)}  # paired, whatever the names of result folders
    (place / "transfer.toml").write_text(
        f'kind = "transfer"\ntrained = "trained"\nshots = [4]\nseeds = 2\nevaluate = 12\n[tasks]\nnames = ["third"]\n'
        f'file = "{place / "tasks.toml"}"\n[fewshot]\nepochs = 1\n'
    )
    hw("study", "run", place / "transfer.toml", "--out", place / "transferred", "--jobs", "0")
    table = load(place / "transferred").table("transfer")
    assert set(table["method"]) == {"multi-task", "iat", "frozen"}
    assert (table["sources"] == 2).all()


def test_single_task_models_are_no_multi_task_sources(place: Path) -> None:
    with pytest.raises(HeadwiseError, match="holds no trained multi-task model"):
        trained_models(place / "single")


def test_train_probe(trained: Path, place: Path) -> None:
    probe = [
        "--tasks",
        "mood",
        "--tasks-file",
        place / "tasks.toml",
        "--jobs",
        "0",
        "--no-figures",
        "--controls",
        "none",
    ]
    out = hw("probe", "--model", trained, *probe, "--out", place / "probe")
    assert out["tables"]["probing-probing"][0]["metric"] == "accuracy"
    other = hw("probe", "--model", trained, *probe, "--metric", "macro-f1", "--out", place / "probe-f1")
    assert other["tables"]["probing-probing"][0]["metric"] == "macro-f1"
    assert np.isfinite(other["tables"]["probing-probing"][0]["top"])
