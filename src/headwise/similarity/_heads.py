"""Tasks compared by the heads they use: their score vectors or their gates."""

from typing import Literal

import numpy as np
import xarray as xr
from scipy.stats import rankdata

from headwise._base.senses import importance
from headwise.errors import HeadwiseError
from headwise.similarity._matrices import pairwise


def head_similarity(
    scores: xr.DataArray,
    how: Literal["spearman", "pearson", "cosine", "overlap"] = "spearman",
    *,
    fraction: float = 0.3,
) -> xr.DataArray:
    """Similarity of tasks from their head scores (or gates).

    Args:
        scores: dims (task, layer, head), NaN where a layer has no such head; further dims (seed, say) are
            averaged first.
        how: rank correlation, correlation or cosine of the vectors over all heads, or the overlap |A ∩ B| ÷ n
            of the top `fraction` of heads, as `headwise.top_heads` chooses them.
        fraction: for "overlap".

    Returns:
        DataArray (task, other), 1 on the diagonal.
    """
    missing = {"task", "layer", "head"} - set(map(str, scores.dims))
    if missing:
        raise HeadwiseError(
            f"head scores need the dims task, layer and head; {sorted(missing)} missing, got "
            f"{list(scores.dims)}"
        )
    extra = [dim for dim in scores.dims if dim not in ("task", "layer", "head")]
    mean = scores.mean(extra, keep_attrs=True).transpose("task", "layer", "head")
    ranked = importance(mean) if how == "overlap" else mean.to_numpy()
    table = ranked.reshape(scores.sizes["task"], -1)  # (tasks, heads)
    table = table[:, ~np.isnan(table).all(0)]
    if np.isnan(table).any():
        raise HeadwiseError(
            "some heads have a score for one task and none (NaN) for another: the tasks come from different "
            "models"
        )
    if how == "overlap":
        count = int(np.floor(fraction * table.shape[1] + 1e-9))
        if not count > 0:
            raise HeadwiseError(
                f"the top {fraction:g} of {table.shape[1]} heads is none: choose a larger fraction"
            )
        top = np.argsort(-table, axis=1, kind="stable")[:, :count]
        table = np.zeros_like(table)
        np.put_along_axis(table, top, 1.0, axis=1)
    elif how == "spearman":
        table = np.stack([rankdata(row) for row in table])
    elif how not in ("pearson", "cosine"):
        raise HeadwiseError(f"{how!r} is unknown; use spearman, pearson, cosine or overlap")
    if how in ("spearman", "pearson"):
        table = table - table.mean(1, keepdims=True)
    length = np.linalg.norm(table, axis=1, keepdims=True)
    names = [str(name) for name in scores["task"].values]
    if (length == 0).any():
        raise HeadwiseError(
            f"all heads of {names[int((length == 0).argmax())]} have the same score: nothing to compare"
        )
    rows = dict(zip(names, table / length, strict=True))
    return pairwise(rows, lambda a, b: float(a @ b), f"heads-{how}", heads=int(table.shape[1]))
