"""Gates of rows and tokens meet exactly the rows and tokens they were made for; anything else is refused."""

from typing import Any

import pytest
import torch
import transformers as t
from small_models import build
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet

TOKENS = torch.randint(5, 50, (4, 6), generator=torch.Generator().manual_seed(0))
NEW = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}


def rows_of(heads: Heads, *leading: int) -> Tensor:
    return torch.rand(*leading, *heads.shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("leading", "said"),
    [
        ((8,), "gates for 8 rows met a pass of 4 rows"),
        ((2,), "gates for 2 rows met a pass of 4 rows"),
        ((1,), "gates for 1 rows met a pass of 4 rows"),
        ((6, 4), "gates for 6 rows met a pass of 4 rows"),  # (tokens, batch) swapped
        ((4, 3), "gates for 4 rows of 3 tokens met"),
    ],
)
@pytest.mark.parametrize("values", ["numbers", "truth"])
def test_other_rows_or_tokens_are_refused_with_both_numbers(
    leading: tuple[int, ...], said: str, values: str
) -> None:
    heads = Heads(build("bert"))
    gates = rows_of(heads, *leading)
    with (
        pytest.raises(HeadwiseError, match=said),
        torch.no_grad(),
        heads.gated(gates if values == "numbers" else gates > 0.5),
    ):
        heads.model(TOKENS)


@pytest.mark.parametrize("family", ["llama", "t5"])
@torch.no_grad()
def test_beams_say_how_to_repeat_rows_and_repeated_rows_are_right(family: str) -> None:
    heads = Heads(build(family))
    model: Any = heads.model
    gates, prompts = rows_of(heads, 4), {"input_ids": TOKENS, "attention_mask": torch.ones_like(TOKENS)}
    remedy = r"one after the other, so repeat its gates: gates.repeat_interleave\(3, 0\)"
    with pytest.raises(HeadwiseError, match=remedy), heads.gated(gates):
        model.generate(**prompts, **NEW, num_beams=3)
    with heads.gated(gates.repeat_interleave(3, 0)):
        together = model.generate(**prompts, **NEW, num_beams=3)
    for row in range(4):
        with heads.gated(gates[row]):
            alone = model.generate(
                **{name: tensor[row : row + 1] for name, tensor in prompts.items()}, **NEW, num_beams=3
            )
        assert torch.equal(alone[0], together[row])


@torch.no_grad()
def test_an_encoder_cannot_treat_the_beams_of_a_prompt_differently() -> None:
    heads = Heads(build("t5"))
    model: Any = heads.model
    gates = rows_of(heads, 8)
    with pytest.raises(HeadwiseError, match="each prompt is read once for all its beams"), heads.gated(gates):
        model.generate(input_ids=TOKENS, attention_mask=torch.ones_like(TOKENS), **NEW, num_beams=2)
    decoder = [site.index for site in heads.sites if site.kind != "self"]
    gates[:, [site.index for site in heads.sites if site.kind == "self"]] = 1
    with heads.gated(gates):  # the decoder can
        model.generate(input_ids=TOKENS, attention_mask=torch.ones_like(TOKENS), **NEW, num_beams=2)
    assert decoder


def swin() -> Any:
    torch.manual_seed(0)
    config = t.SwinConfig(
        image_size=16, patch_size=2, embed_dim=8, depths=[2], num_heads=[2], window_size=4, num_channels=3
    )
    return t.SwinModel(config).eval()


@torch.no_grad()
def test_rows_that_a_model_cuts_into_windows_keep_their_gates() -> None:
    heads = Heads(swin())
    images = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    gates = rows_of(heads, 3)
    with heads.gated(gates):
        together = heads.model(images).last_hidden_state
    for row in range(3):
        with heads.gated(gates[row]):
            torch.testing.assert_close(together[row], heads.model(images[row : row + 1]).last_hidden_state[0])
    with (
        pytest.raises(HeadwiseError, match="gates for 6 rows met a pass of 3 rows"),
        heads.gated(rows_of(heads, 6)),
    ):
        heads.model(images)
    with (
        pytest.raises(HeadwiseError, match="cuts each row up, so which token is which"),
        heads.gated(rows_of(heads, 3, 64)),
    ):
        heads.model(images)


def clip() -> Any:
    torch.manual_seed(0)
    common = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {
        **common,
        "vocab_size": 50,
        "max_position_embeddings": 16,
        "eos_token_id": 2,
        "bos_token_id": 1,
        "pad_token_id": 0,
    }
    return t.CLIPModel(
        t.CLIPConfig(text_config=text, vision_config={**common, "image_size": 8, "patch_size": 4})
    ).eval()


@torch.no_grad()
def test_rows_of_a_second_input_are_not_taken_for_those_of_the_first() -> None:
    heads = Heads(clip())
    images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    for block in (
        lambda: heads.gated(rows_of(heads, 2)),
        lambda: heads.recorded("all"),
        lambda: heads.recorded("cls"),
    ):
        with pytest.raises(HeadwiseError, match="sees 4 rows in a pass of 2"), block():  # type: ignore[no-untyped-call]
            heads.model(input_ids=TOKENS[:2], pixel_values=images)
    with heads.recorded("cls") as tape:
        heads.model(input_ids=TOKENS, pixel_values=images)
    assert tape.outputs.shape[0] == 4
    with heads.silenced(HeadSet([(0, 1), (1, 0)])):  # the same for every row
        heads.model(input_ids=TOKENS[:2], pixel_values=images)


@torch.no_grad()
def test_gates_of_truth_values_select() -> None:
    heads = Heads(build("bert"))
    for leading in ((), (4,), (4, 6)):
        opened = rows_of(heads, *leading) > 0.4
        with heads.gated(opened.float()):
            expected = heads.model(TOKENS).logits
        with heads.gated(opened):
            assert torch.equal(heads.model(TOKENS).logits, expected)
