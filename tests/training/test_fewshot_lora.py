"""Few-shot LoRA: a seed's result depends on the seed, not on how many are trained beside it, or whether any are."""

from typing import Any

import numpy as np
import pytest
import torch
import toy
from torch import nn

from headwise.models import MultiTaskModel
from headwise.training import _fewshot as fewshot
from headwise.training._fewshot import few_shot
from headwise.training._stacked import CannotStack, Stacked, StackedLinear, add_low_rank

SEEDS = [3, 0, 7]


def test_low_rank_results_do_not_depend_on_the_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    model, task = (
        MultiTaskModel(toy.encoder(dropout=0.0), toy.tokenizer(), [], pooling="mean"),
        toy.task(n=12),
    )
    monkeypatch.setattr(
        nn.Dropout, "forward", lambda self, x: x
    )  # the decoder's own: its draws do depend on the company

    def run(copies: int | None, seeds: list[int]) -> Any:
        settings = {"epochs": 4, "learning_rate": 1e-2, "batch_size": 3, "tuning": "lora", "copies": copies}
        return few_shot(model, task, 6, seeds, **settings, quiet=True)

    together = run(3, SEEDS)
    assert together.attrs["note"] == ""
    for copies in (1, 2):
        assert np.allclose(run(copies, SEEDS).loss, together.loss, atol=1e-3), copies
    assert np.allclose(run(3, SEEDS[::-1]).loss[::-1], together.loss, atol=1e-3)  # nor on their order

    def refuse(*args: Any) -> None:
        raise CannotStack("planted")

    with monkeypatch.context() as patch:
        patch.setattr(fewshot, "_stacked_modules", refuse)
        with pytest.warns(UserWarning, match="one after another: planted"):
            assert np.allclose(run(None, SEEDS).loss, together.loss, atol=1e-3)
    untrained = few_shot(model, task, 6, SEEDS, epochs=1, learning_rate=1e-30, tuning="decoder", quiet=True)
    assert float(abs(together.loss - untrained.loss).mean()) > 0.05  # they have learnt


def test_first_matrices_are_random_of_their_scale_and_differ_between_seeds_and_layers() -> None:
    encoder = toy.encoder()
    stacked = Stacked(encoder, 2, torch.arange(5), 4, [0, 1])
    layers = {
        name: module for name, module in stacked.model.named_modules() if isinstance(module, StackedLinear)
    }
    alone = toy.encoder()
    add_low_rank(alone, 4, seed=1)
    values = []
    for name, module in layers.items():
        own: Any = alone.get_submodule(f"{name}.parametrizations.weight.0")
        torch.testing.assert_close(module.down[1], own.down, atol=0, rtol=0)
        values += [module.down[copy] * module.down.shape[1] ** 0.5 for copy in (0, 1)]
    flat = [value.flatten()[:8].tolist() for value in values]
    assert len({tuple(row) for row in flat}) == len(flat)
    everything = torch.cat([value.flatten() for value in values])
    assert float(everything.mean().abs()) < 0.05
    assert float(everything.std()) == pytest.approx(1, abs=0.05)
