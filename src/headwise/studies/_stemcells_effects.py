"""What training the tasks together does to stem-cell heads, measured by probes of every run, on heads that other runs chose."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from headwise._base.inference import t_interval
from headwise.errors import HeadwiseError
from headwise.studies._stemcells import SHARE, Bools, alone_in, check_dims, mean_of, sole_claims, stem_cells, stem_in


@dataclass(frozen=True)
class Effect:
    """A difference measured in every run.

    Attributes:
        runs: (runs,) its value in each; NaN where a run had no heads to measure it on.
        mean, low, high: mean over runs with its 95 % interval (Student's t; infinite for a single run, NaN where all
            runs have the same value).
        heads: heads it was measured on, per run: stem-cell heads, and those they are compared with (summed over tasks).
    """

    runs: tuple[float, ...]
    mean: float
    low: float
    high: float
    heads: tuple[tuple[int, int], ...]


def stem_cell_effect(
    claims: xr.DataArray,
    before: xr.DataArray,
    after: xr.DataArray,
    *,
    share: float = SHARE,
    against: Literal["alone", "layer"] = "alone",
) -> Effect:
    """The test of the hypothesis: (change on stem-cell heads) − (change on heads that one task alone claims).

    The change is that of each task's probe score from `before` (trained alone) to `after` (trained with the others), averaged over
    heads, then over tasks. The hypothesis says that it is negative: heads that many tasks claim lose more. In every run the heads are
    chosen by the claims of the *other* runs: a head chosen for being good in a run would fall back in any second look at it, and that
    alone would look like the effect.

    Args:
        claims: (run, task, layer, head) bool; at least two runs.
        before, after: (run, task, layer, head) probe scores of the same runs and tasks.
        against: "alone", heads that one task alone claims; "layer", all other heads of the layers where stem-cell heads lie, each
            layer weighted by its stem-cell heads: training together may change some layers more than others, whoever claims their heads.
    """
    change = _paired("after", after, claims) - _paired("before", before, claims)
    if len(claims.run) < 2:
        raise HeadwiseError("the effect needs at least two runs: heads are chosen and measured on different runs")
    values, sizes, sets = [], [], claims.to_numpy()
    for run in range(len(claims.run)):
        others = np.delete(sets, run, axis=0)
        stem, alone = stem_in(others, share), alone_in(others)
        here = change.to_numpy()[run]  # (task, layer, head)
        if against == "alone":
            values.append(mean_of(_on(here, stem)) - mean_of(_on(here, alone)))  # tasks without heads of their own are left out
            sizes.append((int(stem.sum()), int(alone.sum())))
        else:
            mixed = [layer for layer, heads in enumerate(stem) if heads.any() and not heads.all()]
            gaps = [mean_of(_on(here[:, [i]], stem[[i]])) - mean_of(_on(here[:, [i]], ~stem[[i]])) for i in mixed]
            weights = stem[mixed].sum(1)
            values.append(float(np.average(gaps, weights=weights)) if mixed else float("nan"))
            sizes.append((int(weights.sum()), int((~stem[mixed]).sum())))
    return _effect(values, sizes)


def sparing(claims: xr.DataArray, plain: xr.DataArray, other: xr.DataArray, *, share: float = SHARE) -> Effect:
    """Does another way of training spare stem-cell heads? Their probe scores after it minus those after plain training; heads chosen
    on other runs, as in `stem_cell_effect`. Positive: they are spared."""
    gain = _paired("other", other, claims) - _paired("plain", plain, claims)
    values, sizes, sets = [], [], claims.to_numpy()
    for run in range(len(claims.run)):
        stem = stem_in(np.delete(sets, run, axis=0), share)
        values.append(mean_of(_on(gain.to_numpy()[run], stem)))
        sizes.append((int(stem.sum()), 0))
    return _effect(values, sizes)


def _on(values: NDArray[np.float64], heads: Bools) -> list[float]:
    """Each task's mean over these heads, (task, layer, head) by (layer, head) or (task, layer, head); without tasks that have none."""
    counted = np.broadcast_to(heads, values.shape) & ~np.isnan(values)
    number = counted.sum((1, 2))
    sums = np.where(counted, values, 0.0).sum((1, 2))
    return [float(total / n) for total, n in zip(sums, number, strict=True) if n]


def layer_changes(before: xr.DataArray, after: xr.DataArray) -> pd.DataFrame:
    """What training together does to each layer: task, layer, and the mean change of its heads' probe scores with its interval over runs.

    Args:
        before, after: (run, task, layer, head) probe scores of the same runs and tasks.
    """
    change = (after - before).mean("head")
    rows = []
    for task in change.task.values:
        for layer in change.layer.values:
            effect = _effect(change.sel(task=task, layer=layer).values.tolist(), [])
            rows.append({"task": str(task), "layer": int(layer), "change": effect.mean, "low": effect.low, "high": effect.high})
    return pd.DataFrame(rows)


def changes(claims: xr.DataArray, stages: Mapping[str, xr.DataArray]) -> pd.DataFrame:
    """Every task's mean probe score on the heads it claims, those it does not, stem-cell heads, and heads it alone claims.

    Args:
        claims: (run, task, layer, head) bool.
        stages: name ("untrained", "single", "multi", ...) to probe scores (run, task, layer, head) or (task, layer, head).

    Returns:
        task, heads ("claimed", "unclaimed", "stem", "alone"), stage, score (mean over runs), n (heads, mean over runs). Heads are those
        of all runs together: a description, not the test.
    """
    stem, alone = stem_cells(claims), sole_claims(claims)
    rows = []
    for stage, scores in stages.items():
        for task in claims.task.values:
            here = scores.sel(task=task)
            own = claims.sel(task=task)
            groups = {"claimed": own, "unclaimed": ~own, "stem": stem, "alone": alone.sel(task=task)}
            for name, group in groups.items():
                mean = here.where(group).mean(("layer", "head"))
                size = group.sum(("layer", "head")).mean()
                rows.append({"task": str(task), "heads": name, "stage": stage, "score": float(mean.mean()), "n": float(size)})
    return pd.DataFrame(rows)


def _effect(values: list[float], sizes: list[tuple[int, int]]) -> Effect:
    known = np.array([value for value in values if not np.isnan(value)])
    mean = float(known.mean()) if len(known) else float("nan")
    if len(known) < 2:
        return Effect(tuple(values), mean, float("-inf"), float("inf"), tuple(sizes))
    low, high = t_interval(known)  # NaN where all runs agree to the last digit
    return Effect(tuple(values), mean, float(low), float(high), tuple(sizes))


def _paired(what: str, scores: xr.DataArray, claims: xr.DataArray) -> xr.DataArray:
    check_dims(what, scores)
    for dim in ("run", "task"):
        missing = set(claims[dim].values.tolist()) - set(scores[dim].values.tolist())
        if missing:
            raise HeadwiseError(
                f"{what}: no probe scores of {dim} {sorted(missing)[0]!r}; claims and scores must be of the same runs"
            )
    return scores.sel(run=claims.run, task=claims.task)
