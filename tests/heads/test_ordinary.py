"""Evenly pruned models are ordinary ones: plain transformers opens them; others say that headwise does."""

import json
import subprocess
import sys
from copy import deepcopy
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as t
import zoo
from safetensors.torch import load_file, save_file
from small_models import FFN, TOKENS, build as small

import headwise
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet, save_removed

GQA = {**FFN, "num_key_value_heads": 2, **TOKENS}
FAMILIES = {
    "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**GQA)),
    "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**GQA)),
    "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**GQA)),
    "qwen3": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**GQA, head_dim=8)),
    "gemma": lambda: t.GemmaForCausalLM(t.GemmaConfig(**GQA, head_dim=8)),
    "gemma2": lambda: t.Gemma2ForCausalLM(t.Gemma2Config(**GQA, head_dim=8)),
    "classifier": lambda: t.LlamaForSequenceClassification(
        t.LlamaConfig(**{**GQA, "num_key_value_heads": 4}, num_labels=3)
    ),
}
# a process that has no headwise
OPENING = """
import sys
sys.modules["headwise"] = None
import torch, transformers
from safetensors.torch import load_file, save_file
for folder, kind in zip(sys.argv[1::2], sys.argv[2::2]):
    model = getattr(transformers, kind).from_pretrained(folder)
    with torch.no_grad():
        save_file({"logits": model(**load_file(folder + "/inputs.st")).logits}, folder + "/logits.st")
"""


def enlivened(model: Any) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


@pytest.fixture
def seeded() -> None:
    torch.manual_seed(0)


def even_set(heads: Heads) -> HeadSet:
    """Half of the groups, other ones in each layer."""
    rng = np.random.default_rng(0)
    return heads.prunable_evenly(rng.normal(size=heads.shape), 0.5)


def test_evenly_pruned_models_open_without_headwise(tmp_path: Path, seeded: None) -> None:
    """Saved in either way, and opened by the Auto class in a process that cannot import headwise."""
    expected, arguments = {}, []
    for name, make in FAMILIES.items():
        model = enlivened(make())
        heads = Heads(model)
        gone = even_set(heads)
        smaller: Any = heads.remove(gone)
        folder = tmp_path / name
        if name in ("llama", "classifier"):
            smaller.save_pretrained(folder)
        else:
            save_removed(smaller, folder)
            assert (folder / "README.md").read_text().startswith("Open this folder with transformers:")
        inputs = {
            "input_ids": torch.randint(3, 50, (2, 7)),
            "attention_mask": torch.ones(2, 7, dtype=torch.long),
        }
        save_file(inputs, folder / "inputs.st")
        with torch.no_grad(), heads.silenced(gone):
            expected[name] = model(**inputs).logits
        with torch.no_grad():
            assert (model(**inputs).logits - expected[name]).abs().max() > 1e-3  # the heads did something
        kind = "AutoModelForSequenceClassification" if name == "classifier" else "AutoModelForCausalLM"
        arguments += [str(folder), kind]
        assert json.loads((folder / "config.json").read_text())["headwise_removed"] == [
            [list(head) for head in gone]
        ]
    subprocess.run([sys.executable, "-c", OPENING, *arguments], check=True, capture_output=True)
    for name in FAMILIES:
        torch.testing.assert_close(
            load_file(tmp_path / name / "logits.st")["logits"], expected[name], rtol=1e-4, atol=1e-5
        )


def test_an_ordinary_model_is_like_any_other(tmp_path: Path, seeded: None) -> None:
    model = enlivened(FAMILIES["llama"]())
    for parameter in model.parameters():
        # As from_pretrained does: the rotary frequencies stay as they are
        parameter.data = parameter.data.to(torch.bfloat16)
    model.model.embed_tokens.weight.requires_grad_(False)
    heads = Heads(model)
    smaller: Any = heads.remove(even_set(heads))
    assert type(smaller) is type(model)
    assert (
        smaller.config.num_attention_heads,
        smaller.config.num_key_value_heads,
        smaller.config.head_dim,
    ) == (2, 1, 8)
    assert (model.config.num_attention_heads, model.config.num_key_value_heads) == (4, 2)
    assert next(smaller.parameters()).dtype == torch.bfloat16
    assert not smaller.model.embed_tokens.weight.requires_grad
    save_removed(smaller, tmp_path)
    loaded = headwise.load(tmp_path)
    with torch.no_grad():
        assert torch.equal(loaded(**heads.example).logits, smaller(**heads.example).logits)
    # A layer without heads: only headwise opens that
    at_once: Any = Heads(smaller).remove(HeadSet([(0, 0), (0, 1)]))
    at_once.save_pretrained(tmp_path / "uneven")
    again = headwise.load(tmp_path / "uneven")
    with torch.no_grad():
        assert torch.equal(again(**heads.example).logits, at_once(**heads.example).logits)


def test_layers_of_different_sizes_where_the_family_can_say_so(tmp_path: Path, seeded: None) -> None:
    """transformers' per_layer_config counts only where a model built from it is the same: Llama's code does
    not read it."""
    heads = Heads(enlivened(FAMILIES["llama"]()))
    smaller: Any = heads.remove(HeadSet([(0, 0), (0, 1)]))
    assert smaller.config.num_attention_heads == 4
    smaller.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        t.AutoModelForCausalLM.from_pretrained(tmp_path)

    step: Any = zoo.build("step3p7").language_model  # whose code does
    heads = Heads(step)
    first = HeadSet([(0, 0), (0, 1)])
    uneven: Any = heads.remove(first)
    uneven.save_pretrained(tmp_path / "step")
    opened = type(step).from_pretrained(tmp_path / "step")
    assert [layer.num_attention_heads for layer in opened.config.per_layer_config] == [2, 4]
    second: Any = Heads(opened).remove(HeadSet([(1, 2), (1, 3)]))
    second.save_pretrained(tmp_path / "again")
    for found, gone in (
        (opened, first),
        (type(step).from_pretrained(tmp_path / "again"), first | HeadSet([(1, 2), (1, 3)])),
    ):
        with torch.no_grad(), heads.silenced(gone):
            expected = step(**heads.example)[0]
        with torch.no_grad():
            torch.testing.assert_close(found(**heads.example)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_save_pretrained_of_other_models_writes_what_headwise_opens(family: str, tmp_path: Path) -> None:
    heads = Heads(small(family))
    # A copy saves itself, not what it is a copy of
    smaller: Any = deepcopy(heads.remove(HeadSet([(0, 1), (1, 1)])))
    with torch.no_grad():
        next(smaller.parameters()).add_(1)
    smaller.save_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(headwise.load(tmp_path)(**heads.example)[0], smaller(**heads.example)[0])
    readme = (tmp_path / "README.md").read_text()
    assert readme.startswith("Open this folder with headwise")
    assert ".from_pretrained(folder, trust_remote_code=True)" in readme
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        t.AutoModel.from_pretrained(tmp_path)
    with pytest.raises(HeadwiseError, match=r"headwise\.push_to_hub"):
        smaller.save_pretrained(tmp_path, push_to_hub=True)
    with torch.no_grad():
        zeros = {name: torch.zeros_like(tensor) for name, tensor in smaller.state_dict().items()}
    smaller.save_pretrained(tmp_path / "given", state_dict=zeros)
    assert all(not tensor.any() for tensor in headwise.load(tmp_path / "given").state_dict().values())


@pytest.mark.parametrize(
    ("groups", "fraction", "count"), [(4, 0.5, 2), (4, 0.3, 1), (2, 0.5, 1), (4, 0.76, 3)]
)
def test_the_even_choice_is_the_least_of_all_even_sets(
    groups: int, fraction: float, count: int, seeded: None
) -> None:
    heads = Heads(t.LlamaModel(t.LlamaConfig(**{**GQA, "num_key_value_heads": groups})).eval())
    scores = np.random.default_rng(groups).normal(size=(2, 4))
    width = 4 // groups
    best = min(
        product(combinations(range(groups), count), repeat=2),
        key=lambda chosen: sum(
            scores[layer, g * width + i] for layer in (0, 1) for g in chosen[layer] for i in range(width)
        ),
    )
    expected = HeadSet((layer, g * width + i) for layer in (0, 1) for g in best[layer] for i in range(width))
    assert heads.prunable_evenly(scores, fraction) == expected


def test_even_choices_of_shared_and_unlike_layers() -> None:
    albert = Heads(small("albert"))
    scores = np.random.default_rng(0).normal(size=(3, 4))
    assert albert.prunable_evenly(scores, 0.25) == HeadSet(
        (layer, int(scores.sum(0).argmin())) for layer in range(3)
    )
    albert.remove(albert.prunable_evenly(scores, 0.25))
    with pytest.raises(HeadwiseError, match="none can go without the whole layer"):
        Heads(small("falcon-mqa")).prunable_evenly(np.ones((2, 4)), 0.5)
    with pytest.raises(HeadwiseError, match=r"give at least 0\.25"):
        albert.prunable_evenly(scores, 0.2)
    with pytest.raises(HeadwiseError, match="3 layers of 4 heads"):
        albert.prunable_evenly(scores[:2], 0.5)
    scores[1, 2] = np.nan
    with pytest.raises(HeadwiseError, match=r"head \(1, 2\) is nan"):
        albert.prunable_evenly(scores, 0.5)
