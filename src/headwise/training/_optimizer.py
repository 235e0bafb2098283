"""Optimizer, learning-rate schedule, and balancing the losses of tasks."""

from math import ceil
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.training._settings import Train


def build_optimizer(trained: nn.Module, model: Any, settings: Train) -> torch.optim.Optimizer:
    """The optimizer over everything trainable, in three groups with their own learning rates: encoder,
    decoders, and the rest.

    Args:
        trained: what is trained.
        model: has `encoder` and `decoders`; what `trained` has beyond them (gates, projections) is "the
            rest".
        settings: learning rates, decay, moments; AdamW runs fused, so that a step costs no Python loop over
            parameters.
    """
    decoders, encoder = set(model.decoders.parameters()), set(model.encoder.parameters())
    parameters_by_group: dict[str, list[nn.Parameter]] = {"encoder": [], "decoders": [], "gates": []}
    for param in trained.parameters():
        if param.requires_grad:
            group = "gates"
            if param in decoders:
                group = "decoders"
            elif param in encoder:
                group = "encoder"
            parameters_by_group[group].append(param)
    rates = {
        "encoder": settings.learning_rate,
        "decoders": settings.decoder_learning_rate or settings.learning_rate,
        "gates": settings.gate_learning_rate or settings.learning_rate,
    }
    groups = [
        {"params": params, "lr": rates[name], "name": name}
        for name, params in parameters_by_group.items()
        if params
    ]
    if not groups:
        raise HeadwiseError("nothing is trainable: every parameter is frozen")
    decay: dict[str, Any] = {"weight_decay": settings.weight_decay}
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, betas=settings.betas, eps=settings.eps, fused=True, **decay)
    if settings.optimizer == "adamax":
        return torch.optim.Adamax(groups, betas=settings.betas, eps=settings.eps, foreach=True, **decay)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=settings.betas[0], foreach=True, **decay)
    return torch.optim.Adafactor(groups, foreach=True, **decay)


def build_schedule(
    optimizer: torch.optim.Optimizer, steps: int, settings: Train
) -> torch.optim.lr_scheduler.LambdaLR:
    """Linear warm-up from 0 over the first `warmup` of the steps, then linear decay to 0 (or a constant
    rate), as transformers has it."""
    rising = ceil(settings.warmup * steps)

    def factor(step: int) -> float:
        if step < rising:
            return step / rising
        if settings.schedule == "constant":
            return 1.0
        return max(0.0, (steps - step) / max(steps - rising, 1))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


class LossBalance:
    """Scales each task's loss by (sum of the tasks' mean losses) ÷ (its own), over each task's last `window`
    steps (He & Choi 2021).

    The losses stay on the device: no step waits for one to be read.

    Args:
        tasks: how many.
        window: steps of a task its mean is over.
        device: where the losses live.
    """

    def __init__(self, tasks: int, window: int, device: torch.device) -> None:
        self.recent = torch.zeros(tasks, window, device=device)
        self.seen = torch.zeros(tasks, dtype=torch.long, device=device)

    def scale(self, task: int, loss: Tensor) -> Tensor:
        """Records the mean loss of a step of `task` and returns the factor for it, a scalar; tasks not yet
        seen count as 0."""
        window = self.recent.shape[1]
        self.recent[task].index_copy_(
            0, self.seen[task : task + 1] % window, loss.detach().float().reshape(1)
        )
        self.seen[task] += 1
        means = self.recent.sum(dim=1) / self.seen.clamp(1, window)  # (tasks,)
        return means.sum() / means[task].clamp(min=1e-8)

    def state_dict(self) -> dict[str, Any]:
        return {"recent": self.recent, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.recent.copy_(state["recent"])
        self.seen.copy_(torch.as_tensor(state["seen"]))
