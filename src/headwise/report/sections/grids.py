"""Studies that are grids over models, tasks, methods and seeds: specialization, training, probing, fine-tuning from heads."""

from typing import Any

import pandas as pd

from headwise.figures import dissociation as figures
from headwise.report.blocks import Chart, HeadMaps, Section, Table, number
from headwise.report.sections.probing import top_against
from headwise.report.sections.training import findings as training_findings
from headwise.report.sections.training import score_chart

# which tables of a run are shown, in order, and what they are called
SHOWN = {
    "specialization": {
        "d": "D of every result, seed by seed",
        "pairs-mean": "Every pair, means over seeds (Table 9)",
        "performance-mean": "Performance under lesions, in percent (Table 3)",
        "overlap-mean": "Heads shared by two tasks, in percent (Table 11)",
        "layers-mean": "Heads chosen per layer (Fig. 4)",
        "sweep-mean": "D over the share of heads silenced",
        "paradigms": "D within and across input paradigms",
        "training": "Performance of the methods, in percent",
    },
    "training": {"training": "Scores, mean and standard deviation over seeds"},
    "probing": {
        "probing": "Last layer, best layer, top heads",
        "syntactic-semantic": "Syntactic and semantic score of every head",
    },
    "head-finetuning": {
        "fine-tuning": "Fine-tuning from heads and from layers",
        "shift": "What fine-tuning changed in every head",
    },
}
METHODS = {
    "specialization": "Models were trained on groups of tasks; each task's top heads by Eq. 4 were silenced and every task evaluated (Eq. 5–7).",
    "training": "One task per step; scores on validation with each task's own metric.",
    "probing": "Logistic regression on each head's output and each layer's hidden state; everything chosen on validation, scored on test.",
    "head-finetuning": "Concatenated outputs of the top heads, fine-tuned end to end, against the last and the best layer.",
}


def read(run: Any, label: str, provenance: dict[str, Any], settings: dict[str, Any]) -> Section:
    """The section of such a run."""
    kind = settings["kind"]
    blocks: list[Any] = []
    said: list[str] = []
    if kind == "specialization" and "grid.parquet" in run.files:
        grid = run.table("grid").set_index("label")
        title = "Dissociation of every model and pair (Fig. 2)"
        blocks.append(Chart("grid", title, lambda: figures.matrix(grid, "dissociation (%)")))
        said += [
            f"{name}: D is {number(row['average'])} % on average over pairs, positive on {int((row.drop('average') > 0).sum())} of "
            f"{int(row.drop('average').notna().sum())} (point estimates)."
            for name, row in grid.iterrows()
        ]
        seeds = run.table("pairs-mean") if "pairs-mean.parquet" in run.files else pd.DataFrame()
        if "D_seed_low" in seeds:
            known = int(seeds["D_seed_low"].notna().sum())
            said.append(
                f"The interval of D over seeds lies above 0 for {int((seeds['D_seed_low'] > 0).sum())} of {known} results."
                if known
                else "There are too few seeds (eight are needed) for an interval of D: seeds are shown one by one."
            )
    if kind == "training" and "scores.parquet" in run.files:
        scores = run.table("scores")
        scores = scores[scores["split"] == "validation"]
        for place, some in scores.groupby([c for c in ("model", "sampling") if c in scores], sort=False):
            where = ", ".join(map(str, place))
            said += [f"{where}: {sentence}" for sentence in training_findings(some)]
            blocks.append(score_chart(some, where))
    if kind == "probing" and "test.nc" in run.files:
        for model in dict.fromkeys(run.table("embeddings")["model"]):
            values = run.array("test", model=model).drop_vars("model", errors="ignore")
            if "task" not in values.dims:
                values = values.expand_dims("task")
            values = values.transpose("task", "layer", "head")
            blocks.append(HeadMaps(f"probes-{model}", f"What every head of {model} knows", "probe score", values))
            found = top_against(run.table("embeddings", model=model), "last")
            if found:
                said.append(f"{model}: {found}")
    for name, title in SHOWN[kind].items():
        if f"{name}.parquet" in run.files:
            blocks.append(Table(f"{kind}-{name}", title, run.table(name), digits=2))
    return Section(f"{kind.capitalize()}: {label}", said, blocks, METHODS[kind], settings, provenance)
