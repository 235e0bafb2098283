"""Adapters of a source model come along to a new task, and are tuned there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy

from headwise import engine, load, train
from headwise.errors import HeadwiseError
from headwise.studies._transfer_study import transfer_study
from headwise.training._fewshot import few_shot

REST = {"epochs": 1, "learning_rate": 1e-30}
QUICK = {"epochs": 3, "batch_size": 8, "quiet": True, "seed": 0}


def source(method: str, folder: Path | None = None, tasks: int = 2) -> Any:
    options: dict[str, Any] = {
        "houlsby": {"size": 4},
        "lora": {"rank": 2},
        "pals": {"size": 8, "n_heads": 2},
    }.get(method, {})
    model = toy.encoder(dropout=0.0)
    given = [toy.task("mood"), toy.task("animal")][:tasks]
    rate = {} if method == "frozen" else {"learning_rate": 0.05}
    return train(
        model, given, method, tokenizer=toy.tokenizer(), out=folder, **rate, **options, **QUICK
    ).model


@pytest.mark.parametrize("method", ["houlsby", "lora"])
def test_a_new_task_sees_the_states_of_the_adapted_encoder(method: str) -> None:
    model = source(method, tasks=1).eval()
    ids = torch.tensor([[2, 5, 9, 14, 3], [2, 7, 11, 3, 0]])
    inputs = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    with torch.no_grad():
        with model.contexts["mood"]():
            adapted = model.encoder(**inputs).last_hidden_state
        found = model.new_encoder()(**inputs).last_hidden_state
        bare = toy.encoder(dropout=0.0).eval()(**inputs).last_hidden_state
    assert torch.allclose(found, adapted, atol=1e-5)
    assert float((found - bare).abs().max()) > 0.05


@pytest.mark.parametrize("method", ["houlsby", "lora"])
def test_the_adapters_of_several_tasks_add_their_mean(method: str) -> None:
    model = source(method).eval()
    copied = model.new_encoder()
    place = "encoder.layer.0.output.dense" if method == "houlsby" else "encoder.layer.0.attention.self.query"
    x = torch.randn(3, 64 if method == "houlsby" else 32)
    added = []
    for task in ("mood", "animal"):
        with model.contexts[task](), torch.no_grad():
            added.append(model.encoder.get_submodule(place)(x))
    with torch.no_grad():
        assert torch.allclose(copied.get_submodule(place)(x), sum(added) / 2, atol=1e-5)
    assert float((added[0] - added[1]).abs().max()) > 1e-3


@pytest.mark.parametrize("method", ["houlsby", "lora", "frozen"])
def test_full_tuning_trains_encoder_and_adapters_also_after_saving(method: str, tmp_path: Path) -> None:
    model = source(method, tmp_path / "source")
    new = toy.task("mood", seed=3).renamed("new")
    settings = {"epochs": 4, "learning_rate": 3e-3, "batch_size": 8}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    full = few_shot(model, new, 8, [0, 1], **settings, quiet=True)
    assert full.attrs["note"] == ""
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    decoder = few_shot(
        model, new, 8, [0, 1], epochs=4, learning_rate=3e-3, batch_size=8, tuning="decoder", quiet=True
    )
    assert float(abs(full.loss - decoder.loss).mean()) > 0.01  # more than the decoder learnt
    again = few_shot(load(tmp_path / "source"), new, 8, [0, 1], **settings, quiet=True)
    assert np.allclose(full.loss, again.loss, atol=1e-4)
    rest, alone = (
        few_shot(one, new, 8, [0], **REST, quiet=True) for one in (model, load(tmp_path / "source"))
    )
    assert np.allclose(rest.loss, alone.loss, atol=1e-5)


def test_adapters_that_cannot_be_carried_are_refused() -> None:
    model = source("houlsby")
    model.carry = None
    with pytest.raises(HeadwiseError, match="adapters of mood, animal cannot be carried to a new task"):
        few_shot(model, toy.task("mood", seed=3).renamed("new"), 8, [0], **REST, quiet=True)


@pytest.mark.parametrize(
    ("method", "reason"),
    [("pals", "projected attention layers belong"), ("ca-mtl", "layers are conditioned")],
)
def test_sources_that_have_nothing_for_a_new_task_are_refused_with_the_reason(
    method: str, reason: str, tmp_path: Path
) -> None:
    model, new = source(method, tmp_path / "source"), toy.task("mood", seed=3).renamed("new")
    for one in (model, load(tmp_path / "source")):
        with pytest.raises(
            HeadwiseError, match=f"trained by {method} cannot be a source of transfer: .*{reason}"
        ):
            few_shot(one, new, 8, [0], **REST, quiet=True)
    recipe = {
        "kind": "transfer",
        "sources": {method: [str(tmp_path / "source")]},
        "tasks": {"names": ["grammar:topic"]},
    }
    with pytest.raises(
        HeadwiseError, match=f"trained by {method} and cannot be transferred: .*{reason}"
    ):  # before any work
        engine.validate(transfer_study, recipe, tmp_path, tmp_path / "out")
