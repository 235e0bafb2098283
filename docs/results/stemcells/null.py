"""How many heads most tasks claim, against relabelled heads (docs/results/stemcells.md): stem-cells.csv and mpnet-stem-cells.csv, from
claims.csv and mpnet-claims.csv in this folder.

    python docs/results/stemcells/null.py

MPNet has one table of position biases for all layers (`Heads.tied_layers`), so a task's relabelling of head numbers holds in
all of its layers. How many different numbers the shared heads have is compared with as many heads drawn at random in the same layers.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise.studies import _stemcells as stemcells

HERE = Path(__file__).parent
HEADS = 12
DRAWS = 99_999


def read(name: str) -> pd.DataFrame:
    lines = [line for line in (HERE / name).read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    return pd.read_csv(HERE / name, skiprows=len(lines))


def claimed(table: pd.DataFrame, layers: int) -> xr.DataArray:
    """(run, task, layer, head) bool, from a table of claims."""
    runs, tasks = (list(dict.fromkeys(table[name])) for name in ("run", "task"))
    sets = np.zeros((len(runs), len(tasks), layers, HEADS), bool)
    for row in table.to_dict("records"):
        for head in row["heads"].split():
            sets[(runs.index(row["run"]), tasks.index(row["task"]), *map(int, head.split(".")))] = True
    return xr.DataArray(sets, dims=stemcells.DIMS, coords={"run": runs, "task": tasks})


def numbers(shared: xr.DataArray) -> dict[str, Any]:
    """How many different head numbers the shared heads have, and as many random heads of the same layers; p: the share that has so few."""
    rng, heads = np.random.default_rng(0), shared.to_numpy()
    keys = rng.random((DRAWS, *heads.shape)).argsort(-1)  # (draws, layers, heads), a random order in each layer
    drawn = (keys < heads.sum(-1)[:, None]).any(1).sum(-1)
    found = int(heads.any(0).sum())
    return {"numbers": found, "numbers by chance": drawn.mean(), "p of so few": (1 + (drawn <= found).sum()) / (1 + DRAWS)}


def tables() -> dict[str, pd.DataFrame]:
    """Both files."""
    small, large = claimed(read("claims.csv"), 6), read("mpnet-claims.csv")
    rows = []
    for gates, some in large.groupby("gates", sort=False):
        claims = claimed(some, 12)
        k = int(claims[0, 0].sum())
        tested = stemcells.stem_cell_test(claims, tied=[range(12)])
        rows.append({"gates": gates, "k": k, **tested, **numbers(stemcells.stem_cells(claims))})
    first = {"gates": "subset", "k": int(small[0, 0].sum()), **stemcells.stem_cell_test(small)}
    return {"stem-cells.csv": pd.DataFrame([first]).round(4), "mpnet-stem-cells.csv": pd.DataFrame(rows).round(5)}


if __name__ == "__main__":
    for name, frame in tables().items():
        head = [line for line in (HERE / name).read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        (HERE / name).write_text("\n".join([*head, frame.to_csv(index=False)]), encoding="utf-8")
