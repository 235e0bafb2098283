"""The stem-cell study, as the study `stem-cells` leaves it."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from headwise._base.least import EXPLAINED
from headwise._base.names import file_name
from headwise._base.sentences import NOT_SHOWN, between, no_interval, number, sign, synthetic_rows
from headwise.figures import stemcells as figures
from headwise.sections import Chart, HeadMaps, Section, Table
from headwise.studies._sections import optional_table
from headwise.studies._stemcells import stem_cells

SAID = {1: "higher, over runs and heads", -1: "lower, over runs and heads", 0: NOT_SHOWN}
RELABELLED = (
    "Expected, range and p: heads relabelled within layers, once per task; they speak of these runs and "
    "tasks."
)
BOUNDS = (
    "95 % intervals over runs and heads, from two runs and four heads of each group on; not corrected for "
    "the number of effects."
)


def section(run: Any) -> Section:
    """The section of a stem-cell run."""
    tests, effects = run.table("stem-cells"), run.table("effects")
    blocks: list[Any] = []
    layers = 0
    for method in tests["gates"]:
        name = file_name(str(method))
        if f"claims-{name}.nc" in run.files:
            claims = run.array(f"claims-{name}").astype(bool)
            layers = int(claims.sizes["layer"])
            title = f"Share of runs in which a task claims a head ({method})"
            always = {
                str(task): np.argwhere(claims.sel(task=task).all("run").to_numpy()).tolist()
                for task in claims["task"].values
            }
            note = "Framed heads are claimed in every run."
            blocks.append(
                HeadMaps(f"claims-{name}", title, "share of runs", claims.mean("run"), always, note)
            )
            if not str(method).endswith("random weights"):
                draw = partial(figures.stem_cell_map, claims, stem_cells(claims))
                blocks.append(Chart(f"stem-cells-{name}", f"Heads that most tasks claim ({method})", draw))
        if f"agreement-{name}.parquet" in run.files:
            agreement = run.table(f"agreement-{name}")
            for value in ("overlap", "spearman"):
                title = f"{value.capitalize()} of claims of two tasks ({method})"
                blocks.append(
                    Chart(f"{value}-{name}", title, partial(figures.task_overlap, agreement, value))
                )
            title = f"Agreement between tasks and between runs ({method})"
            blocks.append(Table(f"agreement-{name}", title, agreement, detail=True))
    if "labels.parquet" in run.files:
        blocks += label_charts(run.table("labels"), layers)
    blocks += [
        Chart(
            "effects",
            "Does training together harm shared heads?",
            lambda: figures.effects(effects),
            "Points of probe score. Negative: harmed more than other heads.",
        ),
        Table(
            "stem-cells",
            "How many heads most tasks claim, against layer-matched random sets",
            tests,
            RELABELLED,
        ),
        Table("effects", "The hypothesis, with its interval over runs and heads", effects, BOUNDS),
    ]
    if "layer-changes.parquet" in run.files:
        changes = run.table("layer-changes")
        title = (
            "Mean change of probe scores from single- to multi-task training, by layer, with its interval "
            "over runs"
        )
        blocks += [
            Chart(
                "layer-changes",
                "What training together changes, layer by layer",
                partial(figures.layer_changes, changes),
            ),
            Table("layer-changes", title, changes, detail=True),
        ]
    scores = optional_table(run, "scores")
    if len(scores):
        blocks += score_tables(scores)
    return Section(
        title="Stem cells",
        findings=findings(tests, effects),
        blocks=blocks,
        methods="Every task learns gates for the same number of heads; stem-cell heads are those that at "
        "least four of five tasks claim in most runs. The effect is the change of probe score from single- "
        "to multi-task training on stem-cell heads minus that on heads one task alone claims, with heads "
        "chosen on runs other than those measured; and minus that on the other heads of the same layers, "
        "since training together may change some layers more than others. "
        f"{EXPLAINED}.{synthetic_rows(scores)}",
    )


def score_tables(scores: pd.DataFrame) -> list[Table]:
    """Test scores: mean and standard deviation over runs, and those of every training."""
    keys = [name for name in ("group", "tasks", "task", "metric") if name in scores]
    means = (100 * scores.groupby(keys, sort=False)["score"].agg(["mean", "std"])).reset_index()
    means = means.rename(columns={"tasks": "trained on", "std": "sd"})
    each = scores.drop(columns="synthetic", errors="ignore")
    return [
        Table("scores", "Scores on test, %", means, "Mean and standard deviation over runs."),
        Table("stemcell-scores", "Test scores of every training", each, detail=True),
    ]


def label_charts(labels: pd.DataFrame, layers: int) -> list[Chart]:
    """Where the best head of every label lies, stage by stage, and what training together changes for it."""
    model_labels = labels[labels["subject"] == "model"]
    stages = {
        str(stage): model_labels[model_labels["stage"] == stage]
        for stage in dict.fromkeys(model_labels["stage"])
    }
    charts = []
    for stage, table in stages.items():
        average = (
            table.groupby(["task", "label"], sort=False)[["layer", "recall", "gold"]].mean().reset_index()
        )
        draw = partial(figures.best_layers, average, layers)
        charts.append(Chart(f"best-layers-{stage}", f"Layer of the best head of every label ({stage})", draw))
    for stage in [stage for stage in ("multi", "iat") if {stage, "single"} <= set(stages)]:
        draw = partial(figures.label_changes, stages["single"], stages[stage], names=("single", stage))
        charts.append(
            Chart(
                f"label-changes-{stage}",
                f"What the best head of every label knows after {stage} training",
                draw,
            )
        )
    return charts


def findings(tests: pd.DataFrame, effects: pd.DataFrame) -> list[str]:
    """How many stem cells, and whether training together spoils them."""
    sentences = []
    for row in tests.to_dict("records"):
        left_out = _left_out(row)
        if np.isnan(row["p"]):
            sentences.append(
                f"By {row['gates']}, nothing can be said of shared heads: fewer than two tasks were learnt. "
                f"{left_out}"
            )
            continue
        comparison = "more than" if row["p"] <= 0.05 else "not shown to be more than"
        sentences.append(
            f"By {row['gates']}, {row['found']:.0f} heads are claimed by most tasks, {comparison} the "
            f"{number(row['expected'])} that chance would give (p = {row['p']:.3g}). {left_out}".rstrip()
        )
    for row in effects.to_dict("records"):
        if np.isnan(row["mean"]):
            sentences.append(
                (
                    f"{row['gates']}, {row['effect']}: there were no heads to measure it on. {_left_out(row)}"
                ).rstrip()
            )
            continue
        points = {key: 100 * row[key] for key in ("mean", "low", "high")}
        if row["note"]:
            meant = no_interval(row["note"], "runs and heads")
        else:
            meant = SAID[sign(points["low"], points["high"])]
        sentences.append(
            f"{row['gates']}, {row['effect']}: {number(points['mean'], 2, sign=True)} points of probe score"
            f"{between(points['low'], points['high'], 2)}: {meant}. {_left_out(row)}".rstrip()
        )
    return sentences


def _left_out(row: Mapping[Any, Any]) -> str:
    """A sentence about the tasks that a row leaves out because they were not learnt; "" if none."""
    names = row.get("at chance", "")
    if not names:
        return ""
    return (
        f"Left out, since {'they were' if ', ' in names else 'it was'} not learnt (at chance on test): "
        f"{names}."
    )
