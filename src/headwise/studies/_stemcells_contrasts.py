"""Differences between groups of heads, measured in every run on heads that the other runs chose, with
intervals over runs and heads.

Arrays are (..., run, task, layer, head); whatever stands before the runs is further studies, each with an
interval of its own.
"""

from dataclasses import dataclass
from math import ceil
from typing import Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from headwise._base.inference import SAME
from headwise.studies._stemcells import Bools

Array = NDArray[np.float64]
LEAST_HEADS = 4  # of each group, on average over runs: fewer say too little about how heads differ
LEAST_RUNS = 2


@dataclass(frozen=True)
class Contrast:
    """A difference with its 95 % interval; of several studies, arrays (...).

    Attributes:
        values: (..., runs), NaN in runs that have no heads to measure it on.
        mean, low, high: mean over runs, and its interval; NaN where there is none.
        heads: (..., runs, 2), how many heads it was measured on: of the first group, and of those they are
            compared with (over tasks).
        fewest: (...), different heads that a run has in the smaller group, mean over the runs measured.
    """

    values: Array
    mean: Array
    low: Array
    high: Array
    heads: NDArray[np.int64]
    fewest: Array

    def why_none(self) -> str:
        """Why one study's difference has no interval; empty where it has one."""
        measured = int((~np.isnan(self.values)).sum())
        if measured < LEAST_RUNS:
            return f"measured in {measured} run{'s' * (measured != 1)}; {LEAST_RUNS} are needed"
        if self.fewest < LEAST_HEADS:
            return f"{float(self.fewest):.3g} heads a run in the smaller group; {LEAST_HEADS} are needed"
        if np.isfinite(self.low):
            return ""
        return SAME.format(unit="run")


def chosen_elsewhere(claims: Bools, share: float) -> tuple[Bools, Bools]:
    """For every run, what the claims of the other runs choose: the stem-cell heads (..., run, layer, head),
    and each task's heads that it alone claims (..., run, task, layer, head); in most of those runs. A head
    chosen for being good in a run would fall back in any second look at it, and that alone would look like an
    effect."""
    number = claims.sum(-3, keepdims=True)  # of tasks that claim a head
    stem = _in_most_others(number >= ceil(share * claims.shape[-3] - 1e-9))
    return stem[..., 0, :, :], _in_most_others(claims & (number == 1))


def _in_most_others(claims: Bools) -> Bools:
    """(..., run, task, layer, head): for every run, whether most of the other runs choose a head."""
    return np.asarray((claims.sum(-4, keepdims=True) - claims) * 2 > claims.shape[-4] - 1)


def against(change: Array, stem: Bools, compared: Bools, strata: Literal["task", "layer"]) -> Contrast:
    """The mean change of stem-cell heads minus that of other heads, task by task, so that a task that changes
    much counts in both.

    Args:
        change: (..., run, task, layer, head); NaN for heads that do not exist.
        stem: (..., run, layer, head).
        compared: (..., run, task, layer, head).
        strata: "task" compares all heads of a task, each task that has both counting once; "layer" compares
            within the layers of each task, each layer weighted by its stem-cell heads.
    """
    first = np.broadcast_to(stem[..., None, :, :], change.shape) & ~np.isnan(change)
    second = np.broadcast_to(compared, change.shape) & ~np.isnan(change)
    number, compared_number = _sizes(first, strata), _sizes(second, strata)
    both = (number > 0) & (compared_number > 0)
    counted = np.where(both, number if strata == "layer" else 1, 0)
    share = counted / np.maximum(counted.sum((-3, -2, -1), keepdims=True), 1)
    weights = share * (first / np.maximum(number, 1) - second / np.maximum(compared_number, 1))
    return _contrast(change, weights, first & both, second & both, strata)


def mean_change(change: Array, stem: Bools) -> Contrast:
    """The mean change of stem-cell heads, over tasks."""
    first = np.broadcast_to(stem[..., None, :, :], change.shape) & ~np.isnan(change)
    number = _sizes(first, "task")
    tasks = (number > 0).sum(-3, keepdims=True)
    return _contrast(change, first / np.maximum(number * tasks, 1), first, np.zeros_like(first), "task")


def _sizes(group: Bools, strata: Literal["task", "layer"]) -> NDArray[np.int64]:
    """How many heads of a group each stratum has: (..., run, task, 1 or layer, 1)."""
    return np.asarray(group.sum(_axes(strata), keepdims=True))


def _axes(strata: Literal["task", "layer"]) -> tuple[int, ...]:
    """Over which axes of (..., layer, head) the heads of a stratum lie."""
    return (-1,) if strata == "layer" else (-2, -1)


def _contrast(
    change: Array, weights: Array, first: Bools, second: Bools, strata: Literal["task", "layer"]
) -> Contrast:
    """A weighted sum of changes in every run, and its interval over runs and heads.

    Runs share most of the heads that the others choose, so what a head does in every run does not average out
    over runs: a t over runs takes it for none of its business and is too narrow. The variance of the mean is
    that over runs plus that over heads (each head's
    part in it, summed over tasks and runs: a sandwich with one cluster a head), with Welch and
    Satterthwaite's degrees of freedom. What runs and heads have in common is in both, so that the sum is
    rather too wide. Where t over runs is wider, that one counts.

    Args:
        change: (..., run, task, layer, head).
        weights: the same shape; 0 for heads that do not count.
        first, second: the two groups, the second empty for a mean of the first; the same shape.
        strata: heads of a stratum have their mean in common: those of a task, or of a layer of a task.
    """
    y = np.where(weights != 0, change, 0.0)
    there = (weights != 0).any((-3, -2, -1))  # (..., run)
    values = np.where(there, (weights * y).sum((-3, -2, -1)), np.nan)
    runs = there.sum(-1)
    mean = np.where(runs > 0, np.where(there, values, 0.0).sum(-1) / np.maximum(runs, 1), np.nan)
    apart = np.where(there, values - mean[..., None], 0.0)
    by_run = (apart**2).sum(-1) / (np.maximum(runs - 1, 1) * np.maximum(runs, 1))

    influences, units = _influences(
        y, weights, values, first, second, strata
    )  # (2, ..., layer, head), (2, ...)
    spread = (influences**2).sum((-2, -1)) * units / np.maximum(units - 1, 1)
    by_head = np.maximum(spread.sum(0) + 2 * influences.prod(0).sum((-2, -1)), 0.0)
    per_df = (spread**2 / np.maximum(units - 1, 1)).sum(0)
    of_heads = np.divide(spread.sum(0) ** 2, per_df, out=np.ones_like(mean), where=per_df > 0)
    both = by_head + by_run
    per_df = by_head**2 / of_heads + by_run**2 / np.maximum(runs - 1, 1)
    df = np.divide(both**2, per_df, out=np.ones_like(mean), where=per_df > 0)
    half = np.maximum(_t(df) * np.sqrt(both), _t(runs - 1) * np.sqrt(by_run))

    compared = units[1] > 0  # not a mean of one group
    fewest = np.where(compared, units.min(0), units[0])
    none = (
        (runs < LEAST_RUNS)
        | (fewest < LEAST_HEADS)
        | (both <= (1e-12 * np.abs(np.where(runs > 0, mean, 0.0)) + 1e-14) ** 2)
    )
    half = np.where(none, np.nan, half)
    heads = np.stack([_distinct(first), second.sum((-3, -2, -1))], -1)
    return Contrast(values, mean, mean - half, mean + half, heads, fewest)


def _t(df: Array) -> Array:
    return np.asarray(scipy.stats.t.ppf(0.975, np.maximum(df, 1.0)))


def _distinct(group: Bools) -> NDArray[np.int64]:
    """How many heads are in a group of any task: (..., run, task, layer, head) -> (..., run)."""
    return np.asarray(group.any(-3).sum((-2, -1)))


def _influences(
    y: Array, weights: Array, values: Array, first: Bools, second: Bools, strata: Literal["task", "layer"]
) -> tuple[Array, Array]:
    """Each head's part in the mean over runs beyond what its stratum and its group explain, (2, ..., layer,
    head) for the two groups; and how many different heads a run has in each, (2, ...)."""
    there = ~np.isnan(values)
    shift = np.where(there, values, 0.0)[..., None, None, None]
    used = first | second
    number = _sizes(used, strata)
    flat = np.where(used, y - shift * first, 0.0)
    base = flat.sum(_axes(strata), keepdims=True) / np.maximum(number, 1)
    scale = np.sqrt(number / np.maximum(number - 1, 1))  # a mean of few follows each of them
    residual = np.where(used, y - shift * first - base, 0.0) * scale
    runs = np.maximum(there.sum(-1), 1)[..., None, None]
    influences = np.stack([(weights * residual * group).sum((-4, -3)) / runs for group in (first, second)])
    return influences, np.stack(
        [np.where(there, _distinct(group), 0).sum(-1) / runs[..., 0, 0] for group in (first, second)]
    )
