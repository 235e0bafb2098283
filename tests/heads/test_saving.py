"""Models with heads removed come back, in another process, as they were saved."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_models import build

import headwise
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet, save_removed
from headwise.store import _manifest as manifest

LOADING = """
import sys, torch, headwise
from safetensors.torch import load_file, save_file
for folder in sys.argv[1:]:
    inputs = load_file(folder + "/inputs.st")
    model = headwise.load(folder)
    assert not model.training
    with torch.no_grad():
        save_file({"output": model(**inputs)[0].contiguous()}, folder + "/outputs.st")
"""

CASES = {
    "bert": HeadSet([(0, 1), (1, 0), (1, 2)]),
    "gpt2": HeadSet([(0, 0), (0, 1), (0, 2), (0, 3), (1, 3)]),  # a layer without heads
    "phi3": HeadSet([(1, 2), (1, 3)]),
    "t5": HeadSet([(0, 0), (1, 1), (1, 2), (2, 3), (4, 0), (4, 1), (4, 2), (4, 3)]),
}


def test_reloading_in_a_new_process(tmp_path: Path) -> None:
    expected = {}
    for family, gone in CASES.items():
        heads = Heads(build(family))
        smaller: Any = heads.remove(gone)
        folder = tmp_path / family
        save_removed(smaller, folder)
        inputs = {name: value for name, value in heads.example.items() if isinstance(value, torch.Tensor)}
        save_file({name: value.contiguous() for name, value in inputs.items()}, folder / "inputs.st")
        with torch.no_grad():
            expected[family] = smaller(**inputs)[0]
    folders = [str(tmp_path / family) for family in CASES]
    subprocess.run([sys.executable, "-c", LOADING, *folders], check=True)
    for family in CASES:
        assert torch.equal(load_file(tmp_path / family / "outputs.st")["output"], expected[family]), family


def test_removing_again_after_reloading_and_generating(tmp_path: Path) -> None:
    model: Any = build("t5")
    heads = Heads(model)
    save_removed(heads.remove(HeadSet([(0, 0), (1, 1)])), tmp_path / "once")
    again: Any = Heads(headwise.load(tmp_path / "once")).remove(HeadSet([(0, 0), (2, 3)]))
    save_removed(again, tmp_path / "twice")
    loaded = headwise.load(tmp_path / "twice")
    assert len(json.loads((tmp_path / "twice" / "headwise.json").read_text())["surgeries"]) == 2
    ids = heads.example["input_ids"]
    with heads.silenced(HeadSet([(0, 0), (0, 1), (1, 1), (2, 3)])):
        expected = model.generate(ids, max_new_tokens=5, do_sample=False, eos_token_id=None)
    assert torch.equal(loaded.generate(ids, max_new_tokens=5, do_sample=False, eos_token_id=None), expected)


def test_half_precision_and_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    random = torch.get_rng_state()
    model: Any = build("llama")
    for parameter in model.parameters():
        # As from_pretrained does: the rotary frequencies stay as they are
        parameter.data = parameter.data.to(torch.bfloat16)
    heads = Heads(model)
    smaller: Any = heads.remove(HeadSet([(0, 0), (0, 1)]))
    save_removed(smaller, tmp_path)
    torch.set_rng_state(random)
    loaded = headwise.load(tmp_path)
    assert torch.equal(random, torch.get_rng_state())
    assert {name: (p.dtype, p.shape) for name, p in loaded.named_parameters()} == {
        name: (p.dtype, p.shape) for name, p in smaller.named_parameters()
    }
    with torch.no_grad():
        assert torch.equal(loaded(**heads.example)[0], smaller(**heads.example)[0])
    assert (tmp_path / "tokenizer.json").read_text() == "{}"


def test_adapters_are_merged_first(tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(
        build("llama"), LoraConfig(r=2, target_modules=["q_proj", "o_proj"], init_lora_weights=False)
    )
    heads = Heads(adapted)
    smaller: Any = heads.remove(HeadSet([(0, 0), (0, 1), *((1, head) for head in range(4))]))
    with pytest.raises(HeadwiseError, match="merge adapters"):
        save_removed(smaller, tmp_path)
    merged = smaller.merge_and_unload()
    save_removed(merged, tmp_path)
    with torch.no_grad():
        assert torch.equal(headwise.load(tmp_path)(**heads.example)[0], merged(**heads.example)[0])


def test_the_manifest_says_what_was_cut(tmp_path: Path) -> None:
    save_removed(Heads(build("bert")).remove(HeadSet([(0, 1)])), tmp_path)
    record = json.loads((tmp_path / "headwise.json").read_text())
    assert record["kind"] == "removed-heads"
    assert record["model_class"] == "BertForSequenceClassification"
    assert record["surgeries"][0]["removed"] == [[0, 1]]
    assert record["shapes"]["bert.encoder.layer.0.attention.self.query.weight"] == [24, 32]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(HeadwiseError, match="no heads were removed"):
        save_removed(build("bert"), tmp_path)

    smaller: Any = Heads(build("bert")).remove(HeadSet([(0, 1)]))
    smaller.__class__ = type("MyBert", (type(smaller),), {})
    with pytest.raises(HeadwiseError, match="MyBert is not a class of transformers"):
        save_removed(smaller, tmp_path)

    save_removed(Heads(build("bert")).remove(HeadSet([(0, 1)])), tmp_path)
    manifest.amend(tmp_path, model_class="AutoModel")
    with pytest.raises(HeadwiseError, match="'AutoModel', which transformers"):
        headwise.load(tmp_path)
