"""Dropout in few-shot fine-tuning: on while it learns, off when it is judged."""

import numpy as np
import pytest
import toy

from headwise.training._fewshot import few_shot


@pytest.mark.parametrize("tuning", ["full", "decoder"])
def test_dropout_is_on_while_few_shots_are_learnt_and_off_afterwards(tuning: str) -> None:
    task = toy.task("animal", 24)

    def losses(dropout: float, learning_rate: float) -> np.ndarray:
        settings = {"epochs": 2, "batch_size": 8, "learning_rate": learning_rate, "tuning": tuning}
        return few_shot(toy.model([], dropout=dropout), task, 8, [0, 1], **settings, quiet=True)[
            "loss"
        ].to_numpy()

    np.testing.assert_allclose(
        losses(0.5, 1e-30), losses(0.0, 1e-30), rtol=1e-5
    )  # nothing learnt: only judging is seen
    assert abs(losses(0.5, 1e-2) - losses(0.0, 1e-2)).max() > 1e-3
