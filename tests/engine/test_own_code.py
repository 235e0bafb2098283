"""Code of the user's own in a live model: read where it is a module or a function, refused where it hangs on one."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rich
import torch
from live_models import bert
from torch import nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.bert.modeling_bert import BertSelfOutput

import headwise as hw
import planted
from headwise.errors import HeadwiseError
from headwise.store import fingerprint

GLOBAL = 2.0


class Scaled(nn.Module):
    """A module of the user's own."""

    def __init__(self, factor: Any = 1.0, inner: Any = None) -> None:
        super().__init__()
        self.factor, self.held = factor, [inner]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor * GLOBAL


def with_own(module: nn.Module) -> Any:
    model = bert()
    model.bert.pooler.activation = module
    return model


def renamed(source: str) -> type[nn.Module]:
    """A class as a notebook defines it a second time."""
    names: dict[str, Any] = {"nn": nn, "__name__": "notebook"}
    exec(f"class Own(nn.Module):\n    def forward(self, x):\n        return {source}", names)
    made: type[nn.Module] = names["Own"]
    return made


def linear(bias: float) -> nn.Linear:
    made = nn.Linear(1, 1)
    nn.init.constant_(made.weight, 1.0)
    nn.init.constant_(made.bias, bias)
    return made


OTHERS: dict[str, tuple[Any, Any, Any]] = {  # one, the same once more, another
    "number": (lambda: Scaled(1.0), lambda: Scaled(1.0), lambda: Scaled(2.0)),
    "tensor": (lambda: Scaled(torch.ones(2)), lambda: Scaled(torch.ones(2)), lambda: Scaled(torch.zeros(2))),
    "array": (lambda: Scaled(np.ones(2)), lambda: Scaled(np.ones(2)), lambda: Scaled(np.zeros(2))),
    "hidden module": (
        lambda: Scaled(1, linear(0)),
        lambda: Scaled(1, linear(0)),
        lambda: Scaled(1, linear(1)),
    ),
    "lambda": (
        lambda: Scaled(lambda x: x + 1),
        lambda: Scaled(lambda x: x + 1),
        lambda: Scaled(lambda x: x + 2),
    ),
    "closure": (lambda: Scaled(plus(1)), lambda: Scaled(plus(1)), lambda: Scaled(plus(2))),
    "partial": (
        lambda: Scaled(functools.partial(plus, 1)),
        lambda: Scaled(functools.partial(plus, 1)),
        lambda: Scaled(functools.partial(plus, 2)),
    ),
    "code": (lambda: renamed("x * 2")(), lambda: renamed("x * 2")(), lambda: renamed("x * 3")()),
    "called function": (
        lambda: renamed("nn.relu(x)")(),
        lambda: renamed("nn.relu(x)")(),
        lambda: renamed("nn.gelu(x)")(),
    ),
    "set": (lambda: Scaled({"a", "b", "c"}), lambda: Scaled({"c", "b", "a"}), lambda: Scaled({"a", "b"})),
    "dict": (
        lambda: Scaled({"a": 1, "b": 2}),
        lambda: Scaled({"b": 2, "a": 1}),
        lambda: Scaled({"a": 1, "b": 3}),
    ),
}


def plus(value: float) -> Callable[[float], float]:
    return lambda x: x + value


@pytest.mark.parametrize("name", OTHERS)
def test_modules_of_ones_own_count_by_what_they_hold(name: str) -> None:
    one, same, other = (fingerprint(with_own(make())) for make in OTHERS[name])
    assert one == same != other


def test_what_own_code_reads_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(with_own(Scaled()))
    monkeypatch.setitem(globals(), "GLOBAL", 3.0)
    assert fingerprint(with_own(Scaled())) != before


def test_packages_that_are_installed_count_by_name_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in them may change while it is used, and is not the user's; but where it hangs on a model it is refused."""
    before = fingerprint(with_own(Scaled(rich.print)))
    with monkeypatch.context() as patch:
        patch.setattr(rich, "_console", object())
        assert fingerprint(with_own(Scaled(rich.print))) == before
    monkeypatch.setattr(rich, "__version__", "0", raising=False)
    assert fingerprint(with_own(Scaled(rich.print))) != before
    model = bert()
    model.register_forward_hook(rich.print)
    with pytest.raises(HeadwiseError, match=r"forward hook rich\.print"):
        fingerprint(model)


def test_a_class_of_a_library_that_was_patched_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    before, own = fingerprint(bert()), BertSelfOutput.forward
    monkeypatch.setattr(BertSelfOutput, "forward", lambda self, states, inputs: own(self, states, inputs) * 2)
    assert fingerprint(bert()) != before


def test_attention_of_ones_own_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(*args: Any, **kwargs: Any) -> Any:
        output, maps = sdpa_attention_forward(*args, **kwargs)
        return output * 2, maps

    model = bert()
    before = fingerprint(model)
    monkeypatch.setitem(AttentionInterface._global_mapping, "doubled", doubled)
    model.set_attn_implementation("doubled")
    assert fingerprint(model) != before
    model.set_attn_implementation("sdpa")
    assert fingerprint(model) == before


def doubled(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
    return output * 2


def replaced(model: Any) -> None:
    own = model.bert.pooler.forward

    @functools.wraps(own)  # a name of transformers
    def forward(states: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = own(states) * 2
        return result

    model.bert.pooler.forward = forward


class Watching:
    """A hook that is an object."""

    def __call__(self, module: nn.Module, args: Any) -> None:
        pass


FOREIGN: dict[str, tuple[Callable[[Any], object], str]] = {
    "hook": (
        lambda m: m.bert.pooler.register_forward_hook(doubled),
        r"bert\.pooler \(forward hook test_own_code\.doubled\)",
    ),
    "partial": (
        lambda m: m.register_forward_hook(functools.partial(doubled)),
        r"BertForSeq\w+ \(forward hook .*doubled",
    ),
    "object": (
        lambda m: m.bert.register_forward_pre_hook(Watching()),
        r"bert \(forward pre-hook test_own_code\.Watching",
    ),
    "decorated": (
        lambda m: m.bert.register_forward_pre_hook(torch.no_grad()(lambda *_: None)),
        r"pre-hook test_own_code\.<lambda>",
    ),
    "backward": (
        lambda m: m.bert.register_full_backward_hook(lambda *_: None),
        r"bert \(backward hook test_own_code\.<lambda>",
    ),
    "gradient": (
        lambda m: m.classifier.weight.register_hook(lambda g: g * 2),
        r"classifier\.weight \(gradient hook",
    ),
    "forward": (replaced, r"bert\.pooler \(forward test_own_code\.replaced\.<locals>\.forward"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_code_that_hangs_on_a_model_is_refused_where_results_are_kept(name: str, tmp_path: Any) -> None:
    put, said = FOREIGN[name]
    model, task, options = (
        bert(),
        planted.tasks(16)["a"],
        {"tokenizer": planted.tokenizer(), "examples": 8, "quiet": True},
    )
    first = hw.score(model, task, out=tmp_path / "kept", **options)
    put(model)
    with pytest.raises(HeadwiseError, match=f"code of your own hangs on .*{said}.*leave out out="):
        hw.score(model, task, out=tmp_path / "kept", **options)
    if name == "hook":
        assert not np.allclose(
            hw.score(model, task, **options).values, first.values, rtol=1e-2
        )  # which is not kept
        model.bert.pooler._forward_hooks.clear()
        assert hw.score(model, task, out=tmp_path / "kept", **options).identical(first)


def test_hooks_of_all_modules_are_refused() -> None:
    handle = torch.nn.modules.module.register_module_forward_hook(doubled)
    try:
        with pytest.raises(
            HeadwiseError, match=r"hangs on all modules of torch \(hook test_own_code\.doubled"
        ):
            fingerprint(bert())
    finally:
        handle.remove()
