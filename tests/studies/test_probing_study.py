"""The probing studies and the verb, on a tiny random model and sentences of the grammar."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel
from typer.testing import CliRunner

from headwise import engine, grammar
from headwise.cli import app
from headwise.engine._study import run_study, validate
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.probing._results import Probes
from headwise.probing._settings import ProbingTasks
from headwise.report import write_figures
from headwise.studies import _probing_finetuning as probing_finetuning, _probing_study as probing_study
from headwise.studies._probing_study import open_tasks, probes_of, task_names
from headwise.studies._sections.grids import of_finetuning, of_probing
from headwise.tasks.readers import conllu
from pictures import assert_drawn
from words import BERT, word_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = sorted({word for sentence in grammar.treebank(400, shared_words=True) for word in sentence.words})
    folder = tmp_path_factory.mktemp("model")
    word_tokenizer([*BERT, *words], "[CLS]", "[SEP]", model_max_length=64).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words) + 4, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=64,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return folder


def command(model: Path, out: Path) -> list[str]:
    words = f"probe --source grammar --tasks Depth SubjNumber --size 300 --sweep 1 3 --controls labels encoder --jobs 0 --out {out}"
    return [*words.split(), "--model", f"tiny={model}"]


@pytest.fixture(scope="module")
def probing_run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "probe"
    result = CliRunner().invoke(app, [*command(model, out), "--json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert [row["task"] for row in printed["tables"]["probing-probing"]] == ["Depth", "SubjNumber"]
    assert len(printed["figures"]) == 8
    for file in printed["figures"]:
        assert_drawn(file)
    return out


def test_a_run_holds_everything_that_was_measured(probing_run: Path) -> None:
    run = engine.open(probing_run)
    assert run.array("test", model="tiny").dims == ("task", "layer", "head")
    assert {"last", "best", "top", "majority"} <= set(run.table("probing").columns)
    assert {"best head", "mean head", "test examples"} <= set(run.table("controls").columns)
    assert sorted(set(run.table("sweep")["n"])) == [1, 2, 3]
    assert run.table("embeddings")["synthetic"].all()
    assert of_probing(run).methods.endswith("The text of Depth, SubjNumber is synthetic.")
    assert len(run.table("syntactic-semantic")) == 4
    found = probes_of(probing_run)
    assert isinstance(found, Probes)
    assert found.tasks == found.synthetic == ["Depth", "SubjNumber"]
    assert found.section().methods.endswith("The text of Depth, SubjNumber is synthetic.")
    np.testing.assert_allclose(
        found.scores.sel(task="Depth").values, run.array("test").sel(task="Depth").values
    )
    assert "random_encoder" in found.data
    with pytest.raises(HeadwiseError, match="no model"):
        probes_of(probing_run, "another")


def test_the_same_command_finds_everything_done(probing_run: Path, model: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (probing_run / "results").rglob("*.nc")}
    result = CliRunner().invoke(app, [*command(model, probing_run), "--no-figures"])
    assert result.exit_code == 0, result.output
    assert "SubjNumber" in result.stdout
    assert before == {path: path.stat().st_mtime_ns for path in (probing_run / "results").rglob("*.nc")}


def test_tasks_by_source(tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        conllu.write(grammar.treebank(150, 0, split), tmp_path / f"{split}.conllu")
    asked = ProbingTasks(source="treebank", data=tmp_path, names=("BigramShift",))
    assert task_names(asked) == ("BigramShift",)
    assert open_tasks(asked)[0].name == "BigramShift"
    assert task_names(ProbingTasks(source="grammar"))[2] == "Depth"
    with pytest.raises(HeadwiseError, match=r"tasks\.data"):
        open_tasks(ProbingTasks(source="senteval"))


def test_mistakes_are_one_line(model: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    cases = {
        "a folder is needed": ["--source", "senteval"],
        "'senteval' is a source of tasks: write source": ["--tasks", "senteval", "sst2"],
        "there is no probing task": ["--source", "grammar", "--tasks", "Nonsense"],
        "need source = 'tasks'": ["--source", "grammar", "--tasks", "sst2"],
    }
    for message, options in cases.items():
        result = runner.invoke(
            app, ["probe", "--model", str(model), *options, "--out", str(tmp_path / "run")]
        )
        assert isinstance(result.exception, HeadwiseError), message
        assert message in str(result.exception)
    result = runner.invoke(
        app,
        ["probe", "--model", str(model), str(model), "--source", "grammar", "--out", str(tmp_path / "run")],
    )
    assert "two models are called" in str(result.exception)


def test_fine_tuning_study(model: Path, tmp_path: Path) -> None:
    recipe = {
        "kind": "head-finetuning",
        "models": {"tiny": str(model)},
        "tasks": {"source": "grammar", "names": ["SubjNumber"], "size": 300},
        "seeds": 2,
        "probing": {"controls": [], "pairs": "together", "top": 3},
        "training": {"epochs": 1, "learning_rate": 1e-3},
    }
    checked, _ = validate(probing_finetuning.study, recipe, tmp_path, tmp_path / "run")
    board = run_study(probing_finetuning.study, checked, tmp_path / "run", jobs=0, quiet=True)
    assert board.failed == 0
    run = engine.open(tmp_path / "run")
    table = run.table("fine-tuning")
    assert set(table["embedding"]) == {"last", "best", "top"}
    assert (table["count"] == 2).all()
    sources = run.table("scores").drop_duplicates("embedding").set_index("embedding")["source"]
    assert sources["last"] == "1"
    assert len(HeadSet.from_json(sources["top"])) == 3
    assert of_finetuning(run).methods.endswith("The text of SubjNumber is synthetic.")
    shift = run.table("shift")
    assert set(shift["embedding"]) == {"last", "best", "top"}
    assert len(write_figures([tmp_path / "run"], tmp_path / "figures", tables=False)) == 2
    assert probing_study.probes_of(tmp_path / "run").tasks == ["SubjNumber"]


@pytest.mark.parametrize("name", ["probing", "probing-small", "probing-finetuning", "probing-treebank"])
def test_recipes_are_valid_but_for_paths(name: str) -> None:
    import tomllib

    text = (Path(__file__).parents[2] / "recipes" / f"{name}.toml").read_text()
    recipe = tomllib.loads(text)
    recipe["models"] = {}
    if recipe["tasks"].get("data"):
        recipe["tasks"]["data"] = "."
    kinds = {"probing": probing_study.ProbingRecipe, "head-finetuning": probing_finetuning.FineTuningRecipe}
    with pytest.raises(ValueError) as caught:
        kinds[recipe["kind"]].model_validate(recipe)
    assert [error["loc"] for error in caught.value.errors()] == [("models",)]  # type: ignore[attr-defined]
