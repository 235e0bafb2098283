"""`causal-gating`: which heads a task needs, which are in its way, and which could be replaced (Nam et al.
2025)."""

from typing import Any

import torch
import xarray as xr
from torch import Tensor

from headwise._passes.frozen import frozen
from headwise._passes.subject import TaskSubject, prepare
from headwise.scoring._gate_fit import fit_gates
from headwise.scoring._result import as_scores
from headwise.scoring._settings import Reading
from headwise.settings import operation, option
from headwise.tasks import Task


class CausalGating(Reading):
    """Settings of `causal_gating`."""

    pressure: float = option(
        0.3,
        "Pressure on every gate, as a multiple of what the average head saves: (mean loss without heads - "
        "mean loss with them) / heads, so that it means the same for every model and task.",
    )
    steps: int = option(200, "Batches of each of the three fits.", ge=1)
    lr: float = option(0.1, "Learning rate of Adam on the gates' logits.", gt=0)


@operation(CausalGating)
def causal_gating(model: Any, task: Task, settings: CausalGating) -> xr.DataArray:
    """Gates fitted on the frozen model without pressure; from there once with pressure to open, once with
    pressure to close.

    A head that stays open under both is needed; one that closes under both is harmful; one that follows the
    pressure is replaceable. Score = (gate under pressure to close) − (1 − gate under pressure to open): near
    1, −1 and 0.

    Returns:
        (layer, head), −1 to 1. Coordinates `opened` and `closed` have the gates under either pressure, 0–1.
    """
    pressure, steps, lr = settings.pressure, settings.steps, settings.lr
    subject = prepare(model, task, settings)
    force = pressure * _saved_per_head(subject)
    first = _fit(subject, torch.full_like(subject.base, 1.0), 0.0, steps, lr)
    opened = torch.sigmoid(_fit(subject, first, -force, steps, lr))
    closed = torch.sigmoid(_fit(subject, first, force, steps, lr))
    used = {"pressure": pressure, "force": force, "steps": steps, "lr": lr}
    scores = as_scores(closed - (1 - opened), subject, "causal-gating", "signed", **used)
    gates = {"opened": opened, "closed": closed}
    return scores.assign_coords(
        {name: as_scores(gate, subject, "", "magnitude").drop_attrs() for name, gate in gates.items()}
    )


def _saved_per_head(subject: TaskSubject) -> float:
    with frozen(subject.model), torch.inference_mode():
        saved = 0.0
        for batch in subject.read(subject.plan()):
            without = subject.forward(batch, torch.zeros_like(subject.scored)).loss.sum()
            intact = subject.forward(batch)
            subject.answers.keep(batch, intact)
            saved += float(without - intact.loss.sum())
    mean = saved / len(subject.encoded)
    # heads that save next to nothing together would put no pressure on any gate
    return max(mean, 1e-2) / int(subject.scored.sum())


def _fit(subject: TaskSubject, start: Tensor, force: float, steps: int, lr: float) -> Tensor:
    """Logits of gates, fitted from `start`; `force` is the price of an open gate, negative to pay for it."""
    logits = start.detach().clone().requires_grad_()
    fit_gates(
        subject,
        [logits],
        lambda step, examples: torch.sigmoid(logits),
        lambda step: force * (torch.sigmoid(logits) * subject.base).sum(),
        steps=steps,
        lr=lr,
        description=f"causal gating, {subject.task.name}, pressure {force:+.2g}",
    )
    return logits.detach()
