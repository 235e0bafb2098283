"""`gate-gradient`: how sensitive the loss is to each head's gate (functional specialization Eq. 4, after
Michel et al. 2019)."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import xarray as xr
from torch import Tensor

from headwise._passes.frozen import frozen, with_gradients
from headwise._passes.subject import TaskSubject, prepare
from headwise.scoring._result import as_scores
from headwise.scoring._settings import VARIANTS, Reading
from headwise.settings import operation, option
from headwise.tasks import Batch, Task

Level = Literal["example", "token", "batch"]
Divisor = Literal["examples", "tokens", "batches", "tokens, last layer examples", "tokens, last layer none"]


class GateGradient(Reading):
    """Settings of `gate_gradient`; those after the variant override what it stands for."""

    variant: Literal["eq4", "michel", "iap", "iat", "bertology", "super-tickets"] = option(
        "eq4",
        "Published code to follow: eq4 (the equation), michel (Michel et al. 2019, BERT), iap and iat "
        "(released codes of the paper), bertology (the widespread script), super-tickets (Liang et al. "
        "2021).",
    )
    absolute: Level | None = option(
        None,
        "Where the absolute value is taken: of each example, each token, or the mean loss of each batch "
        "(scores then depend on the batch size).",
    )
    divisor: Divisor | None = option(
        None,
        "What the sum is divided by; the last layer may be divided by examples, since only the first token "
        "has a gradient there, or by nothing, so that its heads always rank first.",
    )
    layer_norm: bool | None = option(None, "Divide each layer by its L2 norm.")
    min_max: bool | None = option(None, "Then scale the scores of the whole model to 0-1.")


@operation(GateGradient)
def gate_gradient(model: Any, task: Task, settings: GateGradient) -> xr.DataArray:
    """I_h = E |∂L/∂ξ_h| (Eq. 4): the mean over examples of the absolute derivative of the loss by the head's
    gate, at gate 1.

    One backward pass of a batch's summed loss, with a gate for each of its rows and all weights frozen, gives
    every example's own derivatives, so the absolute value is taken per example, as the equation says.

    Returns:
        (layer, head), 0 or more.
    """
    variant: dict[str, Any] = dict(VARIANTS[settings.variant])
    for name in ("absolute", "divisor", "layer_norm", "min_max"):
        if getattr(settings, name) is not None:
            variant[name] = getattr(settings, name)
    formula = _Formula(**variant)
    subject = prepare(model, task, settings)
    with frozen(subject.model):
        total = _total(subject, formula)
    scores = _normalised(total, subject.scored, formula)
    return as_scores(scores, subject, "gate-gradient", "magnitude", variant=settings.variant, **vars(formula))


@dataclass(frozen=True)
class _Formula:
    """What a variant computes, as the settings have it."""

    absolute: Level = "example"
    divisor: Divisor = "examples"
    layer_norm: bool = False
    min_max: bool = False


def example_gradients(subject: TaskSubject, batch: Batch, level: float = 1.0) -> Tensor:
    """Every example's own ∂L/∂ξ where all gates stand at `level`, (batch, layers, heads), from one backward
    pass."""
    gates = (level * subject.base).repeat(len(batch), 1, 1).requires_grad_()  # (batch, layers, heads)
    return _gradient(subject, batch, gates, intact=level == 1)


def token_gradients(subject: TaskSubject, batch: Batch) -> Tensor:
    """Every token's own ∂L/∂ξ, (rows, tokens, layers, heads): L is the example's loss, ξ scales the head at
    that token only."""
    rows, tokens = batch.inputs["input_ids"].shape
    gates = (
        subject.base.expand(rows, tokens, -1, -1).clone().requires_grad_()
    )  # (rows, tokens, layers, heads)
    return _gradient(subject, batch, gates)


def _gradient(subject: TaskSubject, batch: Batch, gates: Tensor, intact: bool = True) -> Tensor:
    rows = gates
    if gates.ndim == 3 and len(batch.owner) != len(batch):  # as in `TaskSubject.forward`
        rows = gates[batch.owner]
    # the gates stay open until layers have been repeated, under gradient checkpointing
    with with_gradients(subject.model), subject.heads.gated(rows):
        # rows do not see each other, so the derivative of the sum by a row's gates is that of the row's own
        # loss
        output = subject.plain(batch)
        (gradient,) = torch.autograd.grad(output.loss.sum(), gates)
    if intact:
        subject.answers.keep(batch, output)
    return gradient * subject.base


def _total(subject: TaskSubject, formula: _Formula) -> Tensor:
    """The sum of absolute derivatives over its divisor, (layers, heads)."""
    total = torch.zeros_like(subject.base, dtype=torch.float64)
    examples = tokens = count = 0
    plan = subject.plan_in_order() if formula.absolute == "batch" else subject.plan()
    for batch in subject.read(plan, f"scoring {subject.task.name}"):
        if formula.absolute == "token":
            total += token_gradients(subject, batch).abs().sum(dim=(0, 1), dtype=torch.float64)
        elif formula.absolute == "example":
            total += example_gradients(subject, batch).abs().sum(dim=0, dtype=torch.float64)
        else:
            total += example_gradients(subject, batch).mean(dim=0, dtype=torch.float64).abs()
        examples += len(batch)
        count += 1
        if "tokens" in formula.divisor:
            tokens += int(batch.inputs["attention_mask"].sum())
    divisor = {"examples": examples, "batches": count}.get(formula.divisor, tokens)
    by_layer = torch.full((total.shape[0], 1), divisor, dtype=torch.float64, device=total.device)
    if formula.divisor == "tokens, last layer examples":
        by_layer[-1] = examples
    elif formula.divisor == "tokens, last layer none":
        by_layer[-1] = 1
    return total / by_layer


def _normalised(total: Tensor, scored: Tensor, formula: _Formula) -> Tensor:
    if formula.layer_norm:
        # the tiny number is Michel et al.'s: a layer without any gradient stays 0
        total = total / (total.square().sum(dim=1, keepdim=True).sqrt() + 1e-20)
    if formula.min_max:
        low, high = total[scored].min(), total[scored].max()
        if not high > low:
            return torch.zeros_like(total)
        total = (total - low) / (high - low)
    return total
