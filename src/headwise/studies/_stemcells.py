"""Stem-cell heads (He & Choi 2021): which heads do most tasks claim, and does training the tasks together
spoil just those?

Claims are boolean arrays (run, task, layer, head): the k heads that a task needs most, learnt in a training
of that task alone; every task has the same k, or their numbers could not be compared. Probe scores are arrays
(run, task, layer, head): how well a head alone answers a task, see `probing.parameter_free`.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations, combinations_with_replacement, product
from math import ceil
from typing import Any

import numpy as np
import pandas as pd
import scipy
import xarray as xr
from numpy.typing import NDArray

from headwise.errors import HeadwiseError
from headwise.scoring import top_heads

DIMS = ("run", "task", "layer", "head")
SHARE = 0.8  # of the tasks: four of five
LEAST = 2  # tasks; fewer share nothing
Bools = NDArray[np.bool_]


def claim(scores: xr.DataArray, k: int) -> xr.DataArray:
    """The k heads with the highest scores of every run and task, as booleans.

    Args:
        scores: (run, task, layer, head); NaN for heads that do not exist.
        k: heads per task.
    """
    check_dims("scores", scores)
    out = xr.zeros_like(scores, dtype=bool)
    for run in scores.run.values:
        for task in scores.task.values:
            at = {"run": run, "task": task}
            out.loc[at] = top_heads(scores.sel(at).drop_vars(["run", "task"]), n=k, by="signed").to_mask(
                (len(scores.layer), len(scores["head"]))
            )
    return out


def not_learnt(trainings: Sequence[pd.DataFrame]) -> list[str]:
    """The names of the tasks that at least half of these trainings leave at chance, so that what they claim
    is chance too.

    Args:
        trainings: (task, at_chance, ...) of each.
    """
    weak = pd.concat([scores.groupby("task")["at_chance"].any() for scores in trainings])
    share = weak.groupby(level=0, sort=False).mean()
    return [str(task) for task in share.index[share >= 0.5]]


def learnt_in(claims: xr.DataArray, weak: Mapping[str, list[str]], *groups: str) -> tuple[xr.DataArray, str]:
    """The claims of the tasks that trainings of all these groups have learnt, and the others' names.

    Args:
        claims: (run, task, layer, head).
        weak: by group of trainings, what `not_learnt` found.
        groups: which trainings the claims, or what is asked of them, come from.
    """
    lost = set[str]().union(*(weak[group] for group in groups))
    names = [str(task) for task in claims.task.values]
    learnt = [name for name in names if name not in lost]
    return claims.sel(task=learnt), ", ".join(name for name in names if name in lost)


def per_layer(claims: xr.DataArray) -> pd.DataFrame:
    """Claimed heads per layer: task, layer, mean over runs, and lowest and highest run."""
    counts = claims.sum("head")
    rows = []
    for task, layer in product(claims.task.values, claims.layer.values):
        over_runs = counts.sel(task=task, layer=layer)
        rows.append(
            {
                "task": str(task),
                "layer": int(layer),
                "mean": float(over_runs.mean()),
                "low": int(over_runs.min()),
                "high": int(over_runs.max()),
            }
        )
    return pd.DataFrame(rows)


def claim_agreement(claims: xr.DataArray, scores: xr.DataArray) -> pd.DataFrame:
    """How far tasks agree on heads, beside how far one task agrees with itself in another run.

    Two tasks can hardly share more than one task shares with its own repetition: only what lies below that is
    a difference of tasks.

    Args:
        claims: (run, task, layer, head) bool.
        scores: (run, task, layer, head), the gates or scores the claims were taken from.

    Returns:
        one row per pair of tasks, a task with itself included: first, second, comparison ("tasks" or "runs"),
        overlap (shared heads ÷ k), pearson and spearman of the scores, pairs (of runs averaged over). Two
        tasks are compared within each run and, as `overlap_across`, between different runs.
    """
    check_dims("claims", claims)
    runs, tasks = len(claims.run), [str(task) for task in claims.task.values]
    valid = scores.notnull().all(("run", "task")).to_numpy().ravel()
    sets = claims.to_numpy().reshape(runs, len(tasks), -1)[..., valid]  # (run, task, heads)
    values = scores.to_numpy().reshape(runs, len(tasks), -1)[..., valid]
    ranks = scipy.stats.rankdata(values, axis=-1)
    rows = []
    for a, b in combinations_with_replacement(range(len(tasks)), 2):
        across = list(combinations(range(runs), 2))
        if a == b:
            comparison, within = "runs", across
        else:
            comparison, within = "tasks", [(r, r) for r in range(runs)]
            across += [(s, r) for r, s in combinations(range(runs), 2)]
        rows.append(
            {
                "first": tasks[a],
                "second": tasks[b],
                "comparison": comparison,
                "overlap": mean_of([_overlap(sets[r, a], sets[s, b]) for r, s in within]),
                "overlap_across": mean_of([_overlap(sets[r, a], sets[s, b]) for r, s in across]),
                "pearson": mean_of([_correlation(values[r, a], values[s, b]) for r, s in within]),
                "spearman": mean_of([_correlation(ranks[r, a], ranks[s, b]) for r, s in within]),
                "pairs": len(within),
            }
        )
    return pd.DataFrame(rows)


def stem_cells(claims: xr.DataArray, share: float = SHARE) -> xr.DataArray:
    """(layer, head) bool: heads claimed by at least `share` of the tasks (4 of 5) in more than half of the
    runs."""
    check_dims("claims", claims)
    return claims.isel(run=0, task=0, drop=True).copy(data=stem_in(claims.to_numpy(), share))


def sole_claims(claims: xr.DataArray) -> xr.DataArray:
    """(task, layer, head) bool: heads that this task claims, and no other, in more than half of the runs."""
    check_dims("claims", claims)
    return claims.isel(run=0, drop=True).copy(data=alone_in(claims.to_numpy()))


UNTESTED = {**dict.fromkeys(("found", "expected", "low", "high", "p"), float("nan")), "draws": 0}


def stem_in(sets: Bools, share: float) -> Bools:
    """(..., run, task, layer, head) -> (..., layer, head)."""
    needed = ceil(share * sets.shape[-3] - 1e-9)
    often = (sets.sum(-3) >= needed).sum(-3)
    return np.asarray(often * 2 > sets.shape[-4])


def alone_in(sets: Bools) -> Bools:
    """(run, task, layer, head) -> (task, layer, head)."""
    alone = sets & (sets.sum(1, keepdims=True) == 1)
    return np.asarray(alone.sum(0) * 2 > len(sets))


def stem_cell_test(
    claims: xr.DataArray,
    *,
    valid: Bools | None = None,
    tied: Iterable[Sequence[int]] = (),
    share: float = SHARE,
    draws: int = 9999,
    seed: int = 0,
) -> dict[str, Any]:
    """Are there more stem-cell heads than tasks with the same preferences for layers would share by chance?

    Null: each task's heads of a layer are relabelled at random, by one permutation per task and layer that
    holds for all its runs. So every task keeps how many heads it claims in each layer and how far its runs
    repeat one another; what is broken is only which head of one task is which of another's. (Redrawing every
    run would take a task's agreement with itself for agreement between tasks.) p = (1 + #{draws with at least
    as many}) ÷ (1 + draws).

    In tied layers heads of one number do alike, so that a task which claims one claims its namesakes in other
    layers. There a task's permutation is the same in all layers of the group, which keeps that: what is
    broken is only which number of one task is which of another's. That all tasks claim the same numbers thus
    counts as shared, not as chance.

    Args:
        claims: (run, task, layer, head) bool.
        valid: (layer, head) bool, which heads exist; default: all.
        tied: groups of tied layers, as `Heads.tied_layers` finds them in a model; default: none.
        share: of the tasks that must claim a head.
        draws, seed: of the null.

    Returns:
        found, expected, low and high (95 % of the draws), p, draws, and what was relabelled.

    Raises:
        HeadwiseError: layers of a group do not exist, are in two groups, or have different heads.
    """
    check_dims("claims", claims)
    sets = claims.to_numpy()
    rng = np.random.default_rng(seed)
    count = stem_in(sets, share).sum()
    exists = valid
    if exists is None:
        exists = np.ones(sets.shape[2:], bool)
    groups = _groups(tied, exists)
    drawn: list[NDArray[np.int64]] = []
    for start in range(0, draws, 500):
        orders = _relabellings(
            exists, (min(500, draws - start), sets.shape[1]), rng
        )  # (draws, task, layer, head)
        for group in groups:
            orders[..., group, :] = orders[..., group[:1], :]
        drawn.append(stem_in(np.take_along_axis(sets[None], orders[:, None], axis=-1), share).sum((-2, -1)))
    null = np.concatenate(drawn)
    low, high = np.quantile(null, [0.025, 0.975])
    p = (1 + int((null >= count).sum())) / (1 + draws)
    drew = {"expected": float(null.mean()), "low": float(low), "high": float(high), "p": p, "draws": draws}
    return {
        "found": int(count),
        **drew,
        "relabelled": "head numbers of tied layers" if groups else "heads of each layer",
    }


def _groups(tied: Iterable[Sequence[int]], exists: Bools) -> list[list[int]]:
    """Groups of tied layers, checked."""
    groups = [list(group) for group in tied if len(group) > 1]
    layers = list(chain.from_iterable(groups))
    if len(set(layers)) < len(layers) or not set(layers) <= set(range(len(exists))):
        raise HeadwiseError(
            f"tied is {groups}: expected groups of layers from 0 to {len(exists) - 1}, each layer in one at "
            "most"
        )
    for group in groups:
        if (exists[group] != exists[group[:1]]).any():
            raise HeadwiseError(
                f"the layers {group} have different heads, so that heads of one number cannot be tied"
            )
    return groups


def _relabellings(valid: Bools, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.intp]:
    """(*shape, layer, head): in every layer a random order of the heads that exist; those that do not stay
    where they are."""
    keys = np.where(valid, rng.random((*shape, *valid.shape), dtype=np.float32), np.inf)
    shuffled = keys.argsort(-1)  # those that exist, in random order, then the rest
    slots = np.argsort(~valid, axis=-1, kind="stable")  # where those that exist are, then the rest
    orders = np.empty_like(shuffled)
    np.put_along_axis(orders, np.broadcast_to(slots, orders.shape), shuffled, axis=-1)
    return np.where(valid, orders, np.arange(valid.shape[-1]))


def check_dims(label: str, array: xr.DataArray) -> None:
    if array.dims != DIMS:
        raise HeadwiseError(f"{label} has dims {array.dims}; expected {DIMS}")


def _overlap(a: Bools, b: Bools) -> float:
    return float((a & b).sum() / max(a.sum(), 1))


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    x, y = a - a.mean(), b - b.mean()
    spread = float(np.sqrt((x * x).sum() * (y * y).sum()))
    if spread > 0:
        return float((x * y).sum()) / spread
    return 0.0


def mean_of(values: list[float]) -> float:
    """The mean of the values; NaN where there are none."""
    if not values:
        return float("nan")
    return float(np.mean(values))
