"""Stem cells by gates learnt during training (docs/results/stemcells.md): dynamic-gates.csv and dynamic-scores.csv from a run, the
other files dynamic-*.csv from these two and from claims.csv and scores.csv, all in this folder.

    python docs/results/stemcells/dynamic.py RUN [RUN …]

RUN is what `headwise study run docs/results/stemcells/dynamic-recipe.toml --only group=gated` left; several where each has some of the runs.
"""

import sys
from math import ceil
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import xarray as xr

from headwise.scoring import _concrete as concrete
from headwise.studies import _stemcells as stemcells

HERE = Path(__file__).parent
K, HEADS = 21, 12
TASKS = ("POS", "NER", "DEP", "CON", "SRL")
METRICS = {
    "POS accuracy": "count-accuracy",
    "NER span F1": "count-f1",
    "DEP UAS": "uas",
    "DEP LAS": "las",
    "CON bracket F1": "count-f1",
    "SRL F1": "count-f1",
}
HEAD = """# study: Stem cells, gates learnt during training, MiniLM on EWT
# recipe: docs/results/stemcells/dynamic-recipe.toml (--only group=gated run=0, and run=1)
# commit: d67d951 (computed on a92a4d8 with its change to gated training)
# machine: two CPU cores, torch 2.13.0, transformers 5.22.2
# date: 2026-11-18
# weights of MiniLM-L6: sha256 554d22e49c7da8d4f50d72c3ad3e157962fb4d0f8fd9003d83ce51477cc841ca
# made by: docs/results/stemcells/dynamic.py with claim, claim_agreement, stem_cell_test, stem_cells and per_layer of headwise.studies._stemcells
"""


def kept(runs: list[str]) -> dict[str, pd.DataFrame]:
    """What runs left: log a of every gate, one row per run, task and layer, and the test scores in percent."""
    from headwise import engine

    rows = []
    opened = [engine.open(run) for run in runs]
    for cell, result in (found for run in opened for found in run.results("train")):
        where = {"run": cell["coords"]["run"], "task": cell["coords"]["tasks"].upper()}
        values = result.array("gates").to_numpy()[0]
        rows += [
            {**where, "layer": layer} | dict(zip(map(str, range(HEADS)), row, strict=True)) for layer, row in enumerate(values)
        ]
    scores = pd.concat([run.table("scores", "train") for run in opened])[["task", "metric", "run", "score"]]
    scores = scores.assign(task=scores["task"].str.upper(), score=100 * scores["score"])
    gates = pd.DataFrame(rows).sort_values(["run", "task", "layer"])
    return {"gates": gates.round(6), "scores": scores.sort_values(["task", "metric", "run"]).round(4)}


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(HERE / f"{name}.csv", comment="#")


def gates() -> xr.DataArray:
    """(run, task, layer, head): log a."""
    table = read("dynamic-gates").set_index(["run", "task", "layer"]).rename(columns=int).rename_axis(columns="head")
    return table.stack().to_xarray().sel(task=list(TASKS), head=range(HEADS)).transpose(*stemcells.DIMS)


def claimed(table: pd.DataFrame) -> xr.DataArray:
    """(run, task, layer, head) bool, from a table like claims.csv."""
    runs = sorted(set(table["run"]))
    sets = np.zeros((len(runs), len(TASKS), 6, HEADS), bool)
    for row in table.to_dict("records"):
        for head in row["heads"].split():
            sets[(runs.index(row["run"]), TASKS.index(row["task"]), *map(int, head.split(".")))] = True
    return xr.DataArray(
        sets, dims=stemcells.DIMS, coords={"run": runs, "task": list(TASKS), "layer": range(6), "head": range(HEADS)}
    )


def names(heads: xr.DataArray) -> str:
    return " ".join(f"{layer}.{head}" for layer, head in np.argwhere(heads.to_numpy()))


def listed(values: np.ndarray, form: str) -> str:
    return ", ".join(format(value, form) for value in values)


def tables() -> dict[str, pd.DataFrame]:
    """Every table that follows from the gates and scores."""
    log_a, subset = gates(), claimed(read("claims"))
    claims = stemcells.claim(log_a, K)
    agreement = stemcells.claim_agreement(claims, log_a).round(4)
    found, theirs = stemcells.stem_cells(claims), stemcells.stem_cells(subset)
    common = {"by subset": int(theirs.sum()), "in both": int((found & theirs).sum())}
    needed = ceil(stemcells.SHARE * len(TASKS))
    tested = stemcells.stem_cell_test(claims)
    rows = [{"run": int(one.run), "task": str(task), "heads": names(one.sel(task=task))} for one in claims for task in TASKS]
    overlap = agreement.set_index(["first", "second"])["overlap"]
    square = [{"shared heads": a} | {b: _percent(overlap, a, b) for b in TASKS} for a in TASKS]
    return {
        "claims": pd.DataFrame(rows),
        "stem-cells": pd.DataFrame([{"needed": needed, **tested, **common, "heads": names(found)}]).round(4),
        "agreement": agreement,
        "layers": stemcells.per_layer(claims),
        "table-1": pd.DataFrame(square),
        "overlap": pd.DataFrame([_overlap(task, claims, subset, overlap[task, task]) for task in TASKS]).round(4),
        "open": pd.DataFrame([_open(task, log_a.sel(task=task).to_numpy()) for task in TASKS]),
        "costs": pd.DataFrame([_cost(*name.split(" ", 1), metric) for name, metric in METRICS.items()]).round(4),
    }


def _percent(overlap: pd.Series, first: str, second: str) -> str:
    if (first, second) not in overlap.index:
        return ""
    shown = f"{100 * overlap[first, second]:.0f} %"
    return f"**{shown}**" if first == second else shown


def _overlap(task: str, claims: xr.DataArray, subset: xr.DataArray, runs: float) -> dict[str, object]:
    """Shared with the subset claims of the same run; `by layers` is what random heads of the same layers would share."""
    ours, theirs = claims.sel(task=task), subset.sel(task=task, run=claims.run)
    common = (ours & theirs).sum(("layer", "head")).to_numpy()
    chance = (ours.sum("head") * theirs.sum("head") / HEADS).sum("layer").mean()
    before = float(read("agreement").set_index(["first", "second"])["overlap"][task, task])
    numbers = {"shared": 100 * common.mean() / K, "by layers": 100 * float(chance) / K}
    return {
        "task": task,
        **numbers,
        "heads by run": listed(common, "d"),
        "between runs": 100 * runs,
        "between runs, subset": 100 * before,
    }


def _open(task: str, log_a: np.ndarray) -> dict[str, str]:
    """By run: gates open in expectation during training, above 0.001 and above 0.5 at test, and the highest gate at test."""
    values = torch.tensor(log_a).flatten(1)
    tested = concrete.at_test(values)
    return {
        "task": task,
        "open in training": listed(concrete.open_probability(values).sum(1).numpy(), ".1f"),
        "above 0.001 at test": listed((tested > concrete.CLAIMED_GATE).sum(1).numpy(), "d"),
        "above 0.5 at test": listed((tested > 0.5).sum(1).numpy(), "d"),
        "highest at test": listed(tested.max(1).values.numpy(), ".2f"),
    }


def _cost(task: str, shown: str, metric: str) -> dict[str, object]:
    """Test scores with gates beside those of training alone without, of the same runs."""
    gated, plain = read("dynamic-scores"), read("scores")
    with_gates = gated[(gated["task"] == task) & (gated["metric"] == metric)].set_index("run")["score"]
    plain = plain[(plain["group"] == "single") & (plain["task"] == task.lower())]
    alone = plain[plain["metric"] == metric].set_index("run")["score"]
    alone = alone[with_gates.index]
    ours = {"with gates, by run": listed(with_gates.sort_index().to_numpy(), ".1f"), "with gates": with_gates.mean()}
    return {"task": task, "metric": shown, **ours, "alone": alone.mean(), "difference": (with_gates - alone).mean()}


def write(files: dict[str, pd.DataFrame]) -> None:
    for name, frame in files.items():
        (HERE / f"dynamic-{name}.csv").write_text(HEAD + frame.to_csv(index=False), encoding="utf-8")


if __name__ == "__main__":
    write(kept(sys.argv[1:]))
    write(tables())
