"""Similarity against other sets of D of the same model (docs/results/similarity.md): prints the rows of other-d.csv, in this folder.

    python docs/results/similarity/other_d.py
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from headwise.similarity import mantel

HERE = Path(__file__).parent
SIMILARITIES = ("DSE", "CRA", "CNM", "AHP", "heads")
SOURCES = {
    "first run, five tasks in one model": ("similarity/pairs.csv", {"task": "A", "other": "B", "dissociation": "D"}, None),
    "second run, five tasks in one model": ("specialization/iat-pairs.csv", {}, ("method", "multi-task")),
    "a model for each pair": ("pairs/pairs.csv", {}, None),
}


def matrix(rows: pd.DataFrame, column: str, names: list[str]) -> xr.DataArray:
    """The values of all pairs, both ways."""
    values = np.eye(len(names))
    for row in rows.to_dict("records"):
        if row["A"] in names and row["B"] in names:
            i, j = names.index(row["A"]), names.index(row["B"])
            values[i, j] = values[j, i] = row[column]
    return xr.DataArray(values, dims=("task", "other"), coords={"task": names, "other": names})


def table() -> pd.DataFrame:
    """One row per similarity and set of D: Pearson's and Spearman's correlation with one-sided Mantel p, and Pearson's p times five."""
    pairs = pd.read_csv(HERE / "pairs.csv", comment="#").rename(columns={"task": "A", "other": "B"})
    names = list(dict.fromkeys([*pairs["A"], *pairs["B"]]))
    rows = []
    for source, (file, columns, only) in SOURCES.items():
        frame = pd.read_csv(HERE.parent / file, comment="#").rename(columns=columns)
        frame = frame if only is None else frame[frame[only[0]] == only[1]]
        d = matrix(frame, "D", names)
        for name in SIMILARITIES:
            found = {kind: mantel(matrix(pairs, name, names), d, kind=kind, alternative="less") for kind in ("pearson", "spearman")}
            first, ranks = found["pearson"], found["spearman"]
            rows.append(
                {
                    "D": source,
                    "similarity": name,
                    "r": first.correlation,
                    "p": first.p,
                    "p of five": min(1.0, 5 * first.p),
                    "by ranks": ranks.correlation,
                    "p by ranks": ranks.p,
                }
            )
    return pd.DataFrame(rows).round(4)


if __name__ == "__main__":
    table().to_csv(sys.stdout, index=False)
