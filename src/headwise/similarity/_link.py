"""Do similar tasks specialise less? The correlation of task similarity with dissociation over task pairs
(§6.2, Figs. 3, 5–7)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
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
    """The link of similarities with dissociation.

    Attributes:
        pairs: one row per task pair (task, other, dissociation, same_paradigm, one column per similarity).
        tests: one row per similarity and correlation kind, with Mantel and partial Mantel p-values; NaN where
            one does not vary or where tasks are too few (`note` says so).
        paradigm_means: mean dissociation of pairs within and across input paradigms, if there are paradigms.
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
        paradigm: by task, its input paradigm ("one" or "two" sentences): adds the partial Mantel test given
            it, and the means.
        alternative: "less" tests the paper's claim (more similar, less dissociated).
        seed: for more than seven tasks, whose relabellings are drawn.
    """
    tasks = same_tasks(dissociation, *similarities.values())
    same: xr.DataArray | None = None
    if paradigm is not None:
        kinds = np.array([paradigm[task] for task in tasks])
        same = labelled((kinds[:, None] == kinds[None, :]).astype(float), tasks, "paradigm")
    upper = np.triu_indices(len(tasks), 1)
    first, second = (np.array(tasks)[numbers] for numbers in upper)
    d = off_diagonal(dissociation, tasks)[upper]
    pairs = pd.DataFrame({"task": first, "other": second, "dissociation": d})
    if same is not None:
        pairs["same_paradigm"] = off_diagonal(same, tasks)[upper].astype(bool)
    rows = []
    for name, matrix in similarities.items():
        pairs[name] = off_diagonal(matrix, tasks)[upper]
        for kind in ("pearson", "spearman"):
            options = {"kind": kind, "alternative": alternative, "seed": seed}
            plain = _or_nan(mantel, matrix, dissociation, **options)
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
                partial = _or_nan(partial_mantel, matrix, dissociation, same, **options)
                row |= {
                    "partial_correlation": partial.correlation,
                    "partial_p": partial.p,
                    "partial_note": partial.note,
                }
            rows.append(row)
    means = None
    if same is not None:
        by_paradigm = pairs.groupby("same_paradigm")["dissociation"].mean()
        means = {
            "within": float(by_paradigm.get(True, np.nan)),
            "across": float(by_paradigm.get(False, np.nan)),
        }
    return LinkResult(pairs, pd.DataFrame(rows), means)


def agreement(
    similarities: Mapping[str, xr.DataArray],
    *,
    kind: Literal["pearson", "spearman"] = "spearman",
    seed: int = 0,
) -> pd.DataFrame:
    """How far the similarity metrics agree: the correlation over task pairs of every two metrics, with Mantel
    p-values, or why there is none (`note`)."""
    rows = []
    for first, second in combinations(similarities, 2):
        matrices = similarities[first], similarities[second]
        result = _or_nan(mantel, *matrices, kind=kind, alternative="greater", seed=seed)
        rows.append((first, second, result.correlation, result.p, result.note))
    return pd.DataFrame(rows, columns=["first", "second", "correlation", "p", "note"])


def _or_nan(test: Callable[..., MantelResult], *matrices: xr.DataArray, **options: Any) -> MantelResult:
    """The test, or NaN where a matrix does not vary over the pairs, so that one metric does not stop the
    others."""
    try:
        return test(*matrices, **options)
    except NoCorrelation as error:
        kind, alternative = options["kind"], options["alternative"]
        return MantelResult(np.nan, np.nan, 0, False, kind, alternative, f"no test: {error}")
