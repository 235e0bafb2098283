"""Small models, a small tokenizer and small tasks for the tests of training; also imported by processes the tests start."""

from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

from headwise.models import MultiTaskModel
from headwise.tasks import Task
from headwise.training import Train

WORDS = [
    "good",
    "fine",
    "nice",
    "great",
    "bad",
    "poor",
    "awful",
    "sad",
    "cat",
    "dog",
    "tree",
    "car",
    "sun",
    "rain",
    "hill",
    "lake",
    "red",
    "blue",
    "green",
    "grey",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 16},
    "gpt2": {"n_positions": 64},
    "llama": {"num_key_value_heads": 2},
}


def tokenizer() -> Any:
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = dict(
        zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True)
    )
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=64, eos_token="[SEP]", **names)


def encoder(family: str = "bert", dropout: float = 0.1, layers: int = 2, seed: int = 0) -> Any:
    """A random model of 2 layers × 4 heads × 8."""
    torch.manual_seed(seed)
    size = {
        "hidden_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "vocab_size": 25,
        "pad_token_id": 0,
    }
    size |= {} if family == "gpt2" else {"intermediate_size": 64, "max_position_embeddings": 64}
    drops = {"attention_dropout": dropout} if family == "llama" else {"hidden_dropout_prob": dropout}
    drops |= {"attention_probs_dropout_prob": dropout} if family in ("bert", "deberta-v2") else {}
    drops = (
        {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout} if family == "gpt2" else drops
    )
    config = AutoConfig.for_model(family, **size, **drops, **FAMILIES.get(family, {}))
    return AutoModel.from_config(config)


def texts(n: int, seed: int) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, draw.integers(2, 12))) for _ in range(n)]


def task(name: str = "mood", n: int = 60, seed: int = 0) -> Task:
    """mood: whether good words outnumber bad ones; animal: whether there is a cat or a dog; warmth: share of good words (a number);
    same: whether two texts have the same first word."""
    splits = {}
    for i, split in enumerate(("train", "validation")):
        found = texts(2 * n, 100 * seed + i)
        rows: list[tuple[Any, ...]] = []
        for text, other in zip(found[:n], found[n:], strict=True):
            words = text.split()
            good, bad = sum(w in WORDS[:4] for w in words), sum(w in WORDS[4:8] for w in words)
            if name == "mood":
                rows.append((text, "up" if good > bad else "down"))
            elif name == "animal":
                rows.append((text, "yes" if {"cat", "dog"} & set(words) else "no"))
            elif name == "warmth":
                rows.append((text, good / len(words)))
            else:
                rows.append((text, other, "same" if words[0] < other.split()[0] else "other"))
        splits[split] = rows
    text_columns = ("text", "other") if name == "same" else ("text",)
    return Task(name, data=splits, text=text_columns, kind="number" if name == "warmth" else "classes")


def model(
    tasks: list[Task], family: str = "bert", dropout: float = 0.1, seed: int = 0, layers: int = 2
) -> MultiTaskModel:
    base = encoder(family, dropout, layers, seed)
    return MultiTaskModel(base, tokenizer(), tasks)


def settings(**changes: Any) -> Train:
    """Two epochs of small batches at a rate at which weights move visibly."""
    quick = {"epochs": 2, "batch_size": 16, "learning_rate": 1e-3, "quiet": True, "device": "cpu"}
    return Train().with_changes(**{**quick, **changes})


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def assert_identical(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    differing = [name for name in one if not torch.equal(one[name], other[name])]
    assert not differing, f"{len(differing)} of {len(one)} tensors differ, e.g. {differing[:3]}"
