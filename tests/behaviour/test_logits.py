"""Direct logit effects: they sum to the logits, and a head's own equals what its output does when all else is held fixed."""

from typing import Any

import numpy as np
import pytest
import torch
from circuit import circuit
from small import build, tokenizer

import headwise as hw
from headwise.behaviour import direct_logits

IDS = torch.randint(5, 50, (3, 7), generator=torch.Generator().manual_seed(1))


def inputs(family: str) -> dict[str, Any]:
    return {"input_ids": IDS, **({"decoder_input_ids": IDS[:, :5]} if family == "t5" else {})}


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma", "neox", "t5"])
def test_contributions_sum_to_the_logits(family: str) -> None:
    model = build(family)
    columns, plus, minus = torch.tensor([[4, 1], [2, 3], [0, 4]]), IDS[:, :2], IDS[:, 2:4]
    found = direct_logits(hw.Heads(model), inputs(family), columns, plus, minus)
    with torch.no_grad():
        logits = model(**inputs(family)).logits.double()[torch.arange(3)[:, None], columns]
    expected = logits.gather(-1, plus[..., None]) - logits.gather(-1, minus[..., None])
    torch.testing.assert_close(found.total, expected[..., 0], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(found.sum, expected[..., 0], atol=2e-4, rtol=1e-4)
    mean = direct_logits(hw.Heads(model), inputs(family), columns, plus)
    torch.testing.assert_close(
        mean.sum, (logits.gather(-1, plus[..., None])[..., 0] - logits.mean(-1)), atol=2e-4, rtol=1e-4
    )
    if family == "t5":
        assert found.heads[:, :, :2].isnan().all()  # the encoder has no direct path
        assert not found.heads[:, :, 2:].isnan().any()


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma"])
def test_a_heads_contribution_is_its_slice_of_w_o_through_the_fixed_norm(family: str) -> None:
    """By hand: z W_O of the head, the norm's statistics taken from the whole stream."""
    model, heads = build(family), None
    heads = hw.Heads(model)
    columns, plus, minus = torch.full((3, 1), 6), IDS[:, :1], IDS[:, 1:2]
    found = direct_logits(heads, inputs(family), columns, plus, minus)
    norm = model.transformer.ln_f if family == "gpt2" else model.model.norm
    stream: list[torch.Tensor] = []
    handle = norm.register_forward_hook(lambda module, args, output: stream.append(args[0][:, -1]))
    with torch.no_grad(), heads.recorded("last") as tape:
        model(IDS)
    handle.remove()
    (r,) = stream
    for layer in range(2):
        for head in range(4):
            z = tape.outputs[:, layer, head]  # (3, 8)
            if family == "gpt2":
                part = z @ model.transformer.h[layer].attn.c_proj.weight[8 * head : 8 * head + 8]
                part = (
                    (part - part.mean(-1, keepdim=True))
                    / (r.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
                    * norm.weight
                )
            else:
                part = z @ model.model.layers[layer].self_attn.o_proj.weight.T[8 * head : 8 * head + 8]
                scale = 1 + norm.weight if family == "gemma" else norm.weight
                part = part / (r.square().mean(-1, keepdim=True) + model.config.rms_norm_eps).sqrt() * scale
            own = part @ model.lm_head.weight.T
            expected = own.gather(1, plus) - own.gather(1, minus)
            torch.testing.assert_close(
                found.heads[:, :, layer, head], expected.detach().double(), atol=1e-4, rtol=1e-3
            )


def test_the_role_is_the_mean_over_the_second_half() -> None:
    model = build("llama")
    found = hw.roles(
        model, tokenizer("left"), roles=["direct-logit"], sequences=3, repeated=5, batch_size=2, quiet=True
    )
    rng = np.random.default_rng(0)
    halves = [rng.choice(np.arange(3, 50), 5, replace=False).tolist() for _ in range(3)]
    heads, parts = hw.Heads(model), []
    for half in halves:
        row = torch.tensor([[1, *half, *half]])
        one = direct_logits(heads, {"input_ids": row}, torch.tensor([[6, 7, 8, 9]]), row[:, 7:11])
        parts.append(one.heads[0].mean(0))
    np.testing.assert_allclose(found[0], torch.stack(parts).mean(0), atol=1e-5)
    assert (found["chance"] == 0).all()


def test_the_planted_head_writes_the_answer_and_models_with_norms_behind_are_refused() -> None:
    found = hw.roles(circuit(), tokenizer(), roles=["direct-logit"], sequences=3, repeated=10, quiet=True)
    assert np.unravel_index(int(np.argmax(found[0].values)), (2, 3)) == (1, 1)
    for family in ("bert", "bart"):
        said = hw.roles(build(family), tokenizer(), roles=["direct-logit"], repeated=5, quiet=True)
        assert np.isnan(said).all()
        assert said.attrs["notes"]["direct-logit"]
