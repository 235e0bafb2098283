"""Gates that learn with the model: what the price of open gates does to the rest of a training."""

import numpy as np
import torch
import toy

from headwise.training import TrainingRun
from headwise.training.methods import GatedTraining


def trained(**changes) -> TrainingRun:
    tasks = [toy.task("mood", 200)]
    settings = toy.settings(device="cpu", epochs=12, gate_learning_rate=0.3, **changes)
    run = TrainingRun(toy.model(tasks, dropout=0.0), tasks, GatedTraining(fraction=0.5), settings)
    run.train()
    return run


def test_balancing_the_losses_of_one_task_changes_nothing() -> None:
    """Its factor is 1. With the price in the loss, sums below zero reversed all gradients once too few gates were open."""
    plain, balanced = trained(), trained(balance=5)
    np.testing.assert_allclose(balanced.losses, plain.losses, rtol=1e-4)
    torch.testing.assert_close(balanced.method.gates, plain.method.gates, rtol=1e-3, atol=1e-4)


def test_losses_are_those_of_the_task() -> None:
    run = trained()
    assert (run.losses > 0).all()
    assert run.method.expected < run.heads.total  # though the price was paid
    dear = GatedTraining(penalty=5.0)
    tasks = [toy.task("mood", 40)]
    closed = TrainingRun(
        toy.model(tasks, dropout=0.0), tasks, dear, toy.settings(device="cpu", epochs=1, gate_learning_rate=1e-6)
    )
    closed.train()
    assert closed.losses.max() < 2  # of two classes; all gates open, at five each
