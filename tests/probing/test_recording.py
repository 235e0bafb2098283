"""Recordings against one text at a time, without padding, read by hooks of our own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

import planted
from headwise.errors import HeadwiseError
from headwise.probing._encoder import Encoder, with_random_weights
from headwise.probing._recorded import Recording
from headwise.probing._recording import record
from headwise.tasks import Examples


def tiny(kind: str, side: str = "right") -> tuple[Any, Any]:
    torch.manual_seed(0)
    tokenizer = planted.tokenizer()
    tokenizer.padding_side = side
    sizes = {"vocab_size": len(planted.WORDS)}
    if kind == "bert":
        config = BertConfig(
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=32,
            **sizes,
        )
        return BertModel(config).eval(), tokenizer
    return GPT2Model(GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, **sizes)).eval(), tokenizer


def texts(count: int = 23, seed: int = 0) -> list[tuple[str, ...]]:
    rng = np.random.default_rng(seed)
    return [(" ".join(rng.choice(planted.FILLERS, rng.integers(1, 12))),) for _ in range(count)]


def examples(pairs: bool = False) -> Examples:
    found = texts()
    return Examples(
        [(a[0], b[0]) for a, b in zip(found, texts(seed=1), strict=True)] if pairs else found,
        np.zeros(len(found), np.int64),
        "classes",
    )


def by_hand(model: Any, tokenizer: Any, text: str, pooling: str) -> tuple[np.ndarray, np.ndarray]:
    """Head outputs (layers, heads, dim) and hidden states (layers, width) of one text."""
    kept: list[torch.Tensor] = []
    blocks = (
        [layer.attention.output.dense for layer in model.encoder.layer]
        if isinstance(model, BertModel)
        else [b.attn.c_proj for b in model.h]
    )
    handles = [block.register_forward_pre_hook(lambda module, args: kept.append(args[0])) for block in blocks]
    states: list[torch.Tensor] = []
    layers = model.encoder.layer if isinstance(model, BertModel) else model.h
    handles += [
        layer.register_forward_hook(
            lambda m, a, out: states.append(out if isinstance(out, torch.Tensor) else out[0])
        )
        for layer in layers
    ]
    with torch.no_grad():
        model(**tokenizer(text, return_tensors="pt"))
    for handle in handles:
        handle.remove()

    def pick(x: torch.Tensor) -> torch.Tensor:
        return {"cls": x[0, 0], "last": x[0, -1], "mean": x[0].mean(0)}[pooling]

    return torch.stack([pick(x).view(2, 8) for x in kept]).numpy(), torch.stack(
        [pick(x) for x in states]
    ).numpy()


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pooling", ["cls", "last", "mean"])
def test_recording_equals_one_text_at_a_time(tmp_path: Path, kind: str, side: str, pooling: str) -> None:
    model, tokenizer = tiny(kind, side)
    encoder = Encoder.of(model, tokenizer, pooling)
    found = record(encoder, examples(), tmp_path, batch_size=5, dtype="float32", shard=10, quiet=True)
    heads = found.heads(list(found.all())).view(2, 2, 23, 8).numpy()
    for row, (text,) in enumerate(texts()):
        expected, states = by_hand(model, tokenizer, text, pooling)
        np.testing.assert_allclose(heads[:, :, row], expected, atol=2e-5)
        np.testing.assert_allclose(
            [found.hidden(layer)[0, row].numpy() for layer in range(2)], states, atol=2e-5
        )


def test_batch_size_and_shards_do_not_matter_and_half_precision_is_near(tmp_path: Path) -> None:
    encoder = Encoder.of(*tiny("bert"))
    reference = record(encoder, examples(), tmp_path / "a", batch_size=1, dtype="float32", quiet=True)
    other = record(encoder, examples(), tmp_path / "b", batch_size=9, shard=4, dtype="float32", quiet=True)
    half = record(encoder, examples(), tmp_path / "c", quiet=True)
    everything = list(reference.all())
    torch.testing.assert_close(reference.heads(everything), other.heads(everything), atol=1e-5, rtol=0)
    assert half.heads(everything).dtype == torch.float16
    torch.testing.assert_close(reference.heads(everything), half.heads(everything).float(), atol=2e-3, rtol=0)


def test_pairs_are_compared_or_read_together(tmp_path: Path) -> None:
    model, tokenizer = tiny("bert")
    encoder = Encoder.of(model, tokenizer)
    found = record(encoder, examples(pairs=True), tmp_path / "apart", dtype="float32", shard=10, quiet=True)
    assert found.sides == 2
    u, v = (by_hand(model, tokenizer, side[3][0], "cls")[0] for side in (texts(), texts(seed=1)))
    expected = np.concatenate([np.abs(u - v), u * v], axis=-1)
    np.testing.assert_allclose(
        found.heads(list(found.all())).view(2, 2, 23, 16)[:, :, 3], expected, atol=2e-5
    )
    assert found.hidden(1).shape == (1, 23, 32)
    together = record(
        encoder, examples(pairs=True), tmp_path / "together", pairs="together", dtype="float32", quiet=True
    )
    assert together.heads([(0, 0)]).shape == (1, 23, 8)


def test_embedding_concatenates_heads_in_order(tmp_path: Path) -> None:
    found = record(Encoder.of(*tiny("bert")), examples(), tmp_path, shard=10, quiet=True)
    one = found.embedding(found.all())
    assert one.shape == (1, 23, 32)
    torch.testing.assert_close(one[0, :, 8:16], found.heads([(0, 1)])[0])


def test_a_stopped_recording_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = tiny("bert")
    encoder = Encoder.of(model, tokenizer)
    own: Any = {
        "identity": "this model",
        "quiet": True,
    }  # known without asking the model, which a hook hangs on
    whole = record(encoder, examples(), tmp_path / "whole", shard=10, **own)
    passes = []
    handle = model.register_forward_hook(
        lambda *_: (
            passes.append(1) or (_ for _ in ()).throw(KeyboardInterrupt)
            if len(passes) == 2
            else passes.append(1)
        )
    )
    with pytest.raises(KeyboardInterrupt):
        record(encoder, examples(), tmp_path / "part", shard=10, batch_size=10, **own)
    handle.remove()
    assert [p.name for p in (tmp_path / "part").iterdir() if p.is_dir()] == ["shard-00000", "shard-00001"]
    with pytest.raises(HeadwiseError, match="not complete"):
        Recording(tmp_path / "part").heads([(0, 0)])
    done = record(encoder, examples(), tmp_path / "part", shard=10, batch_size=10, **own)
    torch.testing.assert_close(done.heads([(1, 1)]), whole.heads([(1, 1)]), atol=2e-3, rtol=0)


def test_another_recording_is_not_overwritten(tmp_path: Path) -> None:
    encoder = Encoder.of(*tiny("bert"))
    record(encoder, examples(), tmp_path, quiet=True)
    with pytest.raises(HeadwiseError, match="another model or other texts"):
        record(with_random_weights(encoder, 3), examples(), tmp_path, quiet=True)
    with pytest.raises(HeadwiseError, match="other settings"):
        record(encoder, examples(), tmp_path, hidden=False, quiet=True)


def test_values_that_do_not_fit_half_precision_are_refused(tmp_path: Path) -> None:
    model, tokenizer = tiny("bert")
    with torch.no_grad():
        model.encoder.layer[1].output.LayerNorm.weight.fill_(1e6)
    with pytest.raises(HeadwiseError, match="float32"):
        record(Encoder.of(model, tokenizer), examples(), tmp_path / "a", quiet=True)
    record(Encoder.of(model, tokenizer), examples(), tmp_path / "b", dtype="float32", quiet=True)


def test_the_model_is_left_as_it_was(tmp_path: Path) -> None:
    model, tokenizer = tiny("bert")
    model.train()
    state = torch.random.get_rng_state()
    record(Encoder.of(model, tokenizer), examples(), tmp_path, quiet=True)
    assert model.training
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(p.grad is None for p in model.parameters())


def test_positions_and_tokenizers(tmp_path: Path) -> None:
    model, tokenizer = tiny("gpt2")
    assert Encoder.of(model, tokenizer).pooling == "last"
    assert Encoder.of(tiny("bert")[0], tokenizer).pooling == "cls"
    assert isinstance(Encoder.of(Encoder.of(model, tokenizer), pooling="mean"), Encoder)
    with pytest.raises(HeadwiseError, match="pass tokenizer="):
        Encoder.of(model)
    with pytest.raises(HeadwiseError, match="pooling"):
        Encoder.of(model, tokenizer, "first")


def test_random_weights_differ_and_come_from_the_seed() -> None:
    encoder = Encoder.of(*tiny("bert"))
    state = torch.random.get_rng_state()
    one, two, three = (with_random_weights(encoder, seed) for seed in (0, 0, 1))
    assert torch.equal(state, torch.random.get_rng_state())
    weights = [e.model.encoder.layer[0].output.dense.weight for e in (one, two, three)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_folder_without_some_weights_is_the_same_model_each_time(tmp_path: Path) -> None:
    model, tokenizer = tiny("bert")
    model.save_pretrained(
        tmp_path / "model",
        state_dict={k: v for k, v in model.state_dict().items() if not k.startswith("pooler")},
    )
    tokenizer.save_pretrained(tmp_path / "model")
    one = record(Encoder.of(tmp_path / "model"), examples(), tmp_path / "run", quiet=True)
    torch.rand(3)
    two = record(
        Encoder.of(tmp_path / "model"), examples(), tmp_path / "run", quiet=True
    )  # would refuse another model
    assert torch.equal(one.heads([(1, 0)]), two.heads([(1, 0)]))


def test_manifest_is_plain_json(tmp_path: Path) -> None:
    record(Encoder.of(*tiny("bert")), examples(), tmp_path, quiet=True)
    assert json.loads((tmp_path / "recording.json").read_text())["pooling"] == "cls"
