"""`integrated-gradients`: the loss's path from no heads at all to the whole model, shared out among the heads."""

from typing import Any, Unpack

import numpy as np
import torch
import xarray as xr

from headwise.passes.frozen import frozen
from headwise.passes.subject import Reading, open_subject
from headwise.scoring.gradient import example_gradients
from headwise.scoring.result import as_scores
from headwise.tasks.task import Task


def integrated_gradients(
    model: Any, task: Task, *, steps: int = 16, signed: bool = False, **reading: Unpack[Reading]
) -> xr.DataArray:
    """∫₀¹ ∂L(α·1)/∂ξ_h dα (Sundararajan et al. 2017, on the gates): all gates open together from 0 to 1.

    Args:
        model: a multi-task model, or a plain transformers model with a head.
        task: the task.
        steps: nodes of the Gauss–Legendre rule that takes the integral.
        signed: keep the sign, turned so that a head that lowers the loss is positive; the sum over heads is then the mean loss
            without heads less that with them. Default: the mean over examples of the absolute value, as in Eq. 4.
        reading: see `Reading`; examples default to 1,000, since each costs `steps` passes.

    Returns:
        (layer, head).
    """
    reading.setdefault("examples", 1000)
    subject = open_subject(model, task, **reading)
    nodes, weights = unit_interval(steps)
    total = torch.zeros_like(subject.base, dtype=torch.float64)
    with frozen(subject.model):
        for batch in subject.read(subject.plan(), f"integrating gradients, {task.name}"):
            path = sum(
                weight * example_gradients(subject, batch, level).double() for level, weight in zip(nodes, weights, strict=True)
            )  # (batch, layers, heads)
            assert isinstance(path, torch.Tensor)
            total += (-path if signed else path.abs()).sum(dim=0)
    return as_scores(total / len(subject.encoded), subject, "integrated-gradients", steps=steps, signed=signed)


def unit_interval(steps: int) -> tuple[list[float], list[float]]:
    """Nodes and weights of the Gauss–Legendre rule on 0–1."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    return ((nodes + 1) / 2).tolist(), (weights / 2).tolist()
