"""The stem-cell study and its verbs from end to end, on a tiny model and the embedded grammar."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from transformers import BertConfig, BertModel, MPNetConfig, MPNetModel
from typer.testing import CliRunner

from headwise import engine, grammar, load
from headwise._base.opener import fresh
from headwise.cli import app
from headwise.errors import HeadwiseError
from headwise.heads import Heads
from headwise.models._memory import remembered_tasks
from headwise.probing import profile
from headwise.studies._stemcells import stem_cell_test
from headwise.studies._stemcells_settings import SMALL
from headwise.studies._stemcells_study import analyse, stemcells_study
from headwise.tasks import find_tasks, structured
from headwise.tasks._source import TaskSource
from headwise.tasks.readers import conllu, ontonotes
from headwise.training import examine, train
from headwise.training.methods import GatedTraining
from pictures import assert_drawn
from words import BERT, word_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    words = sorted({word for s in grammar.treebank(300) for word in s.words})
    word_tokenizer([*BERT, *words], "[CLS]", "[SEP]").save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(words) + 4, max_position_embeddings=64, **shape)).save_pretrained(
        folder
    )
    return folder


def quick(**changes: Any) -> Any:
    return (
        SMALL
        | {"epochs": 1, "max_length": 64, "device": "cpu", "quiet": True, "early_stopping": None}
        | changes
    )


def test_training_learns_and_is_reproducible(model: Path) -> None:
    tasks = grammar.tasks(["pos"], 200, shared_words=True)
    settings = quick(epochs=6, learning_rate=1e-3, decoder_learning_rate=1e-2)
    results = [train(model, tasks, "multi-task", **settings) for _ in range(2)]
    scores, sentences = examine(results[0].model, tasks, "validation", quiet=True)
    assert scores["metric"].tolist() == ["count-accuracy", "count-f1"]
    chance = tasks[0].chance_on("validation")
    assert scores["score"].min() > chance + 0.2
    assert sentences["gold"].sum() == sum(len(s) for s in tasks[0].split("validation").sentences or ())
    np.testing.assert_array_equal(results[0].history["loss"], results[1].history["loss"])


def test_random_weights_and_decoder_options_are_options_of_train(model: Path) -> None:
    tasks = grammar.tasks(["dep"], 64)
    options = {"dep": {"tree": "projective", "arc": 12}}
    settings = quick(learning_rate=1e-12, decoder_learning_rate=1e-12, weight_decay=0.0, seed=3)
    found = train(model, tasks, "multi-task", random_weights=True, decoder_options=options, **settings)
    assert found.model.options == options
    assert found.description["settings"]["random_weights"] is True
    expected = fresh(BertModel.from_pretrained(model), 3).state_dict()
    for name, weight in found.model.encoder.state_dict().items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-6)
    with pytest.raises(HeadwiseError, match="'pos', which is not trained"):
        train(model, tasks, "multi-task", decoder_options={"pos": {}}, **settings)
    with pytest.raises(HeadwiseError, match="an encoder without decoders"):
        train(found.model, tasks, "multi-task", random_weights=True, **settings)


def test_fresh_weights_are_new_and_leave_the_generator_alone(model: Path) -> None:
    encoder = BertModel.from_pretrained(model)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    other = fresh(encoder, 1)
    assert torch.rand(1) == expected
    assert not torch.equal(
        other.encoder.layer[0].attention.self.query.weight,
        encoder.encoder.layer[0].attention.self.query.weight,
    )


def test_dynamic_gates_reach_k_and_stay_on_the_model(model: Path, tmp_path: Path) -> None:
    tasks = grammar.tasks(["pos"], 64)
    method = GatedTraining(fraction=3 / 8)
    trained = train(
        model, tasks, method, out=tmp_path / "gated", **quick(epochs=60, gate_learning_rate=0.1)
    ).model
    assert method.expected == pytest.approx(3, abs=0.7)
    # afterwards the model answers through its gates, and so it does when it is opened again
    _, gated = examine(trained, tasks, "validation", quiet=True)
    _, opened = examine(load(tmp_path / "gated"), tasks, "validation", quiet=True)
    trained.contexts.clear()
    _, without = examine(trained, tasks, "validation", quiet=True)
    with Heads(trained.encoder).gated(method.gates):
        _, by_hand = examine(trained, tasks, "validation", quiet=True)
    np.testing.assert_allclose(gated["loss"], by_hand["loss"], rtol=1e-5)
    np.testing.assert_allclose(opened["loss"], by_hand["loss"], rtol=1e-5)
    assert not np.allclose(without["loss"], by_hand["loss"], rtol=1e-3)
    dear = GatedTraining(penalty=5.0)
    train(model, tasks, dear, **quick(epochs=30, gate_learning_rate=0.3))
    assert dear.expected < 1
    with pytest.raises(HeadwiseError, match="less than one head"):
        train(model, tasks, "gated", fraction=0.1, **quick())


def invoke(*words: object) -> Any:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_whole_study(model: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f"""
kind = "stem-cells"
model = "{model}"
tasks = ["pos", "dep"]
runs = 2
gates = ["dynamic"]
gate_steps = 2
gate_examples = 32
probe_examples = 30
size = 64
training = {{ epochs = 1, max_length = 64 }}
"""
    )
    words = ["stemcells", "--recipe", recipe, "--out", tmp_path / "run", "--jobs", 0, "--figures", "--json"]
    found = invoke(*words)
    by_gates = {row["gates"]: row for row in found["tables"]["stem-cells"]}
    assert set(by_gates) == {"dynamic", "subset random weights"}
    assert all(row["k"] == 2 for row in by_gates.values())
    assert {row["effect"] for row in found["tables"]["effects"]} == {
        "single to multi, stem − alone",
        "single to multi, stem − others of their layers",
        "single to iat, stem − alone",
        "single to iat, stem − others of their layers",
        "iat − multi, stem",
    }
    run = engine.open(tmp_path / "run")
    for row in (
        *found["tables"]["stem-cells"],
        *found["tables"]["effects"],
    ):  # one epoch of tiny models: which tasks it leaves at chance, they say
        assert set(row["at chance"].split(", ")) <= {"pos", "dep", ""}
    assert "at_chance" in run.table("scores")
    assert stemcells_study.section(run).methods.endswith("The text of pos, dep is synthetic.")
    groups = run.table("scores").groupby("group").size()
    assert set(groups.index) == {"single", "pair", "all", "iat", "gated", "random"}
    assert run.array("claims-dynamic").sum(("layer", "head")).to_numpy().tolist() == [[2, 2], [2, 2]]
    assert set(run.table("probe-summary", stage="untrained")["subject"]) == {
        "model",
        "random weights",
        "permuted labels",
        "fixed offset",
    }
    assert set(run.table("changes-dynamic")["stage"]) == {"untrained", "single", "multi", "iat"}
    drawn = {Path(file).name for file in found["figures"]}
    assert {
        "claims-dynamic.png",
        "overlap-dynamic.pdf",
        "best-layers-untrained.png",
        "label-changes-iat.png",
        "effects.png",
    } <= drawn
    for file in found["figures"]:
        assert_drawn(file)
    words.remove("--figures")
    assert invoke(*words) == {**found, "figures": []}  # the second time nothing is computed
    text = " ".join(
        CliRunner().invoke(app, [str(word) for word in words[:-1]], catch_exceptions=False).stdout.split()
    )
    assert "95 % intervals over runs and heads" in text
    assert "heads relabelled within layers, once per task" in text
    assert "docs/statistics.md" in text
    assert "inf" not in text.split("effects")[-1].split("docs/")[0]


def test_probe_verb(model: Path) -> None:
    words = [
        "stemcells",
        "probe",
        "--model",
        model,
        "--tasks",
        "grammar:pos",
        "grammar:srl",
        "--examples",
        20,
        "--json",
    ]
    found = invoke(*words)
    assert {(row["task"], row["subject"]) for row in found["tables"]["summary"]} == {
        ("pos", "model"),
        ("pos", "random weights"),
        ("pos", "permuted labels"),
        ("srl", "model"),
        ("srl", "random weights"),
        ("srl", "permuted labels"),
        ("srl", "fixed offset"),
    }
    alone = [row for row in found["tables"]["summary"] if row["subject"] == "model"]
    assert invoke(*words, "--baselines", "none")["tables"]["summary"] == alone
    tasks = find_tasks(["grammar:pos", "grammar:srl"], size=600)
    summary = profile(str(model), tasks, examples=20, baselines=(), quiet=True).summary
    assert [row["f1"] for row in alone] == pytest.approx((100 * summary["f1"]).tolist())


def test_layers_of_a_treebank_are_tasks_by_name(model: Path, tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        conllu.write(grammar.treebank(60, 0, split), tmp_path / f"{split}.conllu")
    words = [
        "train",
        "--model",
        model,
        "--tasks",
        "treebank:pos",
        "--data",
        tmp_path,
        "--method",
        "multi-task",
        "--epochs",
        1,
    ]
    trained = invoke(*words, "--max-examples", 32, "--predict", "test", "--out", tmp_path / "model", "--json")
    assert {(row["task"], row["split"]) for row in trained["tables"]["scores"]} == {
        ("pos", "validation"),
        ("pos", "test"),
    }
    assert (tmp_path / "model" / "decoders.safetensors").is_file()
    (again,) = remembered_tasks(tmp_path / "model", TaskSource())
    (direct,) = structured(tmp_path, ["pos"])
    assert again.split("test").fingerprint == direct.split("test").fingerprint
    with pytest.raises(
        HeadwiseError, match="treebank:pos: the data folder is the treebank, and none is given"
    ):
        find_tasks(["treebank:pos"])


def test_the_paper_s_recipe_runs_on_the_data_it_names(model: Path, tmp_path: Path) -> None:
    """CoNLL-2012 files, which have the treebank's parts of speech, constituency trees, entities and roles, but no dependencies."""
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "validation", "test"):
        ontonotes.write(grammar.treebank(24, 0, split), data / f"{split}.v4_gold_conll")
    recipe = Path(__file__).parents[2] / "recipes" / "stemcells.toml"
    words: list[object] = [
        "stemcells",
        "--recipe",
        recipe,
        "--model",
        model,
        "--data",
        data,
        "--out",
        tmp_path / "run",
    ]
    small = [
        "runs=2",
        "pairs=false",
        'gates=["gate-gradient"]',
        "gate_examples=16",
        "probe_examples=16",
        "control=false",
    ]
    small += [
        "important_heads=false",
        "training.epochs=1",
        "training.max_length=64",
        "training.max_examples=16",
    ]
    for setting in small:
        words += ["--set", setting]
    found = invoke(*words, "--jobs", 0, "--json")
    assert {(row["task"], row["metric"]) for row in found["tables"]["scores"]} >= {
        ("tree-dep", "uas"),
        ("pos", "count-accuracy"),
        ("srl", "count-f1"),
    }
    assert set(engine.open(tmp_path / "run").array("claims-gate-gradient").task.values) == {
        "pos",
        "ner",
        "tree-dep",
        "con",
        "srl",
    }


def test_the_null_keeps_head_numbers_where_a_model_ties_them(tmp_path: Path) -> None:
    """The analysis of a model with one table of position biases for all layers, on arrays as its cells leave them."""
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    words = sorted({word for s in grammar.treebank(30) for word in s.words})
    word_tokenizer([*BERT, *words], "[CLS]", "[SEP]").save_pretrained(tmp_path)
    MPNetModel(MPNetConfig(vocab_size=len(words) + 4, max_position_embeddings=64, **shape)).save_pretrained(
        tmp_path
    )

    def of(name: str, *tasks: str) -> Any:  # the same in every run
        coords = {"task": list(tasks), "layer": [0, 1], "head": range(4)}
        values = np.stack([np.random.default_rng(len(name + task)).normal(size=(2, 4)) for task in tasks])
        return SimpleNamespace(array={name: xr.DataArray(values, coords=coords)}.__getitem__)

    places = [{"task": task, "run": run} for run in range(2) for task in ("pos", "dep")]
    learnt = SimpleNamespace(table=lambda name: pd.DataFrame({"task": ["pos", "dep"], "at_chance": False}))
    stages = [("single", place["task"], place["run"]) for place in places]
    stages += [("multi", "pos dep", run) for run in range(2)]
    found: dict[str, Any] = {}
    analyse.function(
        SimpleNamespace(table=found.__setitem__, array=found.__setitem__),
        model=engine.ModelName(tmp_path),
        tasks=("pos", "dep"),
        fraction=0.5,
        trained=[learnt, learnt],
        groups=["single", "multi"],
        claimed=[of("gates", place["task"]) for place in places],
        claimed_places=[{"gates": "subset", **place} for place in places],
        probed=[of("probe", *names.split()) for _, names, _ in stages],
        probed_places=[{"stage": stage, "run": run} for stage, _, run in stages],
        untrained=of("probe", "pos", "dep"),
    )
    (row,) = found["stem-cells"].to_dict("records")
    claims = found["claims-subset"].astype(bool)
    expected = stem_cell_test(claims, tied=[(0, 1)])
    assert {name: row[name] for name in expected} == expected
    assert expected["expected"] != stem_cell_test(claims)["expected"]
    assert all(note.startswith("no interval: ") for note in found["effects"]["note"])
