"""Scoring the heads of a model in the middle of its training."""

from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr

from headwise._passes.answers import unjudged
from headwise.scoring import gate_gradient

if TYPE_CHECKING:
    from headwise.training._loop import TrainingRun


def score_tasks(run: "TrainingRun", examples: int | None, variant: str) -> dict[str, xr.DataArray]:
    """See `TrainingRun.score_tasks`."""
    rank, world = run.accelerator.process_index, run.accelerator.num_processes
    importances = torch.zeros(len(run.tasks), *run.heads.shape, dtype=torch.float64, device=run.model.device)
    for i, task in list(enumerate(run.tasks))[rank::world]:
        with run.accelerator.autocast(), unjudged():
            scores = gate_gradient(
                run.model,
                task.with_splits(train=run.encoded[i].examples),
                variant=variant,  # type: ignore[arg-type]  # checked where it is chosen
                examples=examples,
                max_length=run.max_length,
                seed=run.settings.seed,
                heads=run.heads,
                quiet=run.settings.quiet,
            )
        importances[i] = torch.from_numpy(scores.fillna(0).to_numpy())
    if world > 1:
        importances = run.accelerator.reduce(importances, "sum")
    values = np.where(run.heads.valid.cpu().numpy(), importances.cpu().numpy(), np.nan)
    return {name: xr.DataArray(values[i], dims=("layer", "head")) for i, name in enumerate(run.names)}
