"""Eigenvalue and composition scores against matrices formed whole; a circuit made by hand is found."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from circuit import circuit
from small import build, tokenizer
from torch import Tensor

import headwise as hw
from headwise.behaviour import compositions

WEIGHTS = ["copying", "matching", "q-composition", "k-composition", "v-composition"]


def matrices(family: str, model: Any) -> list[list[tuple[Tensor, ...]]]:
    """(W_Q, W_K, W_V, W_O) of every head of each layer, taken by hand from the family's own layout; heads of 8."""
    found = []
    if family == "gpt2":
        for block in model.transformer.h:
            query, key, value = block.attn.c_attn.weight.T.split(32)
            out = block.attn.c_proj.weight.T
            found.append(
                [
                    (*(w[8 * h : 8 * h + 8] for w in (query, key, value)), out[:, 8 * h : 8 * h + 8])
                    for h in range(4)
                ]
            )
    elif family == "neox":
        for block in model.gpt_neox.layers:
            fused, out = (
                block.attention.query_key_value.weight.view(4, 3, 8, 32),
                block.attention.dense.weight,
            )
            found.append([(*fused[h], out[:, 8 * h : 8 * h + 8]) for h in range(4)])
    else:
        if family in ("llama", "gemma"):
            parts = [tuple(getattr(b.self_attn, f"{n}_proj") for n in "qkvo") for b in model.model.layers]
        elif family == "bert":
            parts = [
                (
                    b.attention.self.query,
                    b.attention.self.key,
                    b.attention.self.value,
                    b.attention.output.dense,
                )
                for b in model.bert.encoder.layer
            ]
        else:
            layers = [b.layer[0].SelfAttention for b in model.encoder.block]
            layers += [
                a for b in model.decoder.block for a in (b.layer[0].SelfAttention, b.layer[1].EncDecAttention)
            ]
            parts = [(a.q, a.k, a.v, a.o) for a in layers]
        for query, key, value, out in parts:
            share = 4 * 8 // key.weight.shape[0]  # heads of a group
            rows = [(h, h // share, h // share) for h in range(4)]
            found.append(
                [
                    (
                        *(
                            w.weight[8 * i : 8 * i + 8]
                            for w, i in zip((query, key, value), places, strict=True)
                        ),
                        out.weight[:, 8 * places[0] : 8 * places[0] + 8],
                    )
                    for places in rows
                ]
            )
    return [[tuple(w.detach().double() for w in head) for head in layer] for layer in found]


def ratio(matrix: Tensor) -> float:
    values = torch.linalg.eigvals(matrix)
    return float(values.sum().real / values.abs().sum())


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma", "neox", "bert", "t5"])
def test_scores_are_those_of_whole_matrices(family: str) -> None:
    model = build(family)
    found = hw.roles(model, tokenizer(), roles=WEIGHTS, quiet=True)
    embedding = model.get_input_embeddings().weight.detach().double()  # (words, width)
    unembedding = model.get_output_embeddings().weight.detach().double()
    layers = matrices(family, model)
    for layer, heads in enumerate(layers):
        for head, (query, key, value, out) in enumerate(heads):
            copying = ratio(unembedding @ (out @ value) @ embedding.T)
            assert float(found.sel(role="copying")[layer, head]) == pytest.approx(copying, abs=1e-6)
            matching = ratio(embedding @ (query.T @ key) @ embedding.T)
            assert float(found.sel(role="matching")[layer, head]) == pytest.approx(matching, abs=1e-6)
    # sites of T5: encoder 0, 1; then decoder self 2, cross 3, self 4, cross 5
    reads: dict[int, dict[str, list[int]]] = {1: {"q": [0], "k": [0], "v": [0]}}
    if family == "t5":
        reads |= {
            3: {"q": [2], "k": [0, 1], "v": [0, 1]},
            4: {"q": [2, 3], "k": [2, 3], "v": [2, 3]},
            5: {"q": [2, 3, 4], "k": [0, 1], "v": [0, 1]},
        }
    pairs = compositions(hw.Heads(model))
    for layer in range(len(layers)):
        for number, kind in enumerate("qkv"):
            earlier = reads.get(layer, {}).get(kind, [])
            known = found.sel(role=f"{kind}-composition")[layer]
            if not earlier:
                assert np.isnan(known).all()
            for head in range(4) if earlier else ():
                query, key, value, out = layers[layer][head]
                ours = {"q": key.T @ query, "k": query.T @ key, "v": out @ value}[kind]
                slow = {
                    (one, other): float((ours @ theirs).norm() / (ours.norm() * theirs.norm()))
                    for one in earlier
                    for other in range(4)
                    for theirs in [layers[one][other][3] @ layers[one][other][2]]
                }
                for (one, other), value_ in slow.items():
                    assert float(pairs[number, layer, head, one, other]) == pytest.approx(value_, rel=1e-6)
                assert float(known[head]) == pytest.approx(max(slow.values()), rel=1e-6)
    assert np.isnan(pairs[:, 0]).all()


def test_random_weights_score_chance() -> None:
    """Of random matrices compositions are as large as after a random rotation: their mean is near the chance level."""
    found = [hw.roles(build("llama", seed), tokenizer(), roles=WEIGHTS, quiet=True) for seed in range(6)]
    for role in WEIGHTS[2:]:
        values = np.mean([float(one.sel(role=role)[1].mean()) for one in found])
        levels = np.mean([float(one["chance"].sel(role=role)[1]) for one in found])
        assert values == pytest.approx(levels, rel=0.1)
    assert abs(np.mean([one.sel(role="copying").values for one in found])) < 0.15


def test_a_circuit_made_by_hand_is_found(tmp_path: Path) -> None:
    model = circuit()
    out = tmp_path / "roles"
    found = hw.roles(
        model, tokenizer(), repeated=20, sequences=4, texts=["w3 w4 w5 w3 w4"], out=out, quiet=True
    )
    first = {"previous-token": (0, 0), "induction": (1, 1), "k-composition": (1, 1), "copying": (1, 1)}
    for role, head in first.items():
        scores = found.sel(role=role).values
        assert np.unravel_index(np.nanargmax(scores), scores.shape) == head, role
    assert float(found.sel(role="previous-token")[0, 0]) > 0.9
    assert float(found.sel(role="induction")[1, 1]) > 0.45  # half of the queries have something to complete
    assert float(found.sel(role="induction")[1, 1]) > 10 * float(found["chance"].sel(role="induction")[1])
    assert float(found.sel(role="copying")[1, 1]) > 0.99
    pairs = compositions(hw.Heads(model)).sel(composition="k-composition")[1, 1, 0]
    assert int(np.argmax(pairs.values)) == 0
    again = hw.load(out)
    assert again.dims == ("role", "layer", "head")
    np.testing.assert_array_equal(again, found)
    np.testing.assert_array_equal(again["chance"], found["chance"])
    assert again.attrs == found.attrs
    assert list(again["kind"].values) == ["self", "self"]


def test_a_model_without_unembedding_says_why_copying_is_missing() -> None:
    found = hw.roles(build("gpt2").transformer, tokenizer(), roles=["copying", "matching"], quiet=True)
    assert np.isnan(found.sel(role="copying")).all()
    assert "no unembedding" in found.attrs["notes"]["copying"]
    assert not np.isnan(found.sel(role="matching")).any()
