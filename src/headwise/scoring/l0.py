"""`l0`: gates that pay for being open (Voita et al. 2019)."""

from typing import Any, Unpack

import torch
import xarray as xr

from headwise.passes.subject import Reading, open_subject
from headwise.scoring import concrete
from headwise.scoring.learning import fit_gates, generator
from headwise.scoring.result import as_scores
from headwise.scoring.selection import count_for
from headwise.tasks.task import Task

PRICE_STEP, STIFFNESS = 0.05, 5.0


def l0(
    model: Any,
    task: Task,
    *,
    penalty: float | None = None,
    fraction: float = 0.3,
    steps: int = 300,
    lr: float = 0.05,
    start: float = 2.0,
    **reading: Unpack[Reading],
) -> xr.DataArray:
    """Hard-concrete gates on the frozen model, trained with the loss plus a penalty on the expected number of open gates.

    Args:
        model: a multi-task model, or a plain transformers model with a head.
        task: the task.
        penalty: the price of an open gate, in units of the loss. Default: found while learning, so that `fraction` of the gates
            stay open in expectation; with raw penalties the number of heads differs between tasks and says nothing.
        fraction: of heads to stay open.
        steps, lr: batches of training, and Adam's learning rate.
        start: log a of every gate at the start (2 is nearly always open).
        reading: see `Reading`.

    Returns:
        (layer, head): log a, higher for gates held open harder. A coordinate `gate` has the gate at test, 0–1.
    """
    subject = open_subject(model, task, **reading)
    chance = generator(subject)
    log_a = torch.full_like(subject.base, start).requires_grad_()
    wanted = count_for(fraction, int(subject.scored.sum()))
    total = int(subject.scored.sum())
    price = penalty if penalty is not None else 0.0

    def gates_of(step: int, examples: int) -> torch.Tensor:
        noise = torch.rand((examples, *log_a.shape), generator=chance).to(subject.device)  # (examples, layers, heads)
        return concrete.sample(log_a, noise)

    def penalty_of(step: int) -> torch.Tensor:
        nonlocal price
        open_now = (concrete.open_probability(log_a) * subject.base).sum()
        if penalty is not None:
            return penalty * open_now
        # an augmented Lagrangian: the price follows the excess, below zero if need be, and the square keeps it from swinging
        excess = (open_now - wanted) / total
        price += float(excess.detach()) * PRICE_STEP
        return price * excess + STIFFNESS * excess.square()

    fit_gates(subject, [log_a], gates_of, penalty_of, steps=steps, lr=lr, description=f"L0 gates, {task.name}")
    settings = {
        "penalty": penalty,
        "fraction": None if penalty is not None else fraction,
        "steps": steps,
        "lr": lr,
        "start": start,
    }
    # the price of the excess share, turned into that of one gate
    final = price if penalty is not None else price / total
    scores = as_scores(log_a, subject, "l0", final_penalty=final, **settings)
    return scores.assign_coords(gate=as_scores(concrete.at_test(log_a), subject, "l0").drop_attrs())
