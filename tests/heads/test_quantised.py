"""Weights of torchao: tensors that say they hold floating numbers, hold integers, and know hardly an
operation."""

from typing import Any

import pytest
import torch
from small_models import build
from torch import Tensor, nn
from torch.nn import functional

import headwise as hw
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.store import fingerprint
from words import LANGUAGE, word_tokenizer

IDS = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(0))
CHOSEN = HeadSet([(0, 1), (1, 2)])
KEPT = (torch.ops.aten.detach.default, torch.ops.aten.clone.default, torch.ops.aten.alias.default)


class Int8(Tensor):
    """As torchao's `Int8Tensor`: integers and a scale for each row.

    `dynamic`: inputs are rounded too, and products are made of integers, so that no gradient comes back.
    """

    @staticmethod
    def __new__(cls, integers: Tensor, scale: Tensor, dynamic: bool) -> "Int8":
        return Tensor._make_wrapper_subclass(cls, integers.shape, dtype=scale.dtype)  # type: ignore[attr-defined,no-any-return]

    def __init__(self, integers: Tensor, scale: Tensor, dynamic: bool) -> None:
        self.integers, self.scale, self.dynamic = integers, scale, dynamic

    @classmethod
    def of(cls, weight: Tensor, dynamic: bool) -> "Int8":
        scale = weight.detach().abs().amax(1, keepdim=True) / 127
        return cls((weight.detach() / scale).round().to(torch.int8), scale, dynamic)

    def numbers(self) -> Tensor:
        return self.integers.to(self.scale.dtype) * self.scale

    def __tensor_flatten__(self) -> tuple[list[str], bool]:
        return ["integers", "scale"], self.dynamic

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.linear:
            x, weight, bias = (*args, None)[:3]
            if weight.dynamic:
                x = (x.detach() * 64).round() / 64
            return functional.linear(x, weight.numbers(), bias)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in KEPT:
            return cls(args[0].integers, args[0].scale, args[0].dynamic)
        raise NotImplementedError(
            f"Int8 dispatch: attempting to run unimplemented operator/function: func={func}"
        )


def quantised(family: str, dynamic: bool = False) -> Any:
    model: Any = build(family)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(Int8.of(module.weight, dynamic), requires_grad=False)
    return model


def rounded(family: str) -> Any:
    """The model with the same weights as plain numbers."""
    model: Any = build(family)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(Int8.of(module.weight, False).numbers())
    return model


def sentences() -> tuple[hw.Task, Any]:
    rows = [(" ".join(f"w{3 + (7 * i + 3 * j) % 40}" for j in range(5)),) for i in range(8)]
    tokenizer = word_tokenizer([*LANGUAGE, *(f"w{i}" for i in range(3, 50))], "<s>", "</s>")
    return hw.Task("t", data={"train": rows, "validation": rows[:2]}, kind="next-token"), tokenizer


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_heads_of_quantised_models_are_silenced(family: str) -> None:
    model, plain = quantised(family), rounded(family)
    with torch.no_grad():
        for block in (
            lambda heads: heads.silenced(CHOSEN),
            lambda heads: heads.gated(torch.linspace(0, 1, 8).view(2, 4)),
            lambda heads: heads.patched(CHOSEN, {"input_ids": IDS.flip(0)}),
        ):
            heads, plain_heads = Heads(model), Heads(plain)
            with block(heads), heads.recorded("last") as tape:
                actual = model(IDS).logits
            with block(plain_heads), plain_heads.recorded("last") as expected:
                torch.testing.assert_close(actual, plain(IDS).logits, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(tape.outputs, expected.outputs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["ablation", "gate-gradient", "l0", "shapley"])
def test_scores_of_quantised_models_are_those_of_the_same_plain_numbers(method: str) -> None:
    task, tokenizer = sentences()
    actual, expected = (
        hw.score(m, task, method=method, tokenizer=tokenizer, quiet=True)
        for m in (quantised("llama"), rounded("llama"))
    )
    torch.testing.assert_close(
        torch.tensor(actual.values), torch.tensor(expected.values), rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize(
    "method",
    ["gate-gradient", "integrated-gradients", "l0", "subset", "taylor-mean", "attention-attribution"],
)
def test_layers_that_hand_no_gradient_back_are_refused_where_gradients_count(method: str) -> None:
    """A few quantised layers are enough: what reaches a gate past them is a part of its gradient, and looks
    like one."""
    task, tokenizer = sentences()
    model: Any = build("llama")
    model.model.layers[1].self_attn.q_proj.weight = nn.Parameter(
        Int8.of(model.model.layers[1].self_attn.q_proj.weight, True), requires_grad=False
    )
    with pytest.raises(
        HeadwiseError,
        match=r"layers\.1\.self_attn\.q_proj \(Linear .*hands no true gradient back.*'ablation'",
    ):
        hw.score(model, task, method=method, tokenizer=tokenizer, quiet=True)
    assert bool((hw.score(model, task, method="ablation", tokenizer=tokenizer, quiet=True) != 0).any())


def test_what_writes_or_reads_weights_says_that_they_are_not_plain() -> None:
    model = quantised("llama")
    heads = Heads(model)
    with pytest.raises(
        HeadwiseError, match=r"is kept as Int8 of torch.float32 on cpu, and heads are removed from plain"
    ):
        heads.remove(HeadSet([(0, 0), (0, 1)]))
    with (
        pytest.raises(HeadwiseError, match="not a plain parameter"),
        heads.training_only(CHOSEN, torch.optim.SGD(model.parameters(), 0.1)),
    ):
        pass
    _, tokenizer = sentences()
    roles = hw.roles(model, tokenizer=tokenizer, quiet=True, sequences=2, repeated=8, roles=["copying"])
    assert "keeps its weight as Int8" in roles.attrs["notes"]["copying"]


def test_results_of_quantised_models_are_kept_by_their_integers() -> None:
    weight = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    keys = {
        fingerprint(Int8.of(w, dynamic))
        for w in (weight, weight.clone(), 2 * weight, -weight)
        for dynamic in (False, True)
    }
    assert len(keys) == 6
