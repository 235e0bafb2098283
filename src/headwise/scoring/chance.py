"""`random`: scores that know nothing, as a baseline for every method that reads scores."""

from typing import Any, Unpack

import numpy as np
import xarray as xr

from headwise.passes.subject import Reading, open_subject
from headwise.scoring.result import as_scores
from headwise.tasks.task import Task


def random_scores(model: Any, task: Task, **reading: Unpack[Reading]) -> xr.DataArray:
    """Uniform scores in 0–1 by seed; the task plays no part.

    Args:
        model: a multi-task model, or a plain transformers model with a head.
        task: named in the attributes.
        reading: see `Reading`; only seed, silenced and heads matter.
    """
    reading["examples"] = 1
    subject = open_subject(model, task, **reading)
    return as_scores(np.random.default_rng(subject.seed).random(subject.heads.shape), subject, "random")
