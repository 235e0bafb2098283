"""`integrated-gradients`: the loss's path from no heads at all to the whole model, shared out among the
heads."""

from typing import Any

import numpy as np
import torch
import xarray as xr

from headwise._base.senses import Sense
from headwise._passes.frozen import frozen
from headwise._passes.subject import prepare
from headwise.scoring._gradient import example_gradients
from headwise.scoring._result import as_scores
from headwise.scoring._settings import Reading
from headwise.settings import operation, option
from headwise.tasks import Task


class IntegratedGradients(Reading):
    """Settings of `integrated_gradients`."""

    examples: int | None = option(
        1000, "At most this many examples of the split, drawn at random; None: all.", ge=1
    )
    steps: int = option(16, "Nodes of the Gauss-Legendre quadrature: passes per example.", ge=1)
    signed: bool = option(
        False,
        "Keep the sign, positive for a head that lowers the loss: the sum over heads is then the mean loss "
        "without heads less that with them. Default: the mean over examples of the absolute value, as in Eq. "
        "4.",
    )


@operation(IntegratedGradients)
def integrated_gradients(model: Any, task: Task, settings: IntegratedGradients) -> xr.DataArray:
    """∫₀¹ ∂L(α·1)/∂ξ_h dα (Sundararajan et al. 2017, on the gates): all gates open together from 0 to 1.

    Returns:
        (layer, head).
    """
    steps, signed = settings.steps, settings.signed
    subject = prepare(model, task, settings)
    nodes, weights = unit_interval(steps)
    total = torch.zeros_like(subject.base, dtype=torch.float64)
    with frozen(subject.model):
        for batch in subject.read(subject.plan(), f"integrating gradients, {task.name}"):
            path = sum(
                weight * example_gradients(subject, batch, level).double()
                for level, weight in zip(nodes, weights, strict=True)
            )  # (batch, layers, heads)
            assert isinstance(path, torch.Tensor)
            total += (-path if signed else path.abs()).sum(dim=0)
    sense: Sense = "signed" if signed else "magnitude"
    return as_scores(
        total / len(subject.encoded), subject, "integrated-gradients", sense, steps=steps, signed=signed
    )


def unit_interval(steps: int) -> tuple[list[float], list[float]]:
    """Nodes and weights of the Gauss–Legendre rule on 0–1."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    return ((nodes + 1) / 2).tolist(), (weights / 2).tolist()
