"""A model without some heads is smaller, and computes what the silenced model does."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from small_models import BUILDERS, build
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet, UnsupportedModel

UNSUPPORTED = {"olmo2"}
GROUPED = {"llama": 2, "phi3": 2, "falcon-gqa": 2, "falcon-mqa": 4}  # heads in a group


def output(model: Any, example: dict[str, Any]) -> Tensor:
    with torch.no_grad():
        result: Tensor = model(**example)[0]
    return result


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def some_groups(family: str, heads: Heads) -> HeadSet:
    """Another group (or head) of every layer; the same of each if layers share weights, and no layer as a
    whole."""
    width = GROUPED.get(family, 1)
    groups = (
        [0] * len(heads.sites) if family == "albert" else [site.index % (4 // width) for site in heads.sites]
    )
    if family == "falcon-mqa":
        return HeadSet((1, head) for head in range(4))
    return HeadSet((site, group * width + i) for site, group in enumerate(groups) for i in range(width))


@pytest.mark.parametrize("family", sorted(set(BUILDERS) - UNSUPPORTED))
def test_removed_equals_silenced(family: str) -> None:
    model = build(family)
    heads = Heads(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gone = some_groups(family, heads)
    smaller = heads.remove(gone)
    with heads.silenced(gone):
        expected = output(model, heads.example)
    torch.testing.assert_close(output(smaller, heads.example), expected, rtol=1e-4, atol=1e-5)
    assert (output(model, heads.example) - expected).abs().max() > 1e-3  # the heads did something
    assert size(smaller) < size(model)
    remaining = Heads(smaller)
    assert [site.n_heads for site in remaining.sites] == [
        site.n_heads - len(gone.layers().get(site.index, ()))
        for site in heads.sites
        if len(gone.layers().get(site.index, ())) < 4
    ]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def by_hand(model: Any, gone: HeadSet, weight: str, transposed: bool) -> nn.Module:
    """A copy with the removed heads' part of W_O set to zero, by name."""
    model = deepcopy(model)
    for layer, head in gone:
        parameter = model.get_parameter(weight.format(layer)).data
        (parameter if transposed else parameter.T)[head * 8 : (head + 1) * 8] = 0
    return model


@settings(max_examples=10, deadline=None)
@given(
    gone=st.sets(st.tuples(st.integers(0, 1), st.integers(0, 3))), family=st.sampled_from(["bert", "gpt2"])
)
def test_any_set_of_heads_against_zeroed_weights(gone: set[tuple[int, int]], family: str) -> None:
    """Whole layers included; every head takes exactly its own parameters with it."""
    name = (
        "bert.encoder.layer.{}.attention.output.dense.weight"
        if family == "bert"
        else "transformer.h.{}.attn.c_proj.weight"
    )
    model = build(family)
    heads = Heads(model)
    smaller = heads.remove(HeadSet(gone))
    expected = output(by_hand(model, HeadSet(gone), name, transposed=family == "gpt2"), heads.example)
    torch.testing.assert_close(output(smaller, heads.example), expected, rtol=1e-4, atol=1e-5)
    assert size(model) - size(smaller) == len(gone) * (4 * 8 * 32 + 3 * 8)


@pytest.mark.parametrize("family", sorted(set(BUILDERS) - {"albert"}))
def test_a_layer_without_heads(family: str) -> None:
    """What remains of it is the bias of its output projection; in T5 it still makes the position bias of
    later layers."""
    model = build(family)
    heads = Heads(model)
    gone = HeadSet((0, head) for head in range(4))
    smaller = heads.remove(gone)
    with heads.silenced(gone):
        torch.testing.assert_close(
            output(smaller, heads.example), output(model, heads.example), rtol=1e-4, atol=1e-5
        )
    assert len(Heads(smaller).sites) == len(heads.sites) - 1


@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom", "t5"])
@pytest.mark.parametrize("layer", [0, 1])
def test_generation_with_a_cache(family: str, layer: int) -> None:
    model: Any = build(family)
    heads = Heads(model)
    few = HeadSet((layer, head) for head in range(2))
    for gone in (few, HeadSet((layer, head) for head in range(4))):
        smaller: Any = heads.remove(gone)
        options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        ids = heads.example["input_ids"]
        with heads.silenced(gone):
            expected = model.generate(ids, **options)
        assert torch.equal(smaller.generate(ids, **options), expected)
        assert torch.equal(smaller.generate(ids, use_cache=False, **options), expected)


@pytest.mark.parametrize("family", ["bert", "t5", "falcon-mha", "phi3"])
def test_removing_twice_and_switching_the_attention_code(family: str) -> None:
    model = build(family)
    heads = Heads(model)
    first = HeadSet((0, head) for head in (0, 1))
    second = HeadSet((1, head) for head in (2, 3))
    smaller = Heads(heads.remove(first)).remove(second)
    again = Heads(smaller).remove(
        HeadSet((0, head) for head in (0, 1)) if family == "phi3" else HeadSet([(0, 1)])
    )
    with heads.silenced(first | second):
        torch.testing.assert_close(
            output(smaller, heads.example), output(model, heads.example), rtol=1e-4, atol=1e-5
        )
    with heads.silenced(
        first | second | (HeadSet([(0, 2), (0, 3)]) if family == "phi3" else HeadSet([(0, 3)]))
    ):
        torch.testing.assert_close(
            output(again, heads.example), output(model, heads.example), rtol=1e-4, atol=1e-5
        )
        if family != "falcon-mha":  # whose alibi takes another way in each implementation
            for changed in (model, again):
                changed.set_attn_implementation("eager")  # type: ignore[operator]
            torch.testing.assert_close(
                output(again, heads.example), output(model, heads.example), rtol=1e-4, atol=1e-5
            )


def test_the_smaller_model_trains_like_any_other() -> None:
    smaller: Any = Heads(build("t5")).remove(HeadSet([(0, 1), (1, 2), (3, 0)]))
    heads = Heads(smaller.train())
    assert heads.shape == (6, 4)
    assert heads.total == 21
    optimizer = torch.optim.AdamW(smaller.parameters(), lr=0.01)
    learning = HeadSet([(0, 2), (5, 0)])
    query = smaller.encoder.block[0].layer[0].SelfAttention.q.weight
    before = query.detach().clone()
    with heads.training_only(learning, optimizer):
        smaller(**heads.example)[0].square().sum().backward()
        optimizer.step()
    assert (query != before).any(1).view(3, 8).any(1).tolist() == [False, False, True]


def test_half_a_group_is_refused_with_the_groups() -> None:
    heads = Heads(build("llama"))
    with pytest.raises(
        HeadwiseError,
        match=r"layer 1 .* groups are \[\[0, 1\], \[2, 3\]\], and the set has only some heads of \[\[2, 3\]\]",
    ):
        heads.remove(HeadSet([(0, 0), (0, 1), (1, 2)]))
    with pytest.raises(HeadwiseError, match=r"groups are \[\[0, 1, 2, 3\]\]"):
        Heads(build("falcon-mqa")).remove(HeadSet([(0, 0)]))


def test_layers_that_share_weights_can_only_lose_the_same_heads() -> None:
    heads = Heads(build("albert"))
    with pytest.raises(HeadwiseError, match=r"layers \[0, 1, 2\] share .*attention.query.weight"):
        heads.remove(HeadSet([(0, 1), (1, 1)]))


def test_what_cannot_be_removed_says_why() -> None:
    with pytest.raises(UnsupportedModel, match=r"q_norm\.weight normalizes all heads of a layer together"):
        Heads(build("olmo2")).remove(HeadSet([(0, 1)]))
    heads = Heads(build("bert"))
    with pytest.raises(HeadwiseError, match=r"head \(0, 4\) is not in this"):
        heads.remove(HeadSet([(0, 4)]))
    with pytest.raises(HeadwiseError, match="outside the `with` block"), heads.silenced(HeadSet([(0, 1)])):
        heads.remove(HeadSet([(0, 1)]))


def test_installed_hooks_are_not_copied_and_stay() -> None:
    model = build("bert")
    heads = Heads(model)
    heads.install()
    smaller = heads.remove(HeadSet([(0, 1)]))
    assert not any(module._forward_pre_hooks for module in smaller.modules())
    assert any(module._forward_pre_hooks for module in model.modules())
    heads.uninstall()


def test_half_precision_and_adapters() -> None:
    from peft import LoraConfig, get_peft_model

    heads = Heads(build("bert").to(torch.bfloat16))
    assert next(heads.remove(HeadSet([(0, 1), (1, 2)])).parameters()).dtype == torch.bfloat16
    adapted = get_peft_model(
        build("llama"),
        LoraConfig(r=2, target_modules=["q_proj", "v_proj", "o_proj"], init_lora_weights=False),
    )
    heads = Heads(adapted)
    gone = HeadSet([(0, 0), (0, 1)])
    smaller = heads.remove(gone)
    with heads.silenced(gone):
        torch.testing.assert_close(
            output(smaller, heads.example), output(adapted, heads.example), rtol=1e-4, atol=1e-5
        )
    merged = smaller.merge_and_unload()  # type: ignore[operator]
    with heads.silenced(gone):
        torch.testing.assert_close(
            output(merged, heads.example), output(adapted, heads.example), rtol=1e-4, atol=1e-4
        )
