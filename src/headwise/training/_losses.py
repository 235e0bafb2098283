"""The losses of a training's steps: left on the device, fetched many at a time, and looked at then."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.models import check_losses, check_weights, rates_in_words

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun


class Losses:
    """Fills `run.losses`, and stops a training whose losses are no numbers.

    No step waits for its loss: they are fetched at every record, evaluation, checkpoint and branch, where the
    host waits anyway.
    """

    def __init__(self, run: "TrainingRun") -> None:
        self.run = run
        self.unrecorded: list[Tensor] = []

    def fetch(self) -> None:
        """Reads the losses since the last record, in one transfer.

        Raises:
            HeadwiseError: too many in a row are NaN or infinite (`nonfinite_steps`).
        """
        if not self.unrecorded:
            return
        run = self.run
        losses = torch.stack(self.unrecorded)
        if run.accelerator.num_processes > 1:
            losses = run.accelerator.reduce(losses, "sum")
        first = run.step - len(self.unrecorded)
        run.losses[first : run.step] = losses.float().cpu().numpy()
        endured = run.settings.nonfinite_steps
        before = max(0, first - endured)  # a row of them may have begun before the last record
        check_losses(run.losses[before : run.step], lambda step: self._in_words(before + step), endured)

    def record(self) -> None:
        """Fetches the losses since the last time, and tells the trackers."""
        run = self.run
        self.fetch()
        first = run.step - len(self.unrecorded)
        self.unrecorded.clear()
        if run.settings.trackers and first < run.step:
            new, tasks = run.losses[first : run.step], run.plan[first : run.step]
            means = {f"loss/{name}": new[tasks == i] for i, name in enumerate(run.names)}
            values = {name: float(mean.mean()) for name, mean in means.items() if len(mean)}
            run.accelerator.log(
                {**values, "learning_rate": float(run.schedule.get_last_lr()[0])}, step=run.step
            )

    def check_weights(self) -> None:
        """Refuses a training that has ended with weights that are NaN: after its last step no loss shows
        it."""
        check_weights(self.run.trained)

    def _in_words(self, step: int) -> str:
        run, schedule = self.run, self.run.schedule
        factors = zip(run.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True)
        rates = [(group["name"], float(base) * factor(step)) for group, base, factor in factors]
        return f"step {step} (task {run.names[run.plan[step]]!r}, {rates_in_words(rates)})"
