"""Losses of a Hugging Face `Trainer`'s steps, which its own log replaces by their average where they are
NaN."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headwise.models import check_losses, check_weights, rates_in_words

LOOK = 50  # steps after which losses are looked at, where nothing is logged, evaluated or saved before


class TrainerLosses:
    """Keeps the losses that a model returns while it trains, and stops the training if they are no numbers.

    Args:
        model: what the Trainer trains.
        optimizer: whose learning rates an error names.
        endured: this many steps in a row are one too many.
    """

    def __init__(self, model: nn.Module, optimizer: Any, endured: int) -> None:
        self.model, self.optimizer, self.endured = model, optimizer, endured
        self.steps: list[list[Tensor]] = []  # losses of the micro-batches of each step
        self.facts: list[tuple[int, str, str]] = []  # number, task and learning rates of each step
        self._hook = model.register_forward_hook(self._keep)

    def begin(self, step: int) -> None:
        """A step begins."""
        rates = [
            (str(number), float(group["lr"])) for number, group in enumerate(self.optimizer.param_groups)
        ]
        self.facts.append((step, "", rates_in_words(rates)))
        self.steps.append([])

    def name(self, task: str) -> None:
        """The task of the present step."""
        if self.facts:
            step, _, rates = self.facts[-1]
            self.facts[-1] = step, f"task {task!r}, ", rates

    def look(self, due: bool = True) -> None:
        """Looks at the losses, if that is due or there are many of them.

        Raises:
            HeadwiseError: too many in a row are NaN or infinite.
        """
        if not (due or len(self.steps) >= LOOK + self.endured):
            return
        sums = [torch.stack(losses).float().sum() if losses else torch.zeros(()) for losses in self.steps]
        step_losses = torch.stack([total.cpu() for total in sums]).tolist() if sums else []
        check_losses(step_losses, self._in_words, self.endured)
        # a row of bad ones may have begun
        del self.steps[: -self.endured], self.facts[: -self.endured]

    def finish(self) -> None:
        """The training has ended: looks at all that is left, and at the weights."""
        self.look()
        check_weights(self.model)

    def remove(self) -> None:
        """Looks at no further pass."""
        self._hook.remove()

    def _in_words(self, index: int) -> str:
        step, task, rates = self.facts[index]
        return f"step {step} ({task}{rates})"

    def _keep(self, module: nn.Module, args: Any, output: Any) -> None:
        loss: Any = None
        if isinstance(output, Mapping):
            loss = output.get("loss")
        elif isinstance(output, tuple):
            loss = output[0]
        if module.training and self.steps and isinstance(loss, Tensor) and loss.numel() == 1:
            self.steps[-1].append(loss.detach().reshape(()))
