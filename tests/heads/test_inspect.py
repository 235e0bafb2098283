"""`headwise inspect` and `headwise demo`, and opening models by name."""

import json
from pathlib import Path

import pytest
import torch
from small_models import build
from typer.testing import CliRunner

from headwise.cli import app
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet, default_model
from headwise.heads._remove.files import save_removed
from headwise.models import open_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    build("llama").to(torch.float16).save_pretrained(folder)
    return folder


def test_inspect_as_json(saved: Path) -> None:
    result = CliRunner().invoke(app, ["inspect", str(saved), "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["model"] == str(saved)
    assert facts["class"] == "LlamaForCausalLM"
    assert facts["total_heads"] == 8
    assert [site["layer"] for site in facts["sites"]] == [0, 1]
    site = facts["sites"][0]
    assert (site["kind"], site["path"]) == ("self", "model.layers.0.self_attn.o_proj")
    assert (site["heads"], site["head_dim"], site["groups"]) == (4, 8, 2)
    # A head's rows of Q, its group's of K and V, its columns of O
    assert site["parameters_per_head"] == 4 * 8 * 32


def test_inspect_as_a_table(saved: Path) -> None:
    result = CliRunner().invoke(app, ["inspect", str(saved)], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    for text in (
        "model.layers.1.self_attn.o_proj",
        "2 shared by 2 heads each",
        "1,024",
        "8 heads in 2 layers",
    ):
        assert text in result.stdout


def test_inspect_a_model_with_heads_removed(tmp_path: Path) -> None:
    save_removed(Heads(build("bert").eval()).remove(HeadSet([(0, 0)])), tmp_path)
    result = CliRunner().invoke(app, ["inspect", str(tmp_path), "--json"])
    assert [site["heads"] for site in json.loads(result.stdout)["sites"]] == [3, 4]


def test_half_precision_checkpoints_open_in_single(saved: Path) -> None:
    assert open_model(str(saved), need="heads").dtype == torch.float32


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HeadwiseError, match=r"there is no folder .*nothing"):
        open_model(str(tmp_path / "nothing"), need="heads")
    with pytest.raises(HeadwiseError, match=r"no model could be opened as .*Give a folder"):
        open_model(str(tmp_path), need="heads")  # there, but empty


def test_the_embedded_model_and_the_demo() -> None:
    assert (Path(default_model()) / "model.safetensors").is_file()
    result = CliRunner().invoke(app, ["demo", "--quick", "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["anatomy"]["total_heads"] == 72
    assert {site["head_dim"] for site in facts["anatomy"]["sites"]} == {32}
    pairs = facts["lesion"]["tables"]["cosines"]
    alike, _, apart = (pair["intact"] for pair in pairs)
    assert alike > 0.5 > apart
    assert all(
        value != pair["intact"] for pair in pairs for name, value in pair.items() if name.endswith("silenced")
    )
