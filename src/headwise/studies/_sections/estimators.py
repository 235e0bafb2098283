"""The league of estimators, as the study `estimators` leaves it."""

from functools import partial
from typing import Any

import pandas as pd

from headwise.figures import _estimators as figures
from headwise.figures._blocks import Chart, Section, Table, between, number

LEAGUE = (
    "Points, means over seeds. Drop: what the task loses on average over the fractions, from none to the largest, when the estimator's most (or "
    "least) important heads are silenced; over_random: the same less that of random heads, paired by seed, and better: the seeds in which the "
    "estimator beats them. Intervals by t over seeds, from eight on. Rise: of the loss. Seconds: the median, on the machine of the run."
)


def of_estimators(run: Any) -> Section:
    """Every model and task: the finding, the curves, the costs; then the whole league."""
    league, curves, areas = run.table("league"), run.table("curves"), run.table("areas")
    blocks: list[Any] = []
    said: list[str] = []
    for (model, task), some in league.groupby(["model", "task"], sort=False):
        there = (curves["model"] == model) & (curves["task"] == task)
        mean = curves[there].groupby(["estimator", "order", "fraction"], sort=False)["performance"].mean().reset_index()
        begin = (
            areas[(areas["model"] == model) & (areas["task"] == task)]
            .groupby(["estimator", "order"], sort=False)["intact"]
            .mean()
        )
        drawn = pd.concat([begin.rename("performance").reset_index().assign(fraction=0.0), mean], ignore_index=True)
        where = f"{model}, {task}"
        blocks.append(
            Chart(f"curves-{model}-{task}", f"Performance as heads are silenced: {where}", partial(figures.curves, drawn))
        )
        most = some[some["order"] == "most"]
        title = f"What finding the heads costs: {where}"
        blocks.append(Chart(f"cost-{model}-{task}", title, partial(figures.cost, most)))
        said += [f"{where}: {finding(some[some['order'] == order], order)}" for order in ("most", "least")]
    blocks.append(Table("league", "The league of estimators", league, LEAGUE, 2))
    if "agreement.parquet" in run.files:
        note = "Spearman's correlation of two estimators' scores and overlap of their top 30 %, means over seeds; chance: that of random sets."
        blocks.append(Table("agreement", "How far the estimators agree", run.table("agreement"), note, 2))
    methods = (
        "Every estimator scored all heads on training data; its most and its least important heads were silenced at several fractions and the "
        "task evaluated on held-out data."
    )
    return Section("Estimators", said, blocks, methods)


def finding(league: pd.DataFrame, order: str) -> str:
    """The estimator that comes first, beside random heads, as far as the seeds carry it."""
    first = league.sort_values("rank").iloc[0]
    chance = league[league["estimator"] == "random"].iloc[0]
    drop = f"{number(first['drop'])} points on average{between(first['drop_low'], first['drop_high'])}"
    verb = "hurt most" if order == "most" else "are missed least"
    if first["estimator"] == "random":
        return f"no estimator finds heads that {verb} better than chance: silencing random heads costs {drop}"
    seeds = f"in {first['better']:.0f} of {first['seeds']:.0f} seeds" if first["seeds"] > 1 else "in the one seed there is"
    compared = "more" if order == "most" else "less"
    return (
        f"{first['estimator']} finds the heads that {verb}: silencing them costs {drop}, random heads {number(chance['drop'])}; "
        f"it costs {compared} than random heads {seeds}."
    )
