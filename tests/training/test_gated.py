"""Gates that learn with the model: what the price of open gates does to the rest of a training."""

import math

import numpy as np
import pytest
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


def one_rate(method: GatedTraining, epochs: int = 1) -> TrainingRun:
    """Gates that move by plain gradient descent at a rate at which they stay where they are but for rounding."""
    tasks = [toy.task("mood", 40)]
    rates = {
        "learning_rate": 1e-9,
        "gate_learning_rate": 1e-2,
        "optimizer": "sgd",
        "betas": (0.0, 0.999),
        "schedule": "constant",
    }
    settings = toy.settings(device="cpu", epochs=epochs, warmup=0.0, **rates)
    run = TrainingRun(toy.model(tasks, dropout=0.0), tasks, method, settings)
    run.train()
    return run


def slope(log_a: float) -> float:
    """The derivative of P(open) = σ(log a − 0.33 log(0.1 ÷ 1.1)), by the definition of σ."""
    share = 1 / (1 + math.exp(-(log_a - 0.33 * math.log(0.1 / 1.1))))
    return share * (1 - share)


def test_gates_pay_their_price_and_losses_do_not_hold_it() -> None:
    """The same noise with and without a price: the gates part by what the price alone does, the losses by nothing that counts."""
    free, dear = one_rate(GatedTraining(penalty=0.0)), one_rate(GatedTraining(penalty=0.5))
    steps = len(free.plan)
    apart = free.method.log_a - dear.method.log_a  # (2, 4)
    torch.testing.assert_close(apart, torch.full((2, 4), 1e-2 * 0.5 * steps * slope(2.0)), rtol=2e-2, atol=0)
    np.testing.assert_allclose(dear.losses, free.losses, rtol=1e-3)


def test_the_target_falls_to_the_fraction_over_the_first_half() -> None:
    """Eight heads, four to stay open: the price is 10 (open − target) ÷ 8, the target 8 at first and 4 from half of the steps on."""
    free, paid = (
        one_rate(GatedTraining(penalty=0.0), epochs=4),
        one_rate(GatedTraining(fraction=0.5), epochs=4),
    )
    steps = len(paid.plan)
    assert steps == 12
    open_now = 8 / (1 + math.exp(-(2 - 0.33 * math.log(0.1 / 1.1))))
    prices = [10 * (open_now - (8 - 4 * min(1, step / 6))) / 8 for step in range(steps)]
    assert [
        float(paid.method.price(torch.tensor(open_now), torch.tensor(step))) for step in range(steps)
    ] == pytest.approx(prices)
    apart = free.method.log_a - paid.method.log_a
    torch.testing.assert_close(apart, torch.full((2, 4), 1e-2 * sum(prices) * slope(2.0)), rtol=5e-2, atol=0)


def test_trained_gates_close_to_the_fraction() -> None:
    run = trained()
    assert run.method.expected == pytest.approx(4, abs=1.0)
    assert (run.losses > 0).all()
