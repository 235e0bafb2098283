"""The result of every estimator: a labelled array of one score per head."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from torch import Tensor

from headwise._passes.subject import Subject


def as_scores(values: ArrayLike | Tensor, subject: Subject, method: str, **settings: Any) -> xr.DataArray:
    """Scores (layer, head) with the settings in their attributes.

    Args:
        values: (layers, heads).
        subject: what was scored.
        method: the estimator's name.
        settings: its options; plain values.

    Returns:
        NaN where a layer has no such head, and for heads that were silenced from the start.
    """
    array = values.detach().double().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values, dtype=float)
    array = np.where(subject.scored.cpu().numpy(), array, np.nan)  # (layers, heads)
    coords = {"layer": np.arange(array.shape[0]), "head": np.arange(array.shape[1])}
    return xr.DataArray(array, dims=("layer", "head"), coords=coords, name="score", attrs=subject.describe(method, **settings))
