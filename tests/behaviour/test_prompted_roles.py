"""Function vectors and retrieval against slow loops; planted heads come first."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from circuit import circuit
from small import build, tokenizer

import headwise as hw
from headwise.behaviour._vectors import prompts
from headwise.errors import HeadwiseError

PAIRS = [(f"w{i}", f"w{i + 20}") for i in range(3, 11)]


def projection(model: Any, layer: int) -> Any:
    return (
        model.transformer.h[layer].attn.c_proj
        if hasattr(model, "transformer")
        else model.model.layers[layer].self_attn.o_proj
    )


def test_prompts_have_the_papers_form_and_the_same_answers_in_another_order() -> None:
    for prompt in prompts(PAIRS, 4, 6, 0):
        shown = [block.split("\nA:") for block in prompt.right.split("\n\n")]
        mixed = [block.split("\nA:") for block in prompt.wrong.split("\n\n")]
        known = dict(PAIRS)
        assert all(known[question.removeprefix("Q: ")] == given.strip() for question, given in shown[:-1])
        assert [one[0] for one in shown] == [one[0] for one in mixed]
        assert sorted(one[1] for one in shown) == sorted(one[1] for one in mixed)
        assert known[shown[-1][0].removeprefix("Q: ")] == prompt.answer
    with pytest.raises(HeadwiseError, match="needs 9 pairs or more, and there are 8"):
        prompts(PAIRS, 8, 1, 0)


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma"])
def test_function_vectors_are_those_of_one_pass_per_head(family: str) -> None:
    model, words = build(family), tokenizer("left")
    found = hw.roles(
        model, words, roles=["function-vector"], pairs=PAIRS, shots=3, prompts=3, batch_size=2, quiet=True
    )
    asked = prompts(PAIRS, 3, 3, 0)
    kept: dict[int, torch.Tensor] = {}

    def run(text: str, patch: tuple[int, int, torch.Tensor] | None = None) -> torch.Tensor:
        def hook(layer: int) -> Any:
            def edit(module: Any, args: Any) -> Any:
                x = args[0].clone()
                kept[layer] = x[0, -1].clone()
                if patch is not None and patch[0] == layer:
                    x[0, -1, 8 * patch[1] : 8 * patch[1] + 8] = patch[2]
                return (x, *args[1:])

            return edit

        handles = [projection(model, layer).register_forward_pre_hook(hook(layer)) for layer in range(2)]
        with torch.no_grad():
            logits = model(torch.tensor([words(text)["input_ids"]])).logits[0, -1]
        for handle in handles:
            handle.remove()
        return logits.double().softmax(-1)

    outputs = []
    for prompt in asked:
        run(prompt.right)
        outputs.append(torch.stack([kept[0], kept[1]]))
    mean = torch.stack(outputs).mean(0).view(2, 4, 8)
    for layer in range(2):
        for head in range(4):
            change = []
            for prompt in asked:
                (token,) = words(prompt.answer, add_special_tokens=False)["input_ids"]
                change.append(
                    float(
                        run(prompt.wrong, (layer, head, mean[layer, head]))[token] - run(prompt.wrong)[token]
                    )
                )
            assert float(found[0, layer, head]) == pytest.approx(np.mean(change), abs=1e-6)


def drawn(count: int, size: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.choice(np.arange(3, 50), size, replace=False).tolist() for _ in range(count)]


@pytest.mark.parametrize("family", ["circuit", "gpt2", "llama", "gemma"])
def test_retrieval_is_that_of_greedy_decoding_with_whole_maps(family: str) -> None:
    model = circuit() if family == "circuit" else build(family)
    found = hw.roles(model, tokenizer(), roles=["retrieval"], sequences=3, quiet=True)
    heads = hw.Heads(model)
    scores = []
    for tokens in drawn(3, 38):
        row = [1, *tokens, *tokens[16:18]]
        needle = range(1 + 18, 1 + 22)
        got: dict[tuple[int, int], set[int]] = {}
        for _ in range(4):
            with torch.no_grad(), heads.recorded(attention=True) as tape:
                token = int(model(torch.tensor([row])).logits[0, -1].argmax())
            for layer, maps in enumerate(tape.attention):
                for head in range(maps.shape[1]):
                    place = int(maps[0, head, -1].argmax())
                    if place in needle and row[place] == token:
                        got.setdefault((layer, head), set()).add(token)
            row = [*row, token]
        one = np.zeros(heads.shape)
        for head, copied in got.items():
            one[head] = len(copied) / 4
        scores.append(one)
    np.testing.assert_allclose(found[0], np.mean(scores, axis=0), atol=1e-12)
    if family == "circuit":
        assert float(found[0, 1, 1]) == 1.0
        assert float(np.delete(found[0].values.ravel(), 4).max()) < 0.5
        assert 0 < float(found["chance"][0, 0]) < 0.05


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma"])
def test_query_retrieval_is_that_of_whole_maps(family: str) -> None:
    model, words = build(family), tokenizer("left")
    found = hw.roles(model, words, roles=["query-retrieval"], sequences=3, quiet=True)
    heads, scores = hw.Heads(model), []
    nothing = words("N/A", add_special_tokens=False)["input_ids"]
    for number, tokens in enumerate(drawn(3, 25)):
        text, gold = [1, *tokens[:24]], range(1 + 6 * number, 7 + 6 * number)
        both = []
        for query in (text[gold.start : gold.start + 3], nothing):
            with torch.no_grad(), heads.recorded(attention=True) as tape:
                model(torch.tensor([[*text, *query]]))
            both.append(
                np.stack(
                    [m[0, :, 25:, gold.start : gold.stop].sum(-1).mean(-1).numpy() for m in tape.attention]
                )
            )
        scores.append(both[0] - both[1])
    np.testing.assert_allclose(found[0], np.mean(scores, axis=0), atol=1e-6)


def test_prompts_of_ones_own_come_from_files(tmp_path: Path) -> None:
    model, words = circuit(), tokenizer()
    (tmp_path / "needles.csv").write_text(
        'context,needle,question\n"w3 w4 w5 w6 w7 w8 w9 w10","w6 w7 w8","w5"\n'
    )
    row = {"documents": ["w3 w4 w5", "w6 w7 w8"], "query": "w7", "gold": 1}
    (tmp_path / "documents.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "pairs.csv").write_text("input,answer\n" + "".join(f"{a},{b}\n" for a, b in PAIRS))
    files = {
        name: tmp_path / f"{name}.{end}"
        for name, end in (("needles", "csv"), ("documents", "jsonl"), ("pairs", "csv"))
    }
    names = ["function-vector", "retrieval", "query-retrieval"]
    found = hw.roles(model, words, roles=names, **files, shots=2, prompts=2, out=tmp_path / "out", quiet=True)
    assert (
        float(found.sel(role="retrieval")[1, 1]) == 1.0
    )  # w5 is followed by the needle, which the circuit completes
    assert not np.isnan(found).any()
    with torch.no_grad(), hw.Heads(model).recorded(attention=True) as tape:
        model(torch.tensor([[1, *range(3, 9), 7]]))
    with torch.no_grad(), hw.Heads(model).recorded(attention=True) as none:
        model(torch.tensor([[1, *range(3, 9), 0]]))  # "N/A" is unknown
    maps = tape.attention[1][0, 1, -1] - none.attention[1][0, 1, -1]
    assert float(found.sel(role="query-retrieval")[1, 1]) == pytest.approx(float(maps[4:7].sum()), abs=1e-6)
    files["pairs"].write_text("input,answer\n" + "".join(f"{b},{a}\n" for a, b in PAIRS))
    with pytest.raises(HeadwiseError, match="holds another result"):
        hw.roles(model, words, roles=names, **files, shots=2, prompts=2, out=tmp_path / "out", quiet=True)


def test_models_that_do_not_answer_prompts_say_so() -> None:
    for family, said in (("t5", "read by an encoder"), ("bert", "does not generate")):
        found = hw.roles(build(family), tokenizer(), roles=["retrieval", "function-vector"], quiet=True)
        assert np.isnan(found).all()
        assert said in found.attrs["notes"]["retrieval"]
    found = hw.roles(build("gpt2"), tokenizer(), roles=["function-vector"], quiet=True)
    assert "give pairs=" in found.attrs["notes"]["function-vector"]
    with pytest.raises(HeadwiseError, match="is not a part of its context"):
        hw.roles(build("gpt2"), tokenizer(), roles=["retrieval"], needles=[("w3 w4", "w9", "w3")], quiet=True)
