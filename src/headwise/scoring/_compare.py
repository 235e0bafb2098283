"""`compare_scores`: how far two rankings of heads agree, between estimators, seeds or tasks."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pandas as pd
import scipy
import xarray as xr
from numpy.typing import NDArray

from headwise._base.inference import MIN_SEEDS, t_interval
from headwise._base.senses import Sense, importance
from headwise.errors import HeadwiseError
from headwise.scoring._selection import count_for

Array = NDArray[np.float64]


def compare_scores(
    scores: xr.DataArray | Mapping[str, xr.DataArray],
    *,
    fraction: float = 0.3,
    level: float = 0.95,
    by: Sense = "magnitude",
) -> pd.DataFrame:
    """Rank correlation and overlap of the top heads, for every pair of score arrays, with intervals.

    Args:
        scores: arrays by name, or one array with exactly one dim beside layer and head (method, task or seed)
            whose entries are compared. Arrays may share a further dim "seed": then statistics are taken
            within seeds and averaged.
        fraction: the share of heads called top.
        level: of the intervals.
        by: as for `top_heads`: signed scores are compared by their size, or as they are ("signed").

    Returns:
        one row per pair (a, b): `spearman` (average ranks for ties) and `overlap` (|A∩B| ÷ n of the top
        heads, 0–1), each with `_low` and `_high`, Student's t interval over seeds; `chance`, the overlap two
        random sets would have; `over`, what the interval generalises to: "seeds", or empty below eight seeds,
        where there is none; nor is there one where all seeds agree to the last digit. (The heads of one model
        are all there are, and depend on one another: resampling them would say nothing of other models.)
    """
    named = _named(scores)
    if len(named) < 2:
        raise HeadwiseError(f"{len(named)} array given; a comparison needs at least two")
    rows = []
    for a, b in combinations(named, 2):
        x, y = _common({name: named[name] for name in (a, b)}, by)  # (seeds, heads)
        rows.append({"a": a, "b": b, **_agreement(x, y, fraction, level)})
    return pd.DataFrame(rows)


def spearman(x: Array, y: Array) -> Array:
    """Spearman's correlation along the last axis, with average ranks."""
    rx, ry = (scipy.stats.rankdata(v, axis=-1) for v in (x, y))
    rx, ry = (r - r.mean(axis=-1, keepdims=True) for r in (rx, ry))
    spread = np.sqrt((rx**2).sum(-1) * (ry**2).sum(-1))
    return np.asarray(
        np.divide((rx * ry).sum(-1), spread, out=np.full(spread.shape, np.nan), where=spread > 0)
    )


def top_overlap(x: Array, y: Array, n: int) -> Array:
    """|A∩B| ÷ n of the n highest entries along the last axis; equal scores go to the earlier entry."""
    if n == 0:
        return np.full(x.shape[:-1], np.nan)
    both = np.ones(x.shape, dtype=bool)
    for values in (x, y):
        top = np.zeros(values.shape, dtype=bool)
        np.put_along_axis(top, np.argsort(-values, axis=-1, kind="stable")[..., :n], True, axis=-1)
        both &= top
    return np.asarray(both.sum(axis=-1) / n)


def _agreement(x: Array, y: Array, fraction: float, level: float) -> dict[str, object]:
    seeds, heads = x.shape
    n = count_for(fraction, heads)
    row: dict[str, object] = {}
    for name, values in (("spearman", spearman(x, y)), ("overlap", top_overlap(x, y, n))):  # (seeds,)
        low, high = np.full(2, np.nan)
        if seeds >= MIN_SEEDS:
            low, high = t_interval(values, level)
        row |= {name: float(values.mean()), f"{name}_low": float(low), f"{name}_high": float(high)}
    return row | {
        "chance": n / heads,
        "heads": n,
        "seeds": seeds,
        "over": "seeds" if seeds >= MIN_SEEDS else "",
    }


def _named(scores: xr.DataArray | Mapping[str, xr.DataArray]) -> dict[str, xr.DataArray]:
    if isinstance(scores, Mapping):
        return {str(name): array for name, array in scores.items()}
    beside = [str(dim) for dim in scores.dims if dim not in ("layer", "head")]
    along = [dim for dim in beside if dim != "seed"] or beside
    if len(along) != 1:
        raise HeadwiseError(
            f"scores have dims {scores.dims}; expected layer, head and one more whose entries are compared"
        )
    names = scores[along[0]].to_numpy() if along[0] in scores.coords else range(scores.sizes[along[0]])
    return {str(name): scores.isel({along[0]: i}) for i, name in enumerate(names)}


def _common(named: Mapping[str, xr.DataArray], by: Sense) -> tuple[Array, Array]:
    """Two arrays as (seeds, heads), over the heads that both have; one seed where there is no such dim."""
    flat = []
    for name, array in named.items():
        if "seed" not in array.dims:
            array = array.expand_dims("seed")
        if set(array.dims) != {"seed", "layer", "head"}:
            raise HeadwiseError(f"scores {name!r} have dims {array.dims}; expected layer and head (and seed)")
        flat.append(importance(array.transpose("seed", "layer", "head"), by))
    if flat[0].shape != flat[1].shape:
        a, b = named
        raise HeadwiseError(
            f"scores {a!r} and {b!r} have shapes {flat[0].shape} and {flat[1].shape}: "
            "are they of the same model?"
        )
    x, y = (values.reshape(len(values), -1) for values in flat)
    both = ~(np.isnan(x).any(axis=0) | np.isnan(y).any(axis=0))
    return x[:, both], y[:, both]
