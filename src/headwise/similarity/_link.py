"""Do similar tasks specialise less? The correlation of task similarity with dissociation over task pairs (§6.2, Figs. 3, 5–7)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from headwise.similarity._mantel import MantelResult, NoCorrelation, mantel, partial_mantel
from headwise.similarity._matrices import labelled, off_diagonal, same_tasks

Array = NDArray[Any]


@dataclass(frozen=True)
class LinkResult:
    """`pairs`: one row per task pair (task, other, dissociation, same_paradigm, one column per similarity).
    `tests`: one row per similarity and correlation kind, with Mantel and partial Mantel p-values; NaN where one does not vary
    or where tasks are too few (`note` says so).
    `paradigm_means`: mean dissociation of pairs within and across input paradigms, if paradigms were given.
    """

    pairs: pd.DataFrame
    tests: pd.DataFrame
    paradigm_means: Mapping[str, float] | None


def link(
    similarities: Mapping[str, xr.DataArray],
    dissociation: xr.DataArray,
    *,
    paradigm: Mapping[str, str] | None = None,
    alternative: Literal["two-sided", "less", "greater"] = "two-sided",
    seed: int = 0,
) -> LinkResult:
    """Correlates each similarity with the average dissociation D = (D_A + D_B) / 2 of the pairs.

    Args:
        similarities: by metric name, DataArray (task, other).
        dissociation: DataArray (task, other), symmetric: the average D of each pair in the multi-task model.
        paradigm: by task, its input paradigm ("one" or "two" sentences): adds the partial Mantel test given it, and the means.
        alternative: "less" tests the paper's claim (more similar, less dissociated).
        seed: for more than seven tasks, whose relabellings are drawn.
    """
    tasks = same_tasks(dissociation, *similarities.values())
    same: xr.DataArray | None = None
    if paradigm is not None:
        kinds = np.array([paradigm[task] for task in tasks])
        same = labelled((kinds[:, None] == kinds[None, :]).astype(float), tasks, "paradigm")
    upper = np.triu_indices(len(tasks), 1)
    d = off_diagonal(dissociation, tasks)
    pairs = pd.DataFrame(
        {"task": np.array(tasks)[upper[0]], "other": np.array(tasks)[upper[1]], "dissociation": d[upper]}
    )
    if same is not None:
        pairs["same_paradigm"] = off_diagonal(same, tasks)[upper].astype(bool)
    rows = []
    for name, matrix in similarities.items():
        pairs[name] = off_diagonal(matrix, tasks)[upper]
        kinds_of_correlation: tuple[Literal["pearson", "spearman"], ...] = ("pearson", "spearman")
        for kind in kinds_of_correlation:
            plain = _or_nan(mantel, matrix, dissociation, kind=kind, alternative=alternative, seed=seed)
            row = {
                "similarity": name,
                "kind": kind,
                "correlation": plain.correlation,
                "p": plain.p,
                "relabellings": plain.permutations,
                "exact": plain.exact,
                "note": plain.note,
            }
            if same is not None and 0 < pairs["same_paradigm"].mean() < 1:
                partial = _or_nan(
                    partial_mantel, matrix, dissociation, same, kind=kind, alternative=alternative, seed=seed
                )
                row |= {
                    "partial_correlation": partial.correlation,
                    "partial_p": partial.p,
                    "partial_note": partial.note,
                }
            rows.append(row)
    means = None
    if same is not None:
        by = pairs.groupby("same_paradigm")["dissociation"].mean()
        means = {"within": float(by.get(True, np.nan)), "across": float(by.get(False, np.nan))}
    return LinkResult(pairs, pd.DataFrame(rows), means)


def agreement(
    similarities: Mapping[str, xr.DataArray],
    *,
    kind: Literal["pearson", "spearman"] = "spearman",
    seed: int = 0,
) -> pd.DataFrame:
    """How far the similarity metrics agree: the correlation over task pairs of every two metrics, with Mantel p-values, or why there
    is none (`note`)."""
    names = list(similarities)
    rows = []
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            result = _or_nan(
                mantel, similarities[first], similarities[second], kind=kind, alternative="greater", seed=seed
            )
            rows.append(
                {
                    "first": first,
                    "second": second,
                    "correlation": result.correlation,
                    "p": result.p,
                    "note": result.note,
                }
            )
    return pd.DataFrame(rows)


def _or_nan(test: Any, *matrices: xr.DataArray, **options: Any) -> MantelResult:
    """The test, or NaN where a matrix does not vary over the pairs, so that one metric does not stop the others."""
    try:
        result: MantelResult = test(*matrices, **options)
    except NoCorrelation as why:
        return MantelResult(
            float("nan"), float("nan"), 0, False, options["kind"], options["alternative"], f"no test: {why}"
        )
    return result
