"""Symmetric, labelled task × task matrices: the one result type of every similarity."""

from collections.abc import Callable, Mapping
from itertools import combinations_with_replacement
from typing import Any, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.errors import HeadwiseError

Array = NDArray[Any]
T = TypeVar("T")


def labelled(values: Array, tasks: list[str], method: str, **settings: Any) -> xr.DataArray:
    """(tasks, tasks) values as a DataArray with dims (task, other); `settings` go to the attributes."""
    return xr.DataArray(
        values,
        dims=("task", "other"),
        coords={"task": tasks, "other": tasks},
        name="similarity",
        attrs={"method": method, **settings},
    )


def pairwise(
    representations: Mapping[str, T], similarity: Callable[[T, T], float], method: str, **settings: Any
) -> xr.DataArray:
    """The matrix of a symmetric similarity between tasks; each pair is computed once, the diagonal too.

    Args:
        representations: what stands for each task.
        similarity: of two of them.
        method, settings: for the attributes.
    """
    of_tasks = list(representations.values())
    values = np.empty((len(of_tasks), len(of_tasks)))
    for i, j in combinations_with_replacement(range(len(of_tasks)), 2):
        values[i, j] = values[j, i] = similarity(of_tasks[i], of_tasks[j])
    return labelled(values, list(representations), method, **settings)


def same_tasks(*matrices: xr.DataArray) -> list[str]:
    """The task names all matrices share, in the first one's order.

    Raises:
        HeadwiseError: they do not hold the same tasks, or fewer than three.
    """
    names = [str(name) for name in matrices[0]["task"].values]
    for matrix in matrices:
        tasks, other_tasks = (sorted(map(str, matrix[dim].values)) for dim in ("task", "other"))
        if tasks != sorted(names) or other_tasks != sorted(names):
            raise HeadwiseError(f"the matrices hold different tasks: {sorted(names)} and {tasks}")
    if len(names) < 3:
        raise HeadwiseError(
            f"a correlation over task pairs needs at least three tasks, got {len(names)}: {names}"
        )
    return names


def off_diagonal(matrix: xr.DataArray, tasks: list[str]) -> Array:
    """The matrix as a symmetric array in the order of `tasks`, its diagonal zeroed (it never enters a
    correlation).

    Raises:
        HeadwiseError: it is not symmetric, or an off-diagonal value is missing.
    """
    values = matrix.sel(task=tasks, other=tasks).to_numpy().astype(float)
    np.fill_diagonal(values, 0.0)
    if np.isnan(values).any():
        i, j = np.argwhere(np.isnan(values))[0]
        raise HeadwiseError(f"the value of the pair {tasks[i]}, {tasks[j]} is missing (NaN)")
    if not np.allclose(values, values.T, rtol=1e-6, atol=1e-12):
        i, j = np.argwhere(~np.isclose(values, values.T, rtol=1e-6, atol=1e-12))[0]
        raise HeadwiseError(
            f"the matrix is not symmetric: {tasks[i]}, {tasks[j]} is {values[i, j]:g} and {values[j, i]:g} "
            "the other way; symmetrise it first, by the mean for instance"
        )
    return values
