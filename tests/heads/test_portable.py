"""Models with heads removed open in plain transformers, where headwise is not installed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t
from safetensors.torch import save_file

import headwise
from headwise.heads import Heads, HeadSet, save_removed
from headwise.heads._remove.portable import CUTS, FILE

SMALL: Any = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "num_labels": 3,
}
T5: Any = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "num_layers": 3, "num_heads": 4, "d_ff": 48}
UNEVEN = HeadSet([(0, 1), (1, 0), (1, 2)])
WITHOUT_A_LAYER = HeadSet([(0, 2), *((1, head) for head in range(4))])
GROUP = HeadSet([(0, 0), (0, 1)])
# by name: the model, the heads that go, and the Auto class that opens it
CASES: dict[str, tuple[Any, HeadSet, str]] = {
    "bert": (
        lambda: t.BertForSequenceClassification(t.BertConfig(**SMALL)),
        UNEVEN,
        "AutoModelForSequenceClassification",
    ),
    "bert without a layer": (
        lambda: t.BertForTokenClassification(t.BertConfig(**SMALL)),
        WITHOUT_A_LAYER,
        "AutoModelForTokenClassification",
    ),
    "mpnet": (
        lambda: t.MPNetForSequenceClassification(t.MPNetConfig(**SMALL)),
        UNEVEN,
        "AutoModelForSequenceClassification",
    ),
    "gpt2": (
        lambda: t.GPT2LMHeadModel(t.GPT2Config(vocab_size=60, n_embd=32, n_layer=3, n_head=4)),
        WITHOUT_A_LAYER,
        "AutoModelForCausalLM",
    ),
    "llama": (
        lambda: t.LlamaForCausalLM(t.LlamaConfig(**SMALL, num_key_value_heads=2)),
        GROUP,
        "AutoModelForCausalLM",
    ),
    "t5": (
        lambda: t.T5ForConditionalGeneration(t.T5Config(**T5, decoder_start_token_id=0)),
        UNEVEN,
        "AutoModelForSeq2SeqLM",
    ),
}
MORE: dict[str, tuple[Any, HeadSet, str]] = {
    "roberta": (
        lambda: t.RobertaForSequenceClassification(t.RobertaConfig(**SMALL, pad_token_id=1)),
        UNEVEN,
        "AutoModelForSequenceClassification",
    ),
    "distilbert": (
        lambda: t.DistilBertForSequenceClassification(
            t.DistilBertConfig(vocab_size=60, dim=32, n_layers=3, n_heads=4, hidden_dim=48, num_labels=3)
        ),
        UNEVEN,
        "AutoModelForSequenceClassification",
    ),
    "electra": (
        lambda: t.ElectraForTokenClassification(t.ElectraConfig(**SMALL, embedding_size=32)),
        UNEVEN,
        "AutoModelForTokenClassification",
    ),
    "albert": (
        lambda: t.AlbertForSequenceClassification(t.AlbertConfig(**SMALL, embedding_size=16)),
        HeadSet((layer, 1) for layer in range(3)),
        "AutoModelForSequenceClassification",
    ),
    "deberta-v2": (
        lambda: t.DebertaV2ForSequenceClassification(
            t.DebertaV2Config(**SMALL, relative_attention=True, pos_att_type=["c2p", "p2c"])
        ),
        UNEVEN,
        "AutoModelForSequenceClassification",
    ),
    "modernbert": (
        lambda: t.ModernBertForSequenceClassification(t.ModernBertConfig(**SMALL, pad_token_id=0)),
        UNEVEN,
        "AutoModelForSequenceClassification",
    ),
    "qwen3": (
        lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=8)),
        GROUP,
        "AutoModelForCausalLM",
    ),
    "vit": (
        lambda: t.ViTForImageClassification(
            t.ViTConfig(
                hidden_size=32, num_hidden_layers=3, num_attention_heads=4, image_size=16, patch_size=4
            )
        ),
        UNEVEN,
        "AutoModelForImageClassification",
    ),
    "t5 without a layer": (
        lambda: t.T5ForConditionalGeneration(t.T5Config(**T5, decoder_start_token_id=0)),
        WITHOUT_A_LAYER,
        "AutoModelForSeq2SeqLM",
    ),
}
# what somebody does who has transformers alone: open, use the encoder, train a step, save, open again
ELSEWHERE = """
import json, sys
from pathlib import Path
import torch, transformers
from safetensors.torch import load_file
for folder, auto in json.loads(sys.argv[1]).items():
    inputs = load_file(Path(folder) / "inputs.st")
    expected = inputs.pop("expected")
    opener = getattr(transformers, auto)
    model = opener.from_pretrained(folder, trust_remote_code=True)
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs).logits, expected, rtol=1e-5, atol=1e-5)
    transformers.AutoModel.from_pretrained(folder, trust_remote_code=True)(**inputs)
    model.train()
    model(**inputs).logits.square().mean().backward()
    torch.optim.AdamW(model.parameters(), lr=1e-3).step()
    model.eval().save_pretrained(folder + " trained")
    again = opener.from_pretrained(folder + " trained", trust_remote_code=True)
    with torch.no_grad():
        torch.testing.assert_close(again(**inputs).logits, model(**inputs).logits)
        again.to(torch.bfloat16)(**{k: v.bfloat16() if v.is_floating_point() else v for k, v in inputs.items()})
assert not [name for name in sys.modules if name.startswith("headwise")]
"""


def inputs_of(model: Any) -> dict[str, torch.Tensor]:
    if model.config.model_type == "vit":
        return {"pixel_values": torch.randn(2, 3, 16, 16)}
    inputs = {"input_ids": torch.randint(3, 60, (2, 9))}
    if model.config.model_type == "t5":
        inputs["decoder_input_ids"] = torch.randint(3, 60, (2, 4))
    return inputs


def enlivened(model: Any) -> Any:
    """With weights that are large enough for every head to count."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def check_elsewhere(cases: dict[str, tuple[Any, HeadSet, str]], tmp_path: Path) -> None:
    openers = {}
    for name, (build, gone, auto) in cases.items():
        folder, heads = tmp_path / name, Heads(enlivened(build()))
        smaller: Any = heads.remove(gone)
        save_removed(smaller, folder)
        inputs = inputs_of(smaller)
        with torch.no_grad(), heads.silenced(gone):
            expected = heads.model(**inputs).logits
        with torch.no_grad():
            torch.testing.assert_close(smaller(**inputs).logits, expected, rtol=1e-4, atol=1e-4)
            assert torch.equal(headwise.load(folder)(**inputs).logits, smaller(**inputs).logits), name
            save_file({**inputs, "expected": smaller(**inputs).logits.contiguous()}, folder / "inputs.st")
        openers[str(folder)] = auto
    environment = os.environ | {"PYTHONPATH": "", "HF_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-W", "ignore", "-c", ELSEWHERE, json.dumps(openers)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_transformers_opens_trains_and_saves_them_without_headwise(tmp_path: Path) -> None:
    check_elsewhere(CASES, tmp_path)


@pytest.mark.slow
def test_so_do_more_families(tmp_path: Path) -> None:
    check_elsewhere(MORE, tmp_path)


def test_the_file_is_short_names_its_class_and_holds_only_what_the_cuts_need(tmp_path: Path) -> None:
    save_removed(Heads(CASES["bert"][0]()).remove(UNEVEN), tmp_path)
    text = (tmp_path / FILE).read_text()
    assert len(text.splitlines()) <= 150
    assert "class PrunedBertForSequenceClassification(BertForSequenceClassification):" in text
    assert "Headless" not in text  # no layer has lost all of its heads
    assert "headwise" not in "".join(line for line in text.splitlines() if "import" in line)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "pruned_bert"
    assert config["auto_map"]["AutoModel"].endswith(".PrunedBertModel")
    assert config[CUTS][0]["removed"] == [[0, 1], [1, 0], [1, 2]]


def test_without_trust_nothing_is_opened(tmp_path: Path) -> None:
    """Under the family's own model type the intact class would open, with random weights where heads are missing."""
    save_removed(Heads(CASES["bert"][0]()).remove(UNEVEN), tmp_path)
    for options in ({}, {"ignore_mismatched_sizes": True}, {"trust_remote_code": False}):
        with pytest.raises(ValueError, match="trust_remote_code=True"):
            t.AutoModelForSequenceClassification.from_pretrained(tmp_path, **options)


def test_a_model_that_transformers_opened_is_pruned_again_and_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    heads = Heads(enlivened(CASES["bert"][0]()))
    save_removed(heads.remove(HeadSet([(0, 1)])), tmp_path / "once")
    opened = t.AutoModelForSequenceClassification.from_pretrained(tmp_path / "once", trust_remote_code=True)
    second: Any = Heads(opened).remove(HeadSet([(1, 3)]))
    save_removed(second, tmp_path / "twice")
    inputs = inputs_of(heads.model)
    with torch.no_grad(), heads.silenced(HeadSet([(0, 1), (1, 3)])):
        expected = heads.model(**inputs).logits
    for model in (
        headwise.load(tmp_path / "twice"),
        t.AutoModelForSequenceClassification.from_pretrained(tmp_path / "twice", trust_remote_code=True),
    ):
        with torch.no_grad():
            torch.testing.assert_close(model(**inputs).logits, expected, rtol=1e-4, atol=1e-4)
