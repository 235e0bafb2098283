"""The figures of the stem-cell page, drawn from the CSV files beside it; see figures.py."""

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from tables import read

from headwise.figures._stemcells import layer_changes, stem_cell_map

HERE = Path(__file__).parent / "stemcells"


def stem_cells() -> Any:
    """MiniLM-L6: how many tasks claim each head, mean over runs; heads that at least four of five claim in most runs are framed."""
    return _map(read(HERE / "claims.csv"), layers=6)


def stem_cells_mpnet() -> Any:
    """mpnet-base: the same, by subset gates."""
    return _map(read(HERE / "mpnet-claims.csv").query("gates == 'subset'"), layers=12)


def stem_cell_layers() -> Any:
    """MiniLM-L6: what training together changes in each layer."""
    return _changes("layer-changes.csv")


def stem_cell_layers_mpnet() -> Any:
    """mpnet-base: the same."""
    return _changes("mpnet-layer-changes.csv")


def _map(table: Any, layers: int) -> Any:
    from headwise.studies._stemcells import stem_cells as shared

    runs, tasks = (list(dict.fromkeys(table[name])) for name in ("run", "task"))
    claims = np.zeros((len(runs), len(tasks), layers, 12), bool)
    for row in table.to_dict("records"):
        for head in row["heads"].split():
            claims[(runs.index(row["run"]), tasks.index(row["task"]), *map(int, head.split(".")))] = True
    array = xr.DataArray(claims, dims=("run", "task", "layer", "head"), coords={"run": runs, "task": tasks})
    return stem_cell_map(array, shared(array))


def _changes(file: str) -> Any:
    table = read(HERE / file)
    return layer_changes(table.assign(**{name: table[name] / 100 for name in ("change", "low", "high")}))
