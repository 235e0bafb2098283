"""Scores as files that others read, with a card; policies of key/value caches in the files that others read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from transformers import LlamaConfig, LlamaForCausalLM, T5Config, T5Model
from typer.testing import CliRunner

import headwise as hw
import planted
from headwise import grammar
from headwise.cli import app
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.models import MultiTaskModel
from headwise.scoring import load_scores, save_scores
from headwise.sharing import save_cache_policy
from words import initial_tokenizer

CARRIERS = {"a": (0, 1), "b": (1, 2)}


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, xr.DataArray]:
    """Scores of a model that was saved as `trained`, in a folder."""
    place = tmp_path_factory.mktemp("scored")
    both = planted.tasks(size=32)
    model = planted.model(CARRIERS, both)
    model.save(place / "trained")
    return place, hw.score(
        place / "trained", list(both.values()), out=place / "scores", quiet=True, device="cpu"
    )


def test_json_and_netcdf_hold_the_same_and_load_opens_both(
    scored: tuple[Path, xr.DataArray], tmp_path: Path
) -> None:
    place, scores = scored
    for file in ("scores.nc", "scores.json"):
        found = hw.load(place / "scores" / file)
        np.testing.assert_array_equal(found, scores)
        assert (found.dims, found.attrs) == (scores.dims, scores.attrs)
        assert all(np.array_equal(found[name], scores[name]) for name in scores.coords)
    ragged = (
        scores.where(scores["head"] < 3).isel(task=0, drop=True).assign_coords(gate=("layer", [0.5, np.nan]))
    )
    save_scores(ragged, tmp_path / "ragged.json")
    again = load_scores(tmp_path / "ragged.json")
    np.testing.assert_array_equal(again, ragged)
    np.testing.assert_array_equal(again["gate"], ragged["gate"])
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(HeadwiseError, match=r"other\.json could not be read as scores"):
        hw.load(tmp_path / "other.json")


def test_other_programs_find_model_task_and_estimator(scored: tuple[Path, xr.DataArray]) -> None:
    from scipy.io import netcdf_file

    place, scores = scored
    plain = json.loads((place / "scores" / "scores.json").read_text())
    said = {"model": "trained", "revision": "", "estimator": "gate-gradient", "tasks": "a, b"}
    assert {name: plain[name] for name in said} == said
    assert plain["dims"] == ["task", "layer", "head"]
    np.testing.assert_array_equal(plain["scores"], scores)
    with netcdf_file(place / "scores" / "scores.nc", mmap=False) as file:
        variable = file.variables["score"]
        assert (variable.model, variable.estimator, variable.tasks) == (b"trained", b"gate-gradient", b"a, b")
        np.testing.assert_array_equal(variable[:], scores)


def test_id_and_revision_of_models_from_the_hub() -> None:
    from headwise._base.opener import identity

    config = LlamaConfig()
    config._name_or_path, config._commit_hash = "org/name", "abc"
    assert identity(config) == ("org/name", "abc")
    config._name_or_path = "/home/me/.cache/hub/models--org--name/snapshots/def"
    assert identity(config) == ("org/name", "def")
    config._name_or_path = "/home/me/runs/five/encoder"
    assert identity(config) == ("five", None)  # nobody's home folder is told


def test_the_verb_writes_a_card(tmp_path: Path) -> None:
    task = grammar.task("tense", size=64)
    model = planted.model(CARRIERS, planted.tasks(size=8))
    MultiTaskModel(model.encoder, initial_tokenizer(len(planted.WORDS)), [task]).save(tmp_path / "model")
    wanted = [
        "score",
        "--model",
        str(tmp_path / "model"),
        "--tasks",
        "grammar:tense",
        "--examples",
        "8",
        "--device",
        "cpu",
        "--card",
    ]
    assert "give --out" in str(CliRunner().invoke(app, wanted).exception)
    out = tmp_path / "scores"
    CliRunner().invoke(app, [*wanted, "--out", str(out)], catch_exceptions=False)
    text = (out / "README.md").read_text()
    scores = hw.load(out).isel(task=0)  # the card is no part of what is sealed
    layer, head = np.unravel_index(int(scores.argmax()), scores.shape)
    assert f"head {layer}.{head} scores highest" in text
    assert f"| {layer}.{head} | {float(scores.max()):.4f} |" in text
    assert f"headwise score --model {tmp_path}/model" in text  # how it was made
    assert (out / "figures" / "heads.png").is_file()


def llama(groups: int = 2, **more: Any) -> Heads:
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 16,
        "vocab_size": 50,
    }
    return Heads(LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=groups, **more)).eval())


def test_cache_policies_as_duo_attention_reads_them(tmp_path: Path) -> None:
    """Read back by the lines that DuoAttention and kvpress read them with."""
    save_cache_policy(HeadSet([(0, 3), (1, 0), (1, 1)]), llama(), tmp_path, sink_size=64, recent_size=256)
    table = np.clip(np.loadtxt(tmp_path / "full_attention_heads.tsv", dtype=float, delimiter="\t"), 0, 1)
    config = json.loads((tmp_path / "config.json").read_text())
    assert table.tolist() == [[0, 1], [1, 0]]
    assert (config["sink_size"], config["recent_size"]) == (64, 256)
    policy = json.loads((tmp_path / "policy.json").read_text())
    assert policy["full_attention_heads"] == table.tolist()
    assert {"model", "revision"} <= set(policy)
    scores = np.array([[0.0, 5.0, 1.0, 2.0], [3.0, 3.0, 10.0, 4.0]])
    save_cache_policy(scores, llama(), tmp_path / "scored")
    np.testing.assert_allclose(
        np.loadtxt(tmp_path / "scored" / "full_attention_heads.tsv"), [[0.5, 0.2], [0.3, 1.0]]
    )


def test_policies_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HeadwiseError, match="shape"):
        save_cache_policy(np.ones((2, 2)), llama(), tmp_path)
    with pytest.raises(HeadwiseError, match="all scores are equal"):
        save_cache_policy(np.ones((2, 4)), llama(), tmp_path)
    with pytest.raises(HeadwiseError, match="recent_size 0"):
        save_cache_policy(HeadSet([(0, 0)]), llama(), tmp_path, recent_size=0)
    t5 = T5Model(
        T5Config(
            d_model=16, d_kv=8, num_layers=1, num_heads=2, d_ff=16, vocab_size=20, decoder_start_token_id=0
        )
    ).eval()
    with pytest.raises(HeadwiseError, match="left-to-right models"):
        save_cache_policy(HeadSet([(0, 0)]), Heads(t5), tmp_path)
