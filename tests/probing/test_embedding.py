"""Head embeddings: right values, layers above never computed, saved and reloaded both ways; and models fine-tuned from them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from test_recording import by_hand, tiny
from transformers import AlbertConfig, AlbertModel

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.probing._early_exit import head_outputs, layer_output
from headwise.probing._embedding import HeadEmbedding
from headwise.probing._encoder import Encoder
from headwise.probing._finetuning import EmbeddedModel
from headwise.store._loading import load
from headwise.tasks import Task
from headwise.training import Train, TrainingRun, evaluate

CHOSEN = HeadSet([(0, 1), (1, 0)])
TEXTS = ["w0 w1 w2", "w3", "w4 w5 w6 w7 w8 w9 w10", "w2 w2"]


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pooling", ["cls", "last", "mean"])
def test_encode_equals_one_text_at_a_time(kind: str, side: str, pooling: str) -> None:
    model, tokenizer = tiny(kind, side)
    embedding = HeadEmbedding(model, CHOSEN, tokenizer, pooling)
    found = SentenceTransformer(modules=[embedding], device="cpu").encode(
        TEXTS, batch_size=3, show_progress_bar=False
    )
    assert found.shape == (4, embedding.get_embedding_dimension()) == (4, 16)
    for row, text in zip(found, TEXTS, strict=True):
        heads, _ = by_hand(model, tokenizer, text, pooling)
        np.testing.assert_allclose(row, np.concatenate([heads[0, 1], heads[1, 0]]), atol=2e-5)
    np.testing.assert_allclose(embedding.encode(TEXTS), found, atol=1e-6)
    assert embedding.encode("w1 w2").shape == (16,)


def count_layers(model: Any) -> list[int]:
    called: list[int] = []
    for number, layer in enumerate(model.encoder.layer):
        layer.register_forward_hook(lambda m, a, o, number=number: called.append(number))
        layer.intermediate.register_forward_hook(lambda m, a, o, number=number: called.append(10 + number))
    return called


def test_layers_above_the_highest_head_are_not_computed() -> None:
    model, tokenizer = tiny("bert")
    called = count_layers(model)
    low = HeadEmbedding(model, HeadSet([(0, 0), (0, 1)]), tokenizer)
    assert low.layers == 1
    called.clear()
    low.encode(TEXTS)
    assert called == []  # the pass ended inside layer 0, before its feed-forward block
    both = HeadEmbedding(model, CHOSEN, tokenizer)
    called.clear()
    both.encode(TEXTS)
    assert set(called) == {0, 10}
    before = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).last_hidden_state
    low.encode(TEXTS)
    after = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).last_hidden_state
    assert torch.equal(before, after)  # an ended pass leaves no trace


def test_shared_layers_end_at_the_right_call() -> None:
    _, tokenizer = tiny("bert")
    torch.manual_seed(0)
    model = AlbertModel(
        AlbertConfig(
            vocab_size=21,
            embedding_size=8,
            hidden_size=16,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=32,
        )
    ).eval()
    heads = Heads(model)
    inputs = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
    with torch.no_grad(), heads.recorded("cls", hidden=True) as tape:
        model(**inputs)
    chosen = HeadSet([(0, 1), (1, 0)])
    with torch.no_grad():
        found = head_outputs(heads, chosen, inputs, "cls")
        torch.testing.assert_close(found, torch.cat([tape.layer(0)[:, 1], tape.layer(1)[:, 0]], 1))
        torch.testing.assert_close(layer_output(heads, 1, inputs, "cls"), tape.hidden[:, 1])


@pytest.mark.parametrize("way", ["module", "sentence-transformers"])
def test_saving_and_reloading_both_ways(tmp_path: Path, way: str) -> None:
    model, tokenizer = tiny("bert")
    embedding = HeadEmbedding(model, CHOSEN, tokenizer, max_length=12)
    expected = embedding.encode(TEXTS)
    if way == "module":
        embedding.save(tmp_path)
    else:
        SentenceTransformer(modules=[embedding], device="cpu").save(str(tmp_path))
    ours = load(tmp_path)
    assert isinstance(ours, HeadEmbedding)
    assert (ours.head_set, ours.pooling, ours.max_seq_length) == (CHOSEN, "cls", 12)
    np.testing.assert_allclose(ours.encode(TEXTS), expected, atol=1e-6)
    theirs = SentenceTransformer(str(tmp_path), trust_remote_code=True, device="cpu")
    np.testing.assert_allclose(theirs.encode(TEXTS, show_progress_bar=False), expected, atol=1e-6)
    assert not list(tmp_path.rglob("*.bin"))


def test_long_texts_are_cut_and_prompts_are_put_before() -> None:
    model, tokenizer = tiny("bert")
    short = HeadEmbedding(model, CHOSEN, tokenizer, max_length=5)
    np.testing.assert_allclose(short.encode("w1 w2 w3 w4 w5 w6"), short.encode("w1 w2 w3 w9 w9"), atol=1e-6)
    whole = HeadEmbedding(model, CHOSEN, tokenizer)
    prompted = SentenceTransformer(modules=[whole], device="cpu").encode(
        ["w3"], prompt="w1 ", show_progress_bar=False
    )
    np.testing.assert_allclose(prompted[0], whole.encode("w1 w3"), atol=1e-6)


def test_wrong_heads_are_named() -> None:
    model, tokenizer = tiny("bert")
    with pytest.raises(HeadwiseError, match=r"head \(5, 0\) is not in this"):
        HeadEmbedding(model, HeadSet([(5, 0)]), tokenizer)
    with pytest.raises(HeadwiseError, match="at least one head"):
        HeadEmbedding(model, HeadSet(), tokenizer)


@pytest.fixture(scope="module")
def task() -> Task:
    rng = np.random.default_rng(0)
    rows = {}
    for split, size in (("train", 96), ("validation", 32), ("test", 32)):
        labels = rng.integers(0, 2, size)
        rows[split] = [
            (" ".join(rng.permutation([f"a{y}", *rng.choice([f"w{i}" for i in range(12)], 3)])), int(y))
            for y in labels
        ]
    return Task("a", data=rows, kind="classes", classes=["0", "1"])


@pytest.mark.parametrize("source", [CHOSEN, HeadSet([(0, 1)]), 0, 1])
def test_fine_tuning_from_heads_and_layers(task: Task, source: HeadSet | int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, tokenizer = tiny("bert")
    model.pooler.requires_grad_(True)
    embedded = EmbeddedModel(model, tokenizer, [task], source)
    frozen = [name for name, param in model.named_parameters() if not param.requires_grad]
    assert any(name.startswith("pooler") for name in frozen)
    assert any(name.startswith("encoder.layer.1.output") for name in frozen) == (source != 1)
    before = {name: param.clone() for name, param in model.named_parameters()}
    settings = Train(epochs=30, batch_size=32, learning_rate=1e-2, quiet=True, device="cpu")
    TrainingRun(embedded, [task], settings=settings).train()
    moved = {name for name, param in model.named_parameters() if not torch.equal(param, before[name])}
    assert not moved & set(frozen)
    assert "embeddings.word_embeddings.weight" in moved
    score = evaluate(embedded, task, split="test").score
    assert score > 0.9
    embedded.save(tmp_path)
    again = load(tmp_path)
    assert evaluate(again, task, split="test").score == score
    assert again.source == source


def test_states_equal_recorded_ones(task: Task) -> None:
    model, tokenizer = tiny("bert")
    encoder = Encoder.of(model, tokenizer)
    inputs = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
    embedded = EmbeddedModel(model, tokenizer, [task], CHOSEN)
    with torch.no_grad(), encoder.heads.recorded("all") as tape:
        model(**inputs)
    torch.testing.assert_close(
        embedded._read(inputs), torch.cat([tape.layer(0)[:, :, 1], tape.layer(1)[:, :, 0]], -1)
    )


def test_wrong_sources_are_named(task: Task) -> None:
    model, tokenizer = tiny("bert")
    with pytest.raises(HeadwiseError, match="layer 7 is not in this model"):
        EmbeddedModel(model, tokenizer, [task], 7)
    tags = Task(
        "t", data={"train": [{"words": ["a"], "tags": ["X"]}] * 3}, text="words", label="tags", kind="tags"
    )
    with pytest.raises(HeadwiseError, match="embeddings are fine-tuned on"):
        EmbeddedModel(model, tokenizer, [tags], 0)


def test_a_model_with_heads_removed_is_probed_from_its_folder(tmp_path: Path) -> None:
    from headwise.heads._remove.files import save_removed
    from headwise.probing._encoder import Encoder

    model, tokenizer = tiny("bert")
    save_removed(Heads(model).remove(HeadSet([(0, 1)])), tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert Encoder.of(tmp_path).heads.sites[0].n_heads == 1
