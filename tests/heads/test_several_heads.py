"""Several `Heads` of one model, and models that change after `Heads` was built."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_models import build
from torch import Tensor, nn
from transformers.models.bert.modeling_bert import BertLayer

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.heads._freeze.ownership import ownership

TOKENS = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(0))
CHOSEN = HeadSet([(0, 0), (1, 2)])


def gates_of(heads: Heads, seed: int) -> Tensor:
    return torch.rand(heads.shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("family", ["bert", "albert"])
@pytest.mark.parametrize("order", ["abab", "baab", "abba", "aabb"])
@torch.no_grad()
def test_blocks_of_two_heads_act_in_the_order_they_were_opened_in(order: str, family: str) -> None:
    """As blocks of one would: gates and tapes in turn, hooks of either set first."""
    model = build(family)
    first, second = Heads(model), Heads(model)

    def tapes(choose: Callable[[str], Heads], number: int = 0) -> list[Tensor]:
        if number == len(order):
            model(TOKENS)
            return []
        heads = choose(order[number])
        with heads.gated(gates_of(heads, number)), heads.recorded("all") as tape:
            inner = tapes(choose, number + 1)
        return [tape.outputs, *inner]

    expected = tapes(lambda _: first)
    assert len({float(tape.sum()) for tape in expected}) == len(order)
    for installed in (None, first, second):
        if installed is not None:
            installed.install()
        for ours, right in zip(tapes(lambda name: first if name == "a" else second), expected, strict=True):
            assert torch.equal(ours, right)
        if installed is not None:
            installed.uninstall()
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())


@torch.no_grad()
def test_heads_of_a_part_and_of_the_whole_act_in_order_too() -> None:
    model: Any = build("bert")
    outer, inner = Heads(model), Heads(model.bert)
    inner.install()
    with outer.silenced(CHOSEN), inner.recorded("all") as tape:
        model(TOKENS)
    with outer.silenced(CHOSEN), outer.recorded("all") as expected:
        model(TOKENS)
    inner.uninstall()
    assert torch.equal(tape.outputs, expected.outputs)
    assert (tape.outputs[:, :, 0, 0] == 0).all()


@torch.no_grad()
def test_references_are_read_outside_the_blocks_of_other_heads() -> None:
    model = build("bert")
    first, second = Heads(model), Heads(model)
    source = {"input_ids": TOKENS.flip(0)}
    expected = second.mean_outputs(source)
    with second.patched(CHOSEN, source):
        patched = model(TOKENS).logits
    with first.silenced(HeadSet([(0, 1)])):
        assert torch.equal(second.mean_outputs(source), expected)
        model(TOKENS)
        for refused in (lambda: second.remove(CHOSEN), lambda: second.bake({(0, 0): torch.ones(8)})):
            with pytest.raises(HeadwiseError, match="outside the `with` block"):
                refused()
    with first.gated(torch.ones(first.shape)), second.patched(CHOSEN, source):
        assert torch.equal(model(TOKENS).logits, patched)


def test_what_belongs_to_a_head_is_found_as_without_a_lesion() -> None:
    model: Any = build("bert").train()
    free = HeadSet([(0, 1)])
    expected = [owned.frozen(free).tolist() for owned in ownership(Heads(build("bert")))]
    heads = Heads(model)
    with (
        heads.silenced(HeadSet([(0, 0)])),
        heads.training_only(free, torch.optim.SGD(model.parameters(), 0.1)),
    ):
        model(TOKENS).logits.sum().backward()
    assert [owned.frozen(free).tolist() for owned in ownership(heads)] == expected


def changed(model: Any, how: str) -> None:
    layers = model.bert.encoder.layer
    if how == "appended":
        layers.append(BertLayer(model.config).eval())
    elif how == "inserted":
        layers.insert(0, BertLayer(model.config).eval())
    elif how == "replaced":
        layers[1] = copy.deepcopy(layers[1])
    elif how == "swapped":
        layers[0], layers[1] = layers[1], layers[0]
    else:
        del layers[1]


@pytest.mark.parametrize("how", ["appended", "inserted", "replaced", "swapped", "deleted"])
def test_layers_that_change_after_heads_were_found_are_noticed(how: str) -> None:
    model: Any = build("bert")
    heads = Heads(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with heads.training_only(CHOSEN, optimizer):
        block = heads.silenced(CHOSEN)
        block.__enter__()
        model(TOKENS)
        changed(model, how)
        model(TOKENS)
        with pytest.raises(HeadwiseError, match="when its heads were found, and now it"):
            block.__exit__(None, None, None)  # it changed while the block was open
    blocks: list[Callable[[], Any]] = [
        lambda: heads.silenced(CHOSEN),
        lambda: heads.recorded(),
        lambda: heads.training_only(CHOSEN, optimizer),
    ]
    for block in blocks:
        with pytest.raises(HeadwiseError, match="when its heads were found, and now it"), block():
            model(TOKENS)
    with Heads(model).silenced(CHOSEN if how != "deleted" else HeadSet([(0, 0)])):
        model(TOKENS)


@torch.no_grad()
def test_a_patch_in_half_precision_does_not_round_later_ones() -> None:
    heads = Heads(build("gpt2"))
    source = {"input_ids": TOKENS.flip(0)}
    with heads.patched(CHOSEN, source):
        expected = heads.model(TOKENS).logits
    with heads.patched(CHOSEN, source):
        with torch.autocast("cpu", torch.bfloat16):
            heads.model(TOKENS)
        assert torch.equal(heads.model(TOKENS).logits, expected)


@torch.no_grad()
def test_means_and_recordings_of_other_sizes_are_refused() -> None:
    heads = Heads(build("bert"))
    with pytest.raises(HeadwiseError, match=r"shape \(2, 4, 1\); expected \(2, 4, 8\)"):
        heads.silenced(CHOSEN, how="mean", reference=torch.ones(2, 4, 1))
    gpt2 = build("gpt2")
    gpt2.transformer.h = nn.ModuleList(gpt2.transformer.h[:1])  # type: ignore[union-attr]
    smaller = Heads(gpt2)
    with smaller.recorded("all") as tape:
        gpt2(TOKENS)
    with pytest.raises(HeadwiseError, match="all tokens of this model"), heads.patched(CHOSEN, tape):
        heads.model(TOKENS)
