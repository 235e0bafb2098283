"""Tests for the correlation of two task × task matrices, whose pairs are not independent: Mantel and partial
Mantel."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import factorial, prod
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import rankdata

from headwise._base.inference import MIN_ARRANGEMENTS
from headwise.errors import HeadwiseError
from headwise.similarity._matrices import off_diagonal, same_tasks

Array = NDArray[Any]
Alternative = Literal["two-sided", "less", "greater"]


class NoCorrelation(HeadwiseError):
    """A matrix does not vary over the task pairs."""


@dataclass(frozen=True)
class MantelResult:
    """A correlation over task pairs with its permutation p-value.

    `permutations` counts the relabellings compared, the observed one among them; `exact` says that these were
    all there are. With fewer than 20 no p can reach 0.05: p is NaN, and `note` says so.
    """

    correlation: float
    p: float
    permutations: int
    exact: bool
    kind: str
    alternative: str
    note: str = ""


def mantel(
    first: xr.DataArray,
    second: xr.DataArray,
    *,
    kind: Literal["pearson", "spearman"] = "pearson",
    alternative: Alternative = "two-sided",
    draws: int = 9999,
    seed: int = 0,
) -> MantelResult:
    """Correlation of two symmetric task matrices over their pairs, tested by permuting the tasks of one
    (methods: §8).

    All n! relabellings are used up to seven tasks (120 for five: the smallest one-sided p is 0.0083), else
    `draws` random ones. Fewer than four tasks have too few relabellings for a p.
    """
    tasks = same_tasks(first, second)
    a, b = (_ranked(off_diagonal(matrix, tasks), kind) for matrix in (first, second))
    return _test(a, b, kind, alternative, *_relabellings([range(len(tasks))], draws, seed))


def partial_mantel(
    first: xr.DataArray,
    second: xr.DataArray,
    grouping: xr.DataArray,
    *,
    kind: Literal["pearson", "spearman"] = "pearson",
    alternative: Alternative = "two-sided",
    draws: int = 9999,
    seed: int = 0,
) -> MantelResult:
    """Correlation of two task matrices with a grouping of the tasks held constant (by input paradigm, say).

    Tasks are relabelled within their groups only, which is exact however similarity and dissociation depend
    on the group. (Relabelling all tasks' residuals is not: it rejects 10 to 19 % of the time at 5 % where
    groups differ in spread.) The price is few relabellings: 12 for three pair tasks and two single ones, too
    few for a p.

    Args:
        first, second: symmetric matrices over the same tasks.
        grouping: 1 where two tasks are of one group, 0 where not.
        kind, alternative, draws, seed: as in `mantel`.
    """
    tasks = same_tasks(first, second, grouping)
    groups = off_diagonal(grouping, tasks)
    orders, exact = _relabellings(_groups(groups), draws, seed)
    a, b, c = (
        _ranked(values, kind) for values in (off_diagonal(first, tasks), off_diagonal(second, tasks), groups)
    )
    return _test(_residual(a, c), _residual(b, c), kind, alternative, orders, exact)


def _groups(grouping: Array) -> list[list[int]]:
    """The groups that a matrix of "same group" describes."""
    same = (grouping != 0) | np.eye(len(grouping), dtype=bool)
    if not np.isin(grouping, (0, 1)).all() or any((same[i] != same[j]).any() for i, j in np.argwhere(same)):
        raise HeadwiseError("grouping must be 1 where two tasks are of one group and 0 where they are not")
    return [np.flatnonzero(row).tolist() for row in np.unique(same, axis=0)]


def _test(
    a: Array, b: Array, kind: str, alternative: Alternative, orders: Array, exact: bool
) -> MantelResult:
    upper = np.triu_indices(len(a), 1)
    relabelled = a[orders[:, :, None], orders[:, None, :]][:, upper[0], upper[1]]  # (relabellings, pairs)
    fixed = b[upper]
    relabelled = relabelled - relabelled.mean(1, keepdims=True)
    fixed = fixed - fixed.mean()
    norms = np.linalg.norm(relabelled, axis=1) * np.linalg.norm(fixed)
    if norms[0] < 1e-12:
        raise NoCorrelation(
            "one of the matrices is constant over the task pairs (or wholly explained by the third), "
            "so there is no correlation"
        )
    correlations = (relabelled @ fixed) / np.maximum(norms, 1e-300)
    observed = float(correlations[0])  # the first relabelling is the identity
    extreme = {"two-sided": np.abs(correlations), "less": -correlations, "greater": correlations}[alternative]
    if len(orders) < MIN_ARRANGEMENTS:
        note = (
            f"no p: {len(orders)} relabellings of the tasks, "
            f"{MIN_ARRANGEMENTS} are needed for p to reach 0.05"
        )
        return MantelResult(observed, float("nan"), len(orders), exact, kind, alternative, note)
    p = float((extreme >= extreme[0] - 1e-12).mean())
    return MantelResult(observed, p, len(orders), exact, kind, alternative)


def _relabellings(groups: Sequence[Sequence[int]], draws: int, seed: int) -> tuple[Array, bool]:
    """(relabellings, tasks), the identity first: every order within the groups, or `draws` random ones; and
    whether these are all."""
    count = sum(len(group) for group in groups)
    exact = prod(factorial(len(group)) for group in groups) <= 5040
    mixes: list[Any] = []  # each holds every group in some order
    if exact:
        mixes += product(*map(permutations, groups))
    else:
        rng = np.random.default_rng(seed)
        mixes += [groups]
        for _ in range(draws):
            mixes.append([rng.permutation(group) for group in groups])
    orders = np.empty((len(mixes), count), dtype=np.intp)
    for number, group in enumerate(groups):
        orders[:, list(group)] = np.array([mix[number] for mix in mixes])
    return orders, exact


def _ranked(values: Array, kind: str) -> Array:
    if kind == "pearson":
        return values
    if kind != "spearman":
        raise HeadwiseError(f"correlation {kind!r} is unknown; use pearson or spearman")
    upper = np.triu_indices(len(values), 1)
    ranks = np.zeros_like(values)
    ranks[upper] = rankdata(values[upper])
    return ranks + ranks.T


def _residual(values: Array, grouping: Array) -> Array:
    """`values` less its linear fit on `grouping` over the pairs; symmetric, diagonal zero."""
    upper = np.triu_indices(len(values), 1)
    y, x = values[upper] - values[upper].mean(), grouping[upper] - grouping[upper].mean()
    if (x != 0).any():
        y = y - x * (x @ y) / (x @ x)
    residuals = np.zeros_like(values, dtype=float)
    residuals[upper] = y
    return residuals + residuals.T
