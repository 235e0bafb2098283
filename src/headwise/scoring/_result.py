"""The result of every estimator: a labelled array of one score per head."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from torch import Tensor

from headwise._base.senses import Sense
from headwise._passes.subject import TaskSubject
from headwise.models import check_scores


def as_scores(
    values: ArrayLike | Tensor, subject: TaskSubject, method: str, sense: Sense, **settings: Any
) -> xr.DataArray:
    """Scores (layer, head) with the settings in their attributes.

    Args:
        values: (layers, heads).
        subject: what was scored.
        method: the estimator's name.
        sense: "signed" where 0 is no effect and scores below it mean harm; else "magnitude": the higher, the
            more important.
        settings: its options; plain values.

    Returns:
        NaN where a layer has no such head, and for heads that were silenced from the start.

    Raises:
        HeadwiseError: a head that is scored has no finite score, or losses were NaN.
    """
    if isinstance(values, Tensor):
        values = values.detach().double().cpu().numpy()
    array = np.asarray(values, dtype=float)
    scored = subject.scored.cpu().numpy()
    check_scores(array, scored, method, subject.task.name)
    subject.check_losses()
    array = np.where(scored, array, np.nan)  # (layers, heads)
    coords = {"layer": np.arange(array.shape[0]), "head": np.arange(array.shape[1])}
    return xr.DataArray(
        array,
        dims=("layer", "head"),
        coords=coords,
        name="score",
        attrs=subject.describe(method, sense=sense, **settings),
    )
