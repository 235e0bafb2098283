"""`compare_scores`: how far two rankings of heads agree, between estimators, seeds or tasks."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from headwise.errors import HeadwiseError
from headwise.scoring.selection import count_for

Array = NDArray[np.float64]
MIN_SEEDS = 8  # with fewer, resampling seeds would give far too narrow intervals


def compare_scores(
    scores: xr.DataArray | Mapping[str, xr.DataArray],
    *,
    fraction: float = 0.3,
    level: float = 0.95,
    draws: int = 999,
    seed: int = 0,
) -> pd.DataFrame:
    """Rank correlation and overlap of the top heads, for every pair of score arrays, with intervals.

    Args:
        scores: arrays by name, or one array with exactly one dim beside layer and head (method, task or seed) whose entries are
            compared. Arrays may share a further dim "seed": then statistics are taken within seeds and averaged.
        fraction: the share of heads called top.
        level: of the intervals.
        draws: bootstrap samples.
        seed: of the bootstrap.

    Returns:
        one row per pair (a, b): `spearman` (average ranks for ties) and `overlap` (|A∩B| ÷ n of the top heads, 0–1), each with
        `_low` and `_high`; `chance`, the overlap two random sets would have; `over`, what was resampled for the interval: seeds
        where there are eight or more, otherwise heads (how much the figure hangs on single heads of this one model).
    """
    named = _named(scores)
    if len(named) < 2:
        raise HeadwiseError(f"there is {len(named)} array to compare; give two or more")
    rng = np.random.default_rng(seed)
    rows = []
    for (a, left), (b, right) in combinations(named.items(), 2):
        x, y = _common(a, left, b, right)  # (seeds, heads)
        rows.append({"a": a, "b": b, **_agreement(x, y, fraction, level, draws, rng)})
    return pd.DataFrame(rows)


def spearman(x: Array, y: Array) -> Array:
    """Spearman's correlation along the last axis, with average ranks."""
    rx, ry = (stats.rankdata(v, axis=-1) for v in (x, y))
    rx, ry = (r - r.mean(axis=-1, keepdims=True) for r in (rx, ry))
    spread = np.sqrt((rx**2).sum(-1) * (ry**2).sum(-1))
    return np.asarray(np.divide((rx * ry).sum(-1), spread, out=np.full(spread.shape, np.nan), where=spread > 0))


def top_overlap(x: Array, y: Array, n: int) -> Array:
    """|A∩B| ÷ n of the n highest entries along the last axis; equal scores go to the earlier entry."""
    if n == 0:
        return np.full(x.shape[:-1], np.nan)
    chosen = []
    for values in (x, y):
        mask = np.zeros(values.shape, dtype=bool)
        np.put_along_axis(mask, np.argsort(-values, axis=-1, kind="stable")[..., :n], True, axis=-1)
        chosen.append(mask)
    return np.asarray((chosen[0] & chosen[1]).sum(axis=-1) / n)


def _agreement(x: Array, y: Array, fraction: float, level: float, draws: int, rng: np.random.Generator) -> dict[str, object]:
    seeds, heads = x.shape
    n = count_for(fraction, heads)
    rho, overlap = spearman(x, y), top_overlap(x, y, n)  # (seeds,)
    if seeds >= MIN_SEEDS:
        picked = rng.integers(0, seeds, (draws, seeds))
        samples = rho[picked].mean(axis=1), overlap[picked].mean(axis=1)
    else:
        picked = rng.integers(0, heads, (draws, heads))
        # heads are drawn in ascending order, so that ties still go to the lower (layer, head)
        xs, ys = (np.moveaxis(v[:, np.sort(picked, axis=1)], 1, 0) for v in (x, y))  # (draws, seeds, heads)
        samples = spearman(xs, ys).mean(axis=1), top_overlap(xs, ys, n).mean(axis=1)
    tail = (1 - level) / 2
    row: dict[str, object] = {}
    for name, values, sample in (("spearman", rho, samples[0]), ("overlap", overlap, samples[1])):
        low, high = np.nanquantile(sample, [tail, 1 - tail]) if np.isfinite(sample).any() else (np.nan, np.nan)
        row |= {name: float(values.mean()), f"{name}_low": float(low), f"{name}_high": float(high)}
    return row | {"chance": n / heads, "heads": n, "seeds": seeds, "over": "seeds" if seeds >= MIN_SEEDS else "heads"}


def _named(scores: xr.DataArray | Mapping[str, xr.DataArray]) -> dict[str, xr.DataArray]:
    if isinstance(scores, Mapping):
        return {str(name): array for name, array in scores.items()}
    beside = [str(dim) for dim in scores.dims if dim not in ("layer", "head")]
    along = [dim for dim in beside if dim != "seed"] or beside
    if len(along) != 1:
        raise HeadwiseError(f"scores have dims {scores.dims}; expected layer, head and one more whose entries are compared")
    names = scores[along[0]].to_numpy() if along[0] in scores.coords else range(scores.sizes[along[0]])
    return {str(name): scores.isel({along[0]: i}) for i, name in enumerate(names)}


def _common(a: str, left: xr.DataArray, b: str, right: xr.DataArray) -> tuple[Array, Array]:
    """Both as (seeds, heads), over the heads that both have; one seed where there is no such dim."""
    flat = []
    for name, array in ((a, left), (b, right)):
        array = array if "seed" in array.dims else array.expand_dims("seed")
        if set(array.dims) != {"seed", "layer", "head"}:
            raise HeadwiseError(f"scores {name!r} have dims {array.dims}; expected layer and head (and seed)")
        flat.append(array.transpose("seed", "layer", "head").to_numpy().astype(float))
    if flat[0].shape != flat[1].shape:
        raise HeadwiseError(
            f"scores {a!r} and {b!r} have shapes {flat[0].shape} and {flat[1].shape}: are they of the same model?"
        )
    x, y = (values.reshape(len(values), -1) for values in flat)
    both = ~(np.isnan(x).any(axis=0) | np.isnan(y).any(axis=0))
    return x[:, both], y[:, both]
