"""Fitting gates on a frozen model: the loop that the learnt estimators share."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from headwise._base.progress import track
from headwise._passes.frozen import frozen, with_gradients
from headwise._passes.subject import TaskSubject
from headwise.errors import HeadwiseError
from headwise.models import check_losses

LOOK = 50  # steps after which losses are looked at
REMEDY = "lower the learning rate (lr), or score a model whose losses are numbers"


def fit_gates(
    subject: TaskSubject,
    weights: Sequence[Tensor],
    gates_of: Callable[[int, int], Tensor],
    penalty_of: Callable[[int], Tensor],
    *,
    steps: int,
    lr: float,
    description: str,
) -> None:
    """Minimises the task's mean loss under gates, plus a penalty, by Adam; the model itself does not learn.

    Args:
        subject: the model and the task; batches come shuffled, pass after pass.
        weights: what is learnt, changed in place.
        gates_of: from the step and the number of examples to gates (layers, heads) or (examples, layers,
            heads).
        penalty_of: from the step to a number.
        steps: batches.
        lr: Adam's learning rate.
        description: for the progress bar.

    Raises:
        HeadwiseError: a loss is NaN or infinite.
    """
    if steps < 1:
        raise HeadwiseError(f"steps is {steps}; at least 1 is needed")
    optimizer = torch.optim.Adam(weights, lr=lr)
    losses: list[torch.Tensor] = []
    setting = f"task {subject.task.name!r}, learning rate {lr:.3g}"
    plan, epoch, used = subject.shuffled(0), 0, 0
    with frozen(subject.model), with_gradients(subject.model):
        for step in track(range(steps), description, quiet=subject.quiet):
            if used == len(plan):
                epoch, used = epoch + 1, 0
                plan = subject.shuffled(epoch)
            batch = plan[used].to(subject.device)
            used += 1
            loss = subject.forward(batch, gates_of(step, len(batch)) * subject.base).loss.mean() + penalty_of(
                step
            )
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            losses.append(loss.detach())
            if len(losses) == LOOK or step == steps - 1:  # not in every step: a GPU would wait
                name_of = partial(_step_name, step + 1 - len(losses), setting)
                check_losses(torch.stack(losses).cpu(), name_of, remedy=REMEDY)
                losses.clear()


def _step_name(first: int, setting: str, number: int) -> str:
    return f"step {first + number} ({setting})"


def generator(subject: TaskSubject) -> torch.Generator:
    """Chance for gates, drawn on the CPU so that every device sees the same."""
    return torch.Generator().manual_seed(subject.seed)
