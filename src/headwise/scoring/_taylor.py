"""`taylor-mean`: the first-order effect of replacing a head's output by its mean."""

from collections.abc import Iterator
from typing import Any

import torch
import xarray as xr
from torch import Tensor

from headwise._passes.frozen import frozen, with_gradients
from headwise._passes.subject import TaskSubject, prepare
from headwise.heads import Pass, Site, Tape, mean_of, read_pass
from headwise.models import real_columns
from headwise.scoring._result import as_scores
from headwise.scoring._settings import Reading
from headwise.settings import operation, option
from headwise.tasks import Batch, Task


class TaylorMean(Reading):
    """Settings of `taylor_mean`."""

    examples: int | None = option(
        1000, "At most this many examples of the split, drawn at random; None: all.", ge=1
    )


@operation(TaylorMean)
def taylor_mean(model: Any, task: Task, settings: TaylorMean) -> xr.DataArray:
    """E |Σ_t ∂L/∂z_t · (z̄ − z_t)|: how much the loss would change, to first order, if the head said the same
    to every token.

    z̄ is the mean over all real tokens of the examples.
    The mean-replacement form of Molchanov et al. (2017): a head whose output is constant scores 0 however
    large that output is, whereas the gate's derivative (Eq. 4) compares with an output of zero, which the
    model may never have seen.

    Returns:
        (layer, head), 0 or more.
    """
    subject = prepare(model, task, settings)
    total = torch.zeros_like(subject.base, dtype=torch.float64)
    with frozen(subject.model):
        mean = mean_outputs(subject)
        for batch in subject.read(subject.plan(), f"first-order effects, {task.name}"):
            total += _effects(subject, batch, mean).abs().sum(dim=0, dtype=torch.float64)
    return as_scores(total / len(subject.encoded), subject, "taylor-mean", "magnitude")


def mean_outputs(subject: TaskSubject) -> Tensor:
    """`Heads.mean_outputs` over the subject's examples, in its own passes, in which silenced heads stay
    silenced."""

    def passes() -> Iterator[tuple[Tape, Pass]]:
        for batch in subject.read(subject.plan(), f"mean head outputs, {subject.task.name}"):
            with torch.no_grad(), subject.lesioned(), subject.heads.recorded(pooling="all") as tape:
                subject.forward(batch)
            yield tape, tape.passed

    return mean_of(subject.heads, passes()).float().to(subject.device)


class _Shift:
    """An edit that adds zero to every head output, so that the loss has a derivative by what would be
    added."""

    def __init__(self) -> None:
        self.added: dict[int, Tensor] = {}  # by site, the shape of the projection's input
        self.outputs: dict[int, Tensor] = {}
        self.seen = read_pass({})

    def start(self, arguments: dict[str, Any]) -> None:
        self.seen = read_pass(arguments)

    def apply(self, site: Site, x: Tensor) -> Tensor:
        self.outputs[site.index] = x.detach()
        self.added[site.index] = torch.zeros_like(x, requires_grad=True)
        return x + self.added[site.index]


def _effects(subject: TaskSubject, batch: Batch, mean: Tensor) -> Tensor:
    """Each example's Σ_t ∂L/∂z_t · (z̄ − z_t), (batch, layers, heads)."""
    effects = torch.zeros((len(batch), *subject.base.shape), device=subject.device)
    shift = _Shift()
    with with_gradients(subject.model), subject.lesioned(), subject.heads.edited(shift):
        intact = subject.forward(batch)
        gradients = torch.autograd.grad(
            intact.loss.sum(), [shift.added[site.index] for site in subject.heads.sites]
        )
    subject.answers.keep(batch, intact)
    real = real_columns(subject.model.encoder, batch.inputs).float()  # (rows, tokens)
    for site, gradient in zip(subject.heads.sites, gradients, strict=True):
        centre = mean[site.index, : site.n_heads, : site.head_dim]
        slope, output = (shift.seen.rows(site, x).float() for x in (gradient, shift.outputs[site.index]))
        change = (centre - output) * real[..., None, None]  # (rows, tokens, heads, head_dim)
        by_row = (slope * change).sum(dim=(1, 3))  # (rows, heads)
        effects[:, site.index, : site.n_heads].index_add_(0, batch.owner, by_row)
    return effects * subject.base
