"""Weights cast all at once: bit by bit the training that autocast gives when it casts layer by layer."""

import pytest
import torch
import toy
from torch import nn

from headwise.training import TrainingRun, _loop
from headwise.training._casting import cast_together
from headwise.training.methods import ImportantHeads, LoRA, Method

TASKS = [toy.task("mood", 48), toy.task("animal", 48)]


def trained(family="bert", method=None):
    run = TrainingRun(
        toy.model(TASKS, family),
        TASKS,
        method or Method(),
        toy.settings(precision="bf16", weight_decay=0.1, clip=1.0),
    )
    run.train()
    return run


@pytest.mark.parametrize(
    ("family", "method"),
    [
        ("bert", Method),
        ("gpt2", Method),
        ("llama", Method),
        ("bert", lambda: ImportantHeads(delta=0.5, alpha=0.3)),
        ("bert", LoRA),
    ],
    ids=["bert", "gpt2", "llama", "iat", "lora"],
)
def test_the_training_is_that_of_autocast(family, method, monkeypatch) -> None:
    plain = trained(family, method())
    passes = []
    cast = lambda model, precision: passes.append(precision) or cast_together(model, torch.bfloat16)  # noqa: E731
    monkeypatch.setattr(_loop, "cast_while_captured", cast)
    together = trained(family, method())
    assert len(passes) == len(together.plan)
    assert (together.losses == plain.losses).all()
    for name, value in toy.weights(plain.model).items():
        assert torch.equal(toy.weights(together.model)[name], value), name


def test_layers_get_their_weights_back_and_unused_ones_no_gradient() -> None:
    model = nn.ModuleDict(
        {"used": nn.Linear(3, 2), "unused": nn.Linear(3, 2), "narrow": nn.Linear(3, 2, dtype=torch.bfloat16)}
    )
    model["tied"] = nn.Linear(3, 2)
    model["tied"].weight = model["used"].weight
    before = dict(model.named_parameters())
    with cast_together(model, torch.bfloat16):
        assert model["used"].weight.dtype == torch.bfloat16
        assert model["used"].weight is model["tied"].weight
        out = model["used"](torch.ones(1, 3, dtype=torch.bfloat16))
    assert all(value is before[name] for name, value in model.named_parameters())
    out.sum().backward()
    assert model["used"].weight.grad.dtype == torch.float32
    assert model["unused"].weight.grad is None
    with pytest.raises(RuntimeError), cast_together(model, torch.bfloat16):
        raise RuntimeError
    assert model["used"].weight is before["used.weight"]
