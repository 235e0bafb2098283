"""`random`: scores that know nothing, as a baseline for every method that reads scores."""

from typing import Any

import numpy as np
import xarray as xr

from headwise._passes.answers import MOST
from headwise._passes.subject import prepare
from headwise.scoring._result import as_scores
from headwise.scoring._settings import Reading
from headwise.settings import operation
from headwise.tasks import Task


@operation(Reading)
def random_scores(model: Any, task: Task, settings: Reading) -> xr.DataArray:
    """Uniform scores in 0–1 by seed; the task plays no part, and examples are read only to judge the
    model."""
    subject = prepare(model, task, settings.with_changes(examples=min(settings.examples or MOST, MOST)))
    return as_scores(
        np.random.default_rng(subject.seed).random(subject.heads.shape), subject, "random", "magnitude"
    )
