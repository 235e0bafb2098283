"""`l0`: gates with a penalty for being open (Voita et al. 2019)."""

from typing import Any

import torch
import xarray as xr

from headwise._passes.subject import prepare
from headwise.scoring import _concrete as concrete
from headwise.scoring._gate_fit import fit_gates, generator
from headwise.scoring._result import as_scores
from headwise.scoring._selection import count_for
from headwise.scoring._settings import Reading
from headwise.settings import operation, option
from headwise.tasks import Task

PRICE_STEP, STIFFNESS = 0.05, 5.0


class L0(Reading):
    """Settings of `l0`."""

    penalty: float | None = option(
        None,
        "Penalty per open gate, in units of the loss; default: adjusted during training, so that `fraction` "
        "of the gates stay open in expectation (under a fixed penalty the number of heads differs between "
        "tasks and says nothing).",
    )
    fraction: float = option(0.3, "Fraction of the heads that stay open.", ge=0, le=1)
    steps: int = option(300, "Batches of training.", ge=1)
    lr: float = option(0.05, "Learning rate of Adam.", gt=0)
    start: float = option(2.0, "log a of every gate at the start; 2 is nearly always open.")


@operation(L0)
def l0(model: Any, task: Task, settings: L0) -> xr.DataArray:
    """Hard-concrete gates on the frozen model, trained with the loss plus a penalty on the expected number of
    open gates.

    Returns:
        (layer, head): log a, higher for gates held open harder. A coordinate `gate` has the gate at test,
        0–1.
    """
    penalty, fraction, start = settings.penalty, settings.fraction, settings.start
    steps, lr = settings.steps, settings.lr
    subject = prepare(model, task, settings)
    chance = generator(subject)
    log_a = torch.full_like(subject.base, start).requires_grad_()
    total = int(subject.scored.sum())
    n_open = count_for(fraction, total)
    price = penalty or 0.0

    def gates_of(step: int, examples: int) -> torch.Tensor:
        noise = torch.rand((examples, *log_a.shape), generator=chance)  # (examples, layers, heads)
        return concrete.sample(log_a, noise.to(subject.device))

    def penalty_of(step: int) -> torch.Tensor:
        nonlocal price
        open_now = (concrete.open_probability(log_a) * subject.base).sum()
        if penalty is not None:
            return penalty * open_now
        # an augmented Lagrangian: the price follows the excess, below zero if need be, and the square keeps
        # it from swinging
        excess = (open_now - n_open) / total
        price += float(excess.detach()) * PRICE_STEP
        return price * excess + STIFFNESS * excess.square()

    fit_gates(
        subject, [log_a], gates_of, penalty_of, steps=steps, lr=lr, description=f"L0 gates, {task.name}"
    )
    used = {
        "penalty": penalty,
        "fraction": None if penalty is not None else fraction,
        "steps": steps,
        "lr": lr,
        "start": start,
    }
    final = price
    if penalty is None:  # the price of the excess share, turned into that of one gate
        final = price / total
    scores = as_scores(log_a, subject, "l0", "magnitude", final_penalty=final, **used)
    return scores.assign_coords(
        gate=as_scores(concrete.at_test(log_a), subject, "l0", "magnitude").drop_attrs()
    )
