"""Transfer and similarity as studies and verbs, on tiny models and the embedded grammar."""

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from transformers import BertConfig, BertModel
from typer.testing import CliRunner

from headwise import studies
from headwise.cli import app
from headwise.cli.transfer import find_sources
from headwise.engine._recipe import RecipeError
from headwise.engine._study import validate
from headwise.errors import HeadwiseError
from headwise.models import MultiTaskModel
from headwise.studies._sections.similarity import section as similarity
from headwise.studies._transfer_study import transfer_study
from headwise.tasks import find_tasks
from words import word_tokenizer

TASKS = ("topic", "tense", "sentiment")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four tiny models saved as multi-task models; sentences; a table of dissociations."""
    folder = tmp_path_factory.mktemp("transfer")
    tasks = find_tasks([f"grammar:{name}" for name in TASKS], size=200)
    words = sorted(
        {
            word
            for task in tasks
            for text in task.split("train").texts
            for side in text
            for word in side.split()
        }
    )
    tokenizer = word_tokenizer(["[PAD]", "[UNK]", *words])
    config = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 16}
    for seed, name in enumerate((*TASKS, "all")):
        torch.manual_seed(seed)
        encoder = BertModel(BertConfig(vocab_size=len(words) + 2, **config))
        MultiTaskModel(encoder, tokenizer, tasks if name == "all" else []).save(folder / name)
        (folder / name / "training.json").write_text(
            json.dumps({"description": {"method": "multi-task", "settings": {"seed": seed}}})
        )
    (folder / "sentences.txt").write_text("\n".join(text[0] for text in tasks[0].split("train").texts[:30]))
    pairs = [
        ("grammar:topic", "grammar:tense", 0.1),
        ("grammar:topic", "grammar:sentiment", 0.3),
        ("grammar:tense", "grammar:sentiment", 0.2),
    ]
    pd.DataFrame(pairs, columns=["task", "other", "d"]).to_csv(folder / "d.csv", index=False)
    return folder


def run(*words: object) -> dict:  # type: ignore[type-arg]
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def test_transfer_verb_gives_scores_and_tests_and_resumes(folder: Path, tmp_path: Path) -> None:
    words = [
        "transfer",
        "--from",
        *(f"{m}={folder / s}" for m in ("plain", "iat") for s in TASKS),
        "--to",
        "grammar:tense",
    ]
    words += [
        "--shots",
        4,
        8,
        "--seeds",
        3,
        "--epochs",
        1,
        "--evaluate",
        20,
        "--out",
        tmp_path / "run",
        "--jobs",
        0,
        "--json",
    ]
    first = run(*words)
    assert {(row["method"], row["shots"]) for row in first["tables"]["transfer-scores"]} == {
        (m, k) for m in ("plain", "iat") for k in (4, 8)
    }
    assert all(row["runs"] == 9 for row in first["tables"]["transfer-scores"])
    for row in first["tables"][
        "transfer-tests"
    ]:  # both methods name the same three models: no difference, and too few sources for a p
        assert (row["difference"], row["low"], row["high"]) == (
            0,
            None,
            None,
        )  # 0 to 0 would read as certainty
        assert row["p"] is None
        assert row["note"].startswith(
            "no p: 3 source models of each method, 6 are needed; no interval: every source and seed has the same value"
        )
    assert run(*words) == first


def test_similarity_verb_gives_every_matrix_and_the_link(folder: Path, tmp_path: Path) -> None:
    words = [
        "similarity",
        "--models",
        *(f"grammar:{name}={folder / name}" for name in TASKS),
        "--sentences",
        folder / "sentences.txt",
    ]
    words += ["--ahp", "--shots", 8, "--multitask", folder / "all", "--dissociation", folder / "d.csv"]
    found = run(*words, "--out", tmp_path / "run", "--jobs", 0, "--json")
    assert len(found["tables"]["similarity-pairs"]) == 3
    assert {"DSE", "CRA", "AHP", "heads"} <= set(found["tables"]["similarity-pairs"][0])
    assert {row["similarity"] for row in found["tables"]["similarity-link"]} == {"DSE", "CRA", "AHP", "heads"}
    assert (tmp_path / "run" / "figures" / "link-dse.pdf").is_file()
    models = {f"grammar:{name}": folder / name for name in TASKS}
    asked = {"sentences": folder / "sentences.txt", "ahp": True, "shots": 8, "multitask": str(folder / "all")}
    same = studies.similarity_study(
        models, tmp_path / "run", dissociation=folder / "d.csv", **asked
    )  # resumes: nothing new
    assert similarity(same).methods.endswith(
        "The text of grammar:topic, grammar:tense, grammar:sentiment is synthetic."
    )
    assert same.table("similarity-pairs").to_dict("records") == found["tables"]["similarity-pairs"]
    assert len(list((tmp_path / "run" / "results").iterdir())) == 1 + 9 + 3 + 1


def test_sources_are_found_in_runs_and_what_is_wrong_is_named(folder: Path, tmp_path: Path) -> None:
    assert [Path(model).name for model in find_sources([str(folder)])["multi-task"]] == [
        *TASKS,
        "all",
    ]  # by seed
    with pytest.raises(HeadwiseError, match="holds no trained multi-task model"):
        find_sources([str(tmp_path)])
    shutil.copytree(folder / "all", tmp_path / "moved" / "all")
    for weights in (tmp_path / "moved" / "all" / "encoder").glob("*.safetensors"):
        weights.unlink()
    with pytest.raises(HeadwiseError, match=r"weights of .*all are missing .*encoder.*copy the whole run"):
        find_sources([str(tmp_path / "moved")])
    with pytest.raises(
        HeadwiseError, match="TASK=FOLDER or the folder of a single-task training, got 'topic='"
    ):
        CliRunner().invoke(app, ["similarity", "--models", "topic="], catch_exceptions=False)
    with pytest.raises(HeadwiseError, match="holds no single-task training, one model for each task"):
        CliRunner().invoke(app, ["similarity", "--models", str(folder / "all")], catch_exceptions=False)


def test_the_recipe_has_the_sources_of_tables_6_and_8_where_training_puts_them() -> None:
    import tomllib

    text = (Path(__file__).parents[2] / "recipes" / "transfer.toml").read_text(encoding="utf-8")
    recipe = tomllib.loads(text)
    assert set(recipe["sources"]) == {"mt-dnn", "ticket-share", "multi-task", "random-heads", "iat"}
    command = next(line for line in text.splitlines() if "headwise train" in line)
    assert "--seeds 6 --out runs/glue" in command
    for method, folders in recipe[
        "sources"
    ].items():  # as `headwise train` with several methods and seeds names them
        assert folders == [f"../runs/glue/{method}/seed-{seed}" for seed in range(6)]
    ablation = tomllib.loads(
        (Path(__file__).parents[2] / "recipes" / "specialization-ablation.toml").read_text(encoding="utf-8")
    )
    assert "ticket-share" in ablation["methods"]


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ({"names": ["grammar:tenze"]}, "tasks: .*tenze.*did you mean 'tense'"),
        (
            {"names": ["mine"], "file": "tasks.toml"},
            "tasks: .*tasks.toml names data that is not there: .*texts.csv",
        ),
        ({"names": ["mine"]}, "tasks.names: 'mine' is not a preset; give tasks.file"),
    ],
)
def test_new_tasks_are_checked_before_any_work(
    folder: Path, tmp_path: Path, tasks: dict[str, Any], said: str
) -> None:
    (tmp_path / "tasks.toml").write_text('[mine]\npath = "texts.csv"\n')
    recipe = {"kind": "transfer", "sources": {"multi-task": [str(folder / "all")]}, "tasks": tasks}
    with pytest.raises(RecipeError, match=said):
        validate(transfer_study, recipe, tmp_path, tmp_path / "run")
