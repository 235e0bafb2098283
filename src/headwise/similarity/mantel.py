"""Tests for the correlation of two task × task matrices, whose pairs are not independent: Mantel and partial Mantel."""

from dataclasses import dataclass
from itertools import permutations
from math import factorial
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import rankdata

from headwise.errors import HeadwiseError
from headwise.similarity.matrices import off_diagonal, same_tasks

Array = NDArray[Any]
Alternative = Literal["two-sided", "less", "greater"]


class NoCorrelation(HeadwiseError):
    """A matrix does not vary over the task pairs."""


@dataclass(frozen=True)
class MantelResult:
    """A correlation over task pairs with its permutation p-value.

    `permutations` counts the relabellings compared, the observed one among them; `exact` says that these were all there are.
    """

    correlation: float
    p: float
    permutations: int
    exact: bool
    kind: str
    alternative: str


def mantel(
    first: xr.DataArray,
    second: xr.DataArray,
    *,
    kind: Literal["pearson", "spearman"] = "pearson",
    alternative: Alternative = "two-sided",
    draws: int = 9999,
    seed: int = 0,
) -> MantelResult:
    """Correlation of two symmetric task matrices over their pairs, tested by permuting the tasks of one (methods: §8).

    All n! relabellings are used up to seven tasks (120 for five: the smallest one-sided p is 0.0083), else `draws` random ones.
    """
    tasks = same_tasks(first, second)
    a, b = (_ranked(off_diagonal(matrix, tasks), kind) for matrix in (first, second))
    return _test(a, b, kind, alternative, *_relabellings(len(tasks), draws, seed))


def partial_mantel(
    first: xr.DataArray,
    second: xr.DataArray,
    given: xr.DataArray,
    *,
    kind: Literal["pearson", "spearman"] = "pearson",
    alternative: Alternative = "two-sided",
    scheme: Literal["residuals", "within"] = "residuals",
    draws: int = 9999,
    seed: int = 0,
) -> MantelResult:
    """Correlation of two task matrices with a third held constant (the input paradigm, say).

    Args:
        first, second: symmetric matrices over the same tasks.
        given: the matrix to hold constant; for the input paradigm 1 where two tasks share it, 0 where not.
        kind, alternative, draws, seed: as in `mantel`.
        scheme: "residuals" relabels the part of `first` that `given` does not explain. "within" only uses the relabellings that
            leave `given` as it is: exact whatever the dependence, but few (12 for three pair tasks and two single ones).
    """
    tasks = same_tasks(first, second, given)
    a, b, c = (_ranked(off_diagonal(matrix, tasks), kind) for matrix in (first, second, given))
    orders, exact = _relabellings(len(tasks), draws, seed)
    if scheme == "within":
        keeps = [bool(np.array_equal(c[np.ix_(order, order)], c)) for order in orders]
        orders = orders[np.array(keeps)]
    elif scheme != "residuals":
        raise HeadwiseError(f"scheme {scheme!r} is unknown; use residuals or within")
    return _test(_residual(a, c), _residual(b, c), kind, alternative, orders, exact, given=c)


def _test(
    a: Array, b: Array, kind: str, alternative: Alternative, orders: Array, exact: bool, given: Array | None = None
) -> MantelResult:
    upper = np.triu_indices(len(a), 1)
    relabelled = a[orders[:, :, None], orders[:, None, :]][:, upper[0], upper[1]]  # (relabellings, pairs)
    other = b[upper]
    if given is not None:  # relabelled residuals correlate with `given` again: take that out, so the statistic stays partial
        c = given[upper] - given[upper].mean()
        if (c != 0).any():
            relabelled = relabelled - np.outer(relabelled @ c, c) / (c @ c)
    relabelled = relabelled - relabelled.mean(1, keepdims=True)
    other = other - other.mean()
    norms = np.linalg.norm(relabelled, axis=1) * np.linalg.norm(other)
    if norms[0] < 1e-12:
        raise NoCorrelation(
            "one of the matrices is constant over the task pairs (or wholly explained by the third): no correlation"
        )
    correlations = (relabelled @ other) / np.maximum(norms, 1e-300)
    observed = float(correlations[0])  # the first relabelling is the identity
    sign = {"two-sided": None, "less": -1.0, "greater": 1.0}[alternative]
    extreme = np.abs(correlations) if sign is None else sign * correlations
    p = float((extreme >= extreme[0] - 1e-12).mean())
    return MantelResult(observed, p, len(orders), exact, kind, alternative)


def _relabellings(count: int, draws: int, seed: int) -> tuple[Array, bool]:
    if factorial(count) <= 5040:
        return np.array(list(permutations(range(count)))), True
    rng = np.random.default_rng(seed)
    return np.stack([np.arange(count), *(rng.permutation(count) for _ in range(draws))]), False


def _ranked(values: Array, kind: str) -> Array:
    if kind == "pearson":
        return values
    if kind != "spearman":
        raise HeadwiseError(f"correlation {kind!r} is unknown; use pearson or spearman")
    upper = np.triu_indices(len(values), 1)
    ranks = np.zeros_like(values)
    ranks[upper] = rankdata(values[upper])
    return ranks + ranks.T


def _residual(values: Array, given: Array) -> Array:
    """`values` less its linear fit on `given` over the pairs; symmetric, diagonal zero."""
    upper = np.triu_indices(len(values), 1)
    y, x = values[upper] - values[upper].mean(), given[upper] - given[upper].mean()
    out = np.zeros_like(values, dtype=float)
    out[upper] = y - (x * (x @ y) / (x @ x) if (x != 0).any() else 0.0)
    return out + out.T
