"""Steering, against vectors added by hand to one row's projection inputs; and baked models, loaded by plain
transformers."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t
from small_models import FFN, TOKENS, build
from test_patching import gemma2
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.heads import Heads, UnsupportedModel

IDS = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(0))
LEFT = torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6, [0, 1, 1, 1, 1, 1]])
NEW: dict[str, Any] = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
G = torch.Generator().manual_seed(1)
DIRECTIONS = {
    (0, 1): torch.randn(8, generator=G),
    (1, 3): torch.randn(8, generator=G),
    (1, 0): torch.randn(8, generator=G),
}


def opt() -> Any:
    config = t.OPTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=24,
        vocab_size=50,
        max_position_embeddings=64,
        **TOKENS,
    )
    return t.OPTForCausalLM(config)


def bart() -> Any:
    sizes = {
        f"{side}_{name}": n
        for side in ("encoder", "decoder")
        for name, n in (("layers", 1), ("attention_heads", 4))
    }
    config = t.BartConfig(
        d_model=32,
        vocab_size=50,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        **sizes,
        forced_eos_token_id=None,
        pad_token_id=0,
    )
    return t.BartForConditionalGeneration(config)


OTHERS = {
    "gemma2": gemma2,
    "opt": opt,
    "bart-lm": bart,
    "mistral": lambda: t.MistralForCausalLM(
        t.MistralConfig(**FFN, num_key_value_heads=2, head_dim=8, **TOKENS)
    ),
    "qwen3": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**FFN, num_key_value_heads=2, head_dim=8, **TOKENS)),
}


def made(family: str) -> Any:
    if family not in OTHERS:
        return build(family)
    torch.manual_seed(0)
    model = OTHERS[family]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def by_hand(heads: Heads, ids: Tensor, columns: list[int]) -> Tensor:
    """One row's logits with twice the directions added at some columns."""

    def adding(layer: int) -> Any:
        def hook(module: Any, args: Any) -> Any:
            x = args[0].clone()
            for (at, head), vector in DIRECTIONS.items():
                if at == layer:
                    for column in columns:
                        x[0, column, head * 8 : head * 8 + 8] += 2 * vector
            return (x, *args[1:])

        return hook

    with ExitStack() as stack, torch.no_grad():
        for site in heads.sites:
            stack.callback(
                heads.model.get_submodule(site.path).register_forward_pre_hook(adding(site.index)).remove
            )
        return heads.model(ids, use_cache=False).logits


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("tokens", ["all", "last", "generated"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2"])
def test_generation_with_left_padding(family: str, tokens: str, cached: bool) -> None:
    heads = Heads(made(family))
    with heads.steered(DIRECTIONS, scale=2.0, tokens=tokens):
        out = heads.model.generate(
            IDS,
            attention_mask=LEFT,
            output_logits=True,
            return_dict_in_generate=True,
            use_cache=cached,
            **NEW,
        )
    for row in range(3):
        real = int(LEFT[row].sum())
        prompt = IDS[row, 6 - real :]
        for step in range(4):
            ids = torch.cat((prompt, out.sequences[row, 6 : 6 + step]))[None]
            first = {"all": 0, "last": real - 1, "generated": real}[tokens]
            expected = by_hand(heads, ids, list(range(first, ids.shape[1])))
            torch.testing.assert_close(out.logits[step][row], expected[0, -1], rtol=1e-4, atol=2e-5)
    plain = heads.model.generate(
        IDS, attention_mask=LEFT, output_logits=True, return_dict_in_generate=True, **NEW
    )
    assert (plain.logits[0] - out.logits[0]).abs().max() > 1e-3 or tokens == "generated"
    assert (plain.logits[1] - out.logits[1]).abs().max() > 1e-3


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_last_token_of_a_plain_pass(side: str) -> None:
    heads = Heads(made("llama"))
    mask = LEFT if side == "left" else LEFT.flip(1)
    with torch.no_grad(), heads.steered(DIRECTIONS, scale=2.0, tokens="last"):
        out = heads.model(IDS, attention_mask=mask).logits
    for row in range(3):
        real = mask[row].bool()
        expected = by_hand(heads, IDS[row][real][None], [int(real.sum()) - 1])
        torch.testing.assert_close(out[row][real], expected[0], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    "family", ["gpt2", "llama", "gemma2", "opt", "bart-lm", "neox", "qwen3", "falcon-gqa"]
)
def test_a_baked_model_is_an_ordinary_one_and_generates_what_steering_does(
    family: str, tmp_path: Path
) -> None:
    model = made(family)
    heads = Heads(model)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    with heads.steered(DIRECTIONS, scale=2.0):
        expected = model.generate(
            IDS, attention_mask=LEFT, output_logits=True, return_dict_in_generate=True, **NEW
        )
    baked: Any = heads.bake(DIRECTIONS, scale=2.0)
    baked.save_pretrained(tmp_path)
    loaded, problems = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(problems[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ours = loaded.eval().generate(
        IDS, attention_mask=LEFT, output_logits=True, return_dict_in_generate=True, **NEW
    )
    assert torch.equal(ours.sequences, expected.sequences)
    plain = model.generate(IDS, attention_mask=LEFT, output_logits=True, return_dict_in_generate=True, **NEW)
    for baked_step, steered_step, intact in zip(ours.logits, expected.logits, plain.logits, strict=True):
        torch.testing.assert_close(baked_step, steered_step, rtol=1e-4, atol=1e-4)
        assert (baked_step - intact).abs().max() > 1e-2
    assert Heads(loaded).shape == heads.shape
    assert model.state_dict().keys() == weights.keys()  # the model itself is as it was
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_directions_as_a_tensor_and_a_scale_per_head() -> None:
    heads = Heads(made("gpt2"))
    table = torch.zeros(2, 4, 8)
    for (layer, head), vector in DIRECTIONS.items():
        table[layer, head] = vector
    with torch.no_grad():
        with heads.steered(DIRECTIONS, scale=3.0):
            expected = heads.model(IDS).logits
        for directions, scale in ((table, 3.0), (table, torch.full((2, 4), 3.0)), (3 * table, 1.0)):
            with heads.steered(directions, scale):
                torch.testing.assert_close(heads.model(IDS).logits, expected)
    learnt = table.requires_grad_()
    with heads.steered(learnt, tokens="last"):
        heads.model(IDS).logits.sum().backward()
    assert learnt.grad is not None
    assert learnt.grad.abs().sum() > 0


def test_bf16_keeps_its_type_in_generation() -> None:
    heads = Heads(made("llama").to(torch.bfloat16))
    for tokens in ("all", "last", "generated"):
        with heads.steered(DIRECTIONS, tokens=tokens), heads.recorded("last", attention="last") as tape:
            out = heads.model.generate(
                IDS, attention_mask=LEFT, output_logits=True, return_dict_in_generate=True, **NEW
            )
        assert out.sequences.shape == (3, 12)
        assert tape.outputs.dtype == torch.bfloat16


@pytest.mark.parametrize("family", ["mistral", "t5"])
def test_families_without_a_bias_are_refused(family: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"no bias in .* use heads\.steered\(directions\)"):
        Heads(made(family)).bake(DIRECTIONS)


def test_what_does_not_fit_says_so() -> None:
    heads = Heads(made("gpt2"))
    wrong: list[tuple[str, Any, dict[str, Any]]] = [
        ("tokens is one of", DIRECTIONS, {"tokens": "first"}),
        (r"has shape \(7,\); expected \(8,\)", {(0, 0): torch.ones(7)}, {}),
        ("is not in this", {(2, 0): torch.ones(8)}, {}),
        (r"tensor \(2, 4, 8\) for this model; got shape \(2, 4\)", torch.ones(2, 4), {}),
        ("got list", [1.0], {}),
        ("all directions are zero", torch.zeros(2, 4, 8), {}),
        ("not a finite number", torch.full((2, 4, 8), float("nan")), {}),
        ("one per head", DIRECTIONS, {"scale": torch.ones(3)}),
        ("no pass inside this block had a token to steer at", DIRECTIONS, {"tokens": "generated"}),
    ]
    for message, directions, options in wrong:
        with (
            pytest.raises(HeadwiseError, match=message),
            torch.no_grad(),
            heads.steered(directions, **options),
        ):
            heads.model(IDS)
    with pytest.raises(HeadwiseError, match="outside the `with` block"), heads.steered(DIRECTIONS):
        heads.bake(DIRECTIONS)
    with pytest.raises(HeadwiseError, match="share"):
        Heads(build("albert")).bake(DIRECTIONS)
    pair = Heads(made("bart-lm"))
    with (
        pytest.raises(HeadwiseError, match="belongs to the encoder"),
        pair.steered(DIRECTIONS, tokens="generated"),
    ):
        pair.model.generate(IDS, **NEW)
