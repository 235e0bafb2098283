"""LoRA inside `training_only`: weights with their updates of heads that were not chosen keep every bit; other
adapters are refused."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from peft import AdaLoraConfig, IA3Config, LoraConfig, OFTConfig, get_peft_model
from small_models import build
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet

OPTIMIZERS: dict[str, Any] = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1),
}
CHOSEN = HeadSet([(0, 1), (1, 2), (1, 3)])
ONE_EACH = [{1}, {2, 3}]  # by layer: the heads of `CHOSEN`
# {family: (where a layer's attention is, {projection: (axis of heads, blocks of 8 entries that may learn in
# layers 0 and 1)})}
BY_HAND: dict[str, tuple[str, dict[str, tuple[int, list[set[int]]]]]] = {
    "llama": (
        "layers.{}.self_attn.",
        {
            "q_proj": (0, ONE_EACH),
            **dict.fromkeys(
                ("k_proj", "v_proj"), (0, [set[int](), {1}])
            ),  # heads 2 and 3 of layer 1 are a whole group
            "o_proj": (1, ONE_EACH),
        },
    ),
    "gpt2": (
        "h.{}.attn.",
        {"c_attn": (1, [{1, 5, 9}, {2, 3, 6, 7, 10, 11}]), "c_proj": (0, ONE_EACH)},
    ),  # transposed
    "bert": (
        "layer.{}.attention.",
        {
            **dict.fromkeys(("self.query", "self.key", "self.value"), (0, ONE_EACH)),
            "output.dense": (1, ONE_EACH),
        },
    ),
}


def adapted(family: str, **options: Any) -> Any:
    where, projections = BY_HAND[family]
    targets = "|".join(name.replace(".", r"\.") for name in projections)
    inside = where.rstrip(".").rpartition(".")[2]
    settings = LoraConfig(r=2, target_modules=rf".*{inside}\.({targets})", init_lora_weights=False, **options)
    return get_peft_model(build(family), settings).train()


def effective(model: Any, adapter: str = "default") -> dict[str, Tensor]:
    """What each adapted projection multiplies by: its weight and its update."""
    layers = {path: module for path, module in model.named_modules() if hasattr(module, "get_delta_weight")}
    return {
        path: (layer.base_layer.weight + layer.get_delta_weight(adapter)).detach()
        for path, layer in layers.items()
    }


def steps(heads: Heads, optimizer: Any, count: int = 2) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        heads.model(**heads.example)[0].square().mean().backward()
        optimizer.step()


def moved_blocks(before: Tensor, after: Tensor, axis: int) -> set[int]:
    moved = (before != after).movedim(axis, 0).flatten(1).any(1).view(-1, 8).any(1)
    return set(moved.nonzero()[:, 0].tolist())


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("family", BY_HAND)
def test_unchosen_heads_keep_their_weights_and_updates(family: str, name: str) -> None:
    model = adapted(family, lora_dropout=0.1)
    heads, optimizer = Heads(model), OPTIMIZERS[name](model.parameters())
    steps(heads, optimizer)  # momentum of all heads
    before = effective(model)
    with heads.training_only(CHOSEN, optimizer):
        steps(heads, optimizer)
    after = effective(model)
    where, projections = BY_HAND[family]
    for layer in (0, 1):
        for projection, (axis, free) in projections.items():
            path = next(path for path in before if path.endswith(where.format(layer) + projection))
            assert moved_blocks(before[path], after[path], axis) == free[layer], path


def test_all_heads_chosen_is_plain_training_bit_for_bit() -> None:
    plain = adapted("llama")
    frozen = deepcopy(plain)
    heads = [Heads(plain), Heads(frozen)]
    optimizers = [OPTIMIZERS["AdamW"](model.parameters()) for model in (plain, frozen)]
    steps(heads[0], optimizers[0])
    with heads[1].training_only(heads[1].all(), optimizers[1]):
        steps(heads[1], optimizers[1])
    assert all(
        torch.equal(expected, actual)
        for expected, actual in zip(plain.parameters(), frozen.parameters(), strict=True)
    )


def test_adapters_that_are_added_or_switched_to_later_are_kept_too() -> None:
    model = adapted("llama")
    heads, optimizer = Heads(model), OPTIMIZERS["AdamW"](model.parameters())
    with heads.training_only(CHOSEN, optimizer):
        steps(heads, optimizer, 1)
    model.add_adapter("later", LoraConfig(r=4, target_modules=["q_proj", "o_proj"], init_lora_weights=False))
    model.set_adapter("later")
    optimizer = OPTIMIZERS["AdamW"](model.parameters())
    path = "base_model.model.model.layers.0.self_attn.q_proj"
    before = model.get_submodule(path).get_delta_weight("later").detach()
    with heads.training_only(CHOSEN, optimizer):
        steps(heads, optimizer)
    after = model.get_submodule(path).get_delta_weight("later").detach()
    assert moved_blocks(before, after, 0) == {1}


def test_adapters_put_on_after_the_heads_were_found_are_kept_too() -> None:
    plain = build("llama")
    heads = Heads(plain)
    with heads.training_only(CHOSEN, optimizer := OPTIMIZERS["SGD"](plain.parameters())):
        steps(heads, optimizer, 1)
    # Changes the model in place
    get_peft_model(plain, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    path = "model.layers.0.self_attn.q_proj"
    before = effective(plain)[path]
    with heads.training_only(CHOSEN, optimizer := OPTIMIZERS["SGD"](plain.parameters())):
        steps(heads, optimizer)
    assert moved_blocks(before, effective(plain)[path], 0) == {1}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (LoraConfig(use_dora=True, target_modules=["v_proj"]), "DoRA"),
        (AdaLoraConfig(target_modules=["q_proj"], total_step=10), "adalora"),
        (IA3Config(target_modules=["k_proj"], feedforward_modules=[]), "ia3"),
        (OFTConfig(target_modules=["o_proj"], oft_block_size=8), "oft"),  # it turns what the projection reads
    ],
)
def test_adapters_whose_update_is_no_product_are_refused_by_name(settings: Any, name: str) -> None:
    model = get_peft_model(build("llama"), settings)
    with (
        pytest.raises(HeadwiseError, match=rf"layers\.0\.self_attn\.\w_proj has an adapter of type {name}"),
        Heads(model).training_only(CHOSEN, OPTIMIZERS["SGD"](model.parameters())),
    ):
        pass


def test_adapters_outside_attention_may_be_of_any_type_and_learn() -> None:
    model = get_peft_model(
        build("llama"), LoraConfig(use_dora=True, target_modules=["up_proj"], init_lora_weights=False)
    )
    heads, optimizer = Heads(model), OPTIMIZERS["SGD"](model.parameters())
    before = effective(model)
    with heads.training_only(CHOSEN, optimizer):
        steps(heads, optimizer)
    assert all(not torch.equal(before[path], now) for path, now in effective(model).items())
