"""Stem-cell heads (He & Choi 2021): which heads do most tasks claim, and does training the tasks together spoil just those?

Claims are boolean arrays (run, task, layer, head): the k heads that a task needs most, learnt in a training of that task alone; every
task has the same k, or their numbers could not be compared. Probe scores are arrays (run, task, layer, head): how well a head alone
answers a task, see `probing.parameter_free`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import ceil

import numpy as np
import pandas as pd
import scipy
import xarray as xr
from numpy.typing import NDArray

from headwise._base.inference import t_interval
from headwise.errors import HeadwiseError
from headwise.scoring import top_heads

DIMS = ("run", "task", "layer", "head")
SHARE = 0.8  # of the tasks: four of five
Bools = NDArray[np.bool_]


def claim(scores: xr.DataArray, k: int) -> xr.DataArray:
    """The k heads with the highest scores of every run and task, as booleans.

    Args:
        scores: (run, task, layer, head); NaN for heads that do not exist.
        k: heads per task.
    """
    _check("scores", scores)
    out = xr.zeros_like(scores, dtype=bool)
    for run in scores.run.values:
        for task in scores.task.values:
            at = {"run": run, "task": task}
            out.loc[at] = top_heads(scores.sel(at).drop_vars(["run", "task"]), n=k).to_mask(
                (len(scores.layer), len(scores["head"]))
            )
    return out


def per_layer(claims: xr.DataArray) -> pd.DataFrame:
    """Claimed heads per layer: task, layer, mean over runs, and lowest and highest run."""
    counts = claims.sum("head")
    rows = [
        {"task": str(task), "layer": int(layer), "mean": float(here.mean()), "low": int(here.min()), "high": int(here.max())}
        for task in claims.task.values
        for layer in claims.layer.values
        for here in [counts.sel(task=task, layer=layer)]
    ]
    return pd.DataFrame(rows)


def claim_agreement(claims: xr.DataArray, scores: xr.DataArray) -> pd.DataFrame:
    """How far tasks agree on heads, beside how far one task agrees with itself in another run.

    Two tasks can hardly share more than one task shares with its own repetition: only what lies below that is a difference of tasks.

    Args:
        claims: (run, task, layer, head) bool.
        scores: (run, task, layer, head), the gates or scores the claims were taken from.

    Returns:
        one row per pair of tasks, a task with itself included: first, second, comparison ("tasks" or "runs"), overlap (shared heads ÷
        k), pearson and spearman of the scores, pairs (of runs averaged over). Two tasks are compared within each run and, as
        `overlap_across`, between different runs.
    """
    _check("claims", claims)
    runs, tasks = len(claims.run), [str(task) for task in claims.task.values]
    valid = scores.notnull().all(("run", "task")).to_numpy().ravel()
    sets = claims.to_numpy().reshape(runs, len(tasks), -1)[..., valid]  # (run, task, heads)
    values = scores.to_numpy().reshape(runs, len(tasks), -1)[..., valid]
    ranks = scipy.stats.rankdata(values, axis=-1)
    rows = []
    for a, b in [(i, j) for i in range(len(tasks)) for j in range(i, len(tasks))]:
        across = list(combinations(range(runs), 2)) + ([(s, r) for r, s in combinations(range(runs), 2)] if a != b else [])
        within = across if a == b else [(r, r) for r in range(runs)]
        rows.append(
            {
                "first": tasks[a],
                "second": tasks[b],
                "comparison": "runs" if a == b else "tasks",
                "overlap": _mean([_overlap(sets[r, a], sets[s, b]) for r, s in within]),
                "overlap_across": _mean([_overlap(sets[r, a], sets[s, b]) for r, s in across]),
                "pearson": _mean([_correlation(values[r, a], values[s, b]) for r, s in within]),
                "spearman": _mean([_correlation(ranks[r, a], ranks[s, b]) for r, s in within]),
                "pairs": len(within),
            }
        )
    return pd.DataFrame(rows)


def stem_cells(claims: xr.DataArray, share: float = SHARE) -> xr.DataArray:
    """(layer, head) bool: heads claimed by at least `share` of the tasks (4 of 5) in more than half of the runs."""
    _check("claims", claims)
    return claims.isel(run=0, task=0, drop=True).copy(data=_stem(claims.to_numpy(), share))


def sole_claims(claims: xr.DataArray) -> xr.DataArray:
    """(task, layer, head) bool: heads that this task claims, and no other, in more than half of the runs."""
    _check("claims", claims)
    return claims.isel(run=0, drop=True).copy(data=_alone(claims.to_numpy()))


def _stem(sets: Bools, share: float) -> Bools:
    """(..., run, task, layer, head) -> (..., layer, head)."""
    needed = ceil(share * sets.shape[-3] - 1e-9)
    often = (sets.sum(-3) >= needed).sum(-3)
    return np.asarray(often * 2 > sets.shape[-4])


def _alone(sets: Bools) -> Bools:
    """(run, task, layer, head) -> (task, layer, head)."""
    alone = sets & (sets.sum(1, keepdims=True) == 1)
    return np.asarray(alone.sum(0) * 2 > len(sets))


def stem_cell_test(
    claims: xr.DataArray, *, valid: Bools | None = None, share: float = SHARE, draws: int = 9999, seed: int = 0
) -> dict[str, float]:
    """Are there more stem-cell heads than tasks with the same preferences for layers would share by chance?

    Null: each task's heads of a layer are relabelled at random, by one permutation per task and layer that holds for all its runs. So
    every task keeps how many heads it claims in each layer and how far its runs repeat one another; what is broken is only which head
    of one task is which of another's. (Redrawing every run would take a task's agreement with itself for agreement between tasks.)
    p = (1 + #{draws with at least as many}) ÷ (1 + draws).

    Args:
        claims: (run, task, layer, head) bool.
        valid: (layer, head) bool, which heads exist; default: all.
        share: of the tasks that must claim a head.
        draws, seed: of the null.

    Returns:
        found, expected, low and high (95 % of the draws), p, draws.
    """
    _check("claims", claims)
    sets = claims.to_numpy()
    rng = np.random.default_rng(seed)
    found = _stem(sets, share).sum()
    exists = np.ones(sets.shape[2:], bool) if valid is None else valid
    drawn: list[NDArray[np.int64]] = []
    for start in range(0, draws, 500):
        orders = _relabellings(exists, (min(500, draws - start), sets.shape[1]), rng)  # (draws, task, layer, head)
        drawn.append(_stem(np.take_along_axis(sets[None], orders[:, None], axis=-1), share).sum((-2, -1)))
    null = np.concatenate(drawn)
    low, high = np.quantile(null, [0.025, 0.975])
    p = (1 + int((null >= found).sum())) / (1 + draws)
    return {"found": int(found), "expected": float(null.mean()), "low": float(low), "high": float(high), "p": p, "draws": draws}


def _relabellings(valid: Bools, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.intp]:
    """(*shape, layer, head): in every layer a random order of the heads that exist; those that do not stay where they are."""
    keys = np.where(valid, rng.random((*shape, *valid.shape), dtype=np.float32), np.inf)
    shuffled = keys.argsort(-1)  # those that exist, in random order, then the rest
    places = np.argsort(~valid, axis=-1, kind="stable")  # where those that exist are, then the rest
    orders = np.empty_like(shuffled)
    np.put_along_axis(orders, np.broadcast_to(places, orders.shape), shuffled, axis=-1)
    return np.where(valid, orders, np.arange(valid.shape[-1]))


@dataclass(frozen=True)
class Effect:
    """A difference measured in every run.

    Attributes:
        runs: (runs,) its value in each; NaN where a run had no heads to measure it on.
        mean, low, high: mean over runs with its 95 % interval (Student's t; infinite for a single run, NaN where all
            runs have the same value).
        heads: heads it was measured on, per run: stem-cell heads, and heads of one task (summed over tasks).
    """

    runs: tuple[float, ...]
    mean: float
    low: float
    high: float
    heads: tuple[tuple[int, int], ...]


def stem_cell_effect(claims: xr.DataArray, before: xr.DataArray, after: xr.DataArray, *, share: float = SHARE) -> Effect:
    """The test of the hypothesis: (change on stem-cell heads) − (change on heads that one task alone claims).

    The change is that of each task's probe score from `before` (trained alone) to `after` (trained with the others), averaged over
    heads, then over tasks. The hypothesis says that it is negative: heads that many tasks claim lose more. In every run the heads are
    chosen by the claims of the *other* runs: a head chosen for being good in a run would fall back in any second look at it, and that
    alone would look like the effect.

    Args:
        claims: (run, task, layer, head) bool; at least two runs.
        before, after: (run, task, layer, head) probe scores of the same runs and tasks.
    """
    change = _paired("after", after, claims) - _paired("before", before, claims)
    if len(claims.run) < 2:
        raise HeadwiseError("the effect needs at least two runs: heads are chosen and measured on different runs")
    values, sizes, sets = [], [], claims.to_numpy()
    for run in range(len(claims.run)):
        others = np.delete(sets, run, axis=0)
        stem, alone = _stem(others, share), _alone(others)
        here = change.to_numpy()[run]  # (task, layer, head)
        values.append(_mean(_on(here, stem)) - _mean(_on(here, alone)))  # tasks without heads of their own are left out
        sizes.append((int(stem.sum()), int(alone.sum())))
    return _effect(values, sizes)


def sparing(claims: xr.DataArray, plain: xr.DataArray, other: xr.DataArray, *, share: float = SHARE) -> Effect:
    """Does another way of training spare stem-cell heads? Their probe scores after it minus those after plain training; heads chosen
    on other runs, as in `stem_cell_effect`. Positive: they are spared."""
    gain = _paired("other", other, claims) - _paired("plain", plain, claims)
    values, sizes, sets = [], [], claims.to_numpy()
    for run in range(len(claims.run)):
        stem = _stem(np.delete(sets, run, axis=0), share)
        values.append(_mean(_on(gain.to_numpy()[run], stem)))
        sizes.append((int(stem.sum()), 0))
    return _effect(values, sizes)


def _on(values: NDArray[np.float64], heads: Bools) -> list[float]:
    """Each task's mean over these heads, (task, layer, head) by (layer, head) or (task, layer, head); without tasks that have none."""
    counted = np.broadcast_to(heads, values.shape) & ~np.isnan(values)
    number = counted.sum((1, 2))
    sums = np.where(counted, values, 0.0).sum((1, 2))
    return [float(total / n) for total, n in zip(sums, number, strict=True) if n]


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


def _check(what: str, array: xr.DataArray) -> None:
    if array.dims != DIMS:
        raise HeadwiseError(f"{what} has dims {array.dims}; expected {DIMS}")


def _paired(what: str, scores: xr.DataArray, claims: xr.DataArray) -> xr.DataArray:
    _check(what, scores)
    for dim in ("run", "task"):
        missing = set(claims[dim].values.tolist()) - set(scores[dim].values.tolist())
        if missing:
            raise HeadwiseError(
                f"{what}: no probe scores of {dim} {sorted(missing)[0]!r}; claims and scores must be of the same runs"
            )
    return scores.sel(run=claims.run, task=claims.task)


def _overlap(a: Bools, b: Bools) -> float:
    return float((a & b).sum() / max(a.sum(), 1))


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    x, y = a - a.mean(), b - b.mean()
    spread = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / spread if spread > 0 else 0.0


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
