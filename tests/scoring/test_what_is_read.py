"""What estimators read, and in which state the model is meanwhile."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

import planted
from headwise._passes.frozen import frozen
from headwise.models._model import MultiTaskModel
from headwise.scoring import score
from headwise.tasks._task import Task


def model_with(tasks: dict[str, Task], dropout: float) -> Any:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(planted.WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=16,
        max_position_embeddings=32, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, initializer_range=0.5,
    )  # fmt: skip
    return MultiTaskModel(BertModel(config), planted.tokenizer(), tasks.values())


@pytest.mark.parametrize("method", ["gate-gradient", "ablation", "taylor-mean"])
def test_scores_are_of_the_training_split(method: str) -> None:
    both = planted.tasks(size=16)
    model = model_with(both, 0.0)
    found, train, validation = (
        score(model, both["a"], method=method, quiet=True, **split)
        for split in ({}, {"split": "train"}, {"split": "validation"})
    )
    np.testing.assert_array_equal(found, train)
    assert found.attrs["split"] == "train"
    assert not np.allclose(found, validation, rtol=1e-3)


@pytest.mark.parametrize("method", ["gate-gradient", "ablation", "integrated-gradients"])
def test_dropout_is_off_while_heads_are_scored(method: str) -> None:
    both = planted.tasks(size=16)
    model = model_with(both, 0.5)
    off, on = (score(model.train(mode), both["a"], method=method, quiet=True) for mode in (False, True))
    np.testing.assert_allclose(on, off, rtol=1e-6)
    assert all(module.training for module in model.modules())  # the second was in training mode, and is again


def test_no_weight_asks_for_a_gradient_while_heads_are_scored() -> None:
    model = model_with(planted.tasks(size=16), 0.0)
    model.encoder.embeddings.requires_grad_(False)
    before = [weight.requires_grad for weight in model.parameters()]
    with frozen(model):
        assert not any(weight.requires_grad for weight in model.parameters())
    assert [weight.requires_grad for weight in model.parameters()] == before
