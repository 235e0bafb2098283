"""The league of estimators, as the study `estimators` leaves it."""

from functools import partial
from typing import Any

import pandas as pd

from headwise._base.inference import MIN_SEEDS
from headwise._base.sentences import between, number, synthetic_rows
from headwise.figures import RANDOM_ESTIMATOR, estimators as figures
from headwise.sections import Chart, Section, Table

SHOWN = ["model", "task", "order", "rank", "estimator", "drop", "drop_low", "drop_high"]
SHOWN += ["over_random", "over_random_low", "over_random_high", "better", "units", "seconds"]
TRAINING, DRAW = (
    "training",
    "draw of examples",
)  # what a seed draws: of models that are trained first, and of one model as it is
LEAGUE = (
    "Points, means over {units}. Order: whether the estimator's most or its least important heads are "
    "silenced. Rank 1 costs most (order most) or least (order least). Drop: what the task loses on average "
    "over the fractions, from none to the largest; over_random: the same minus that of random heads (which "
    "have no order), paired by {unit}; better: the {units} in which the estimator beats them. Seconds: the "
    "median, on the machine of the run. The run's own table also has intact performance, chance, the rise of "
    "the loss and the held-out examples."
)


def of_estimators(run: Any) -> Section:
    """Every model and task: the finding, the curves, the costs; then the whole league."""
    league, curves, areas = with_unit(run.table("league")), run.table("curves"), run.table("areas")
    unit = str(league["unit"].iloc[0])
    blocks: list[Any] = []
    sentences: list[str] = []
    for (model, task), group_league in league.groupby(["model", "task"], sort=False):
        there = (curves["model"] == model) & (curves["task"] == task)
        mean = (
            curves[there]
            .groupby(["estimator", "order", "fraction"], sort=False)["performance"]
            .mean()
            .reset_index()
        )
        begin = (
            areas[(areas["model"] == model) & (areas["task"] == task)]
            .groupby(["estimator", "order"], sort=False)["intact"]
            .mean()
        )
        drawn = pd.concat(
            [begin.rename("performance").reset_index().assign(fraction=0.0), mean], ignore_index=True
        )
        where = f"{model}, {task}"
        blocks.append(
            Chart(
                f"curves-{model}-{task}",
                f"Performance as heads are silenced: {where}",
                partial(figures.curves, drawn),
            )
        )
        most = group_league[group_league["order"] == "most"]
        title = f"What finding the heads costs: {where}"
        blocks.append(Chart(f"cost-{model}-{task}", title, partial(figures.cost, most)))
        sentences += [
            f"{where}: {finding(group_league[group_league['order'] == order], order)}"
            for order in ("most", "least")
        ]
    shown = (
        league[SHOWN].dropna(axis="columns", how="all").rename(columns={"units": several(unit)})
    )  # without bounds that nobody has
    caption = LEAGUE.format(unit=unit, units=several(unit))
    blocks.append(Table("league", "The league of estimators", shown, f"{caption} {_of_intervals(league)}"))
    if "agreement.parquet" in run.files:
        note = (
            "Spearman's correlation of two estimators' scores and overlap of their top 30 %, means over "
            f"{several(unit)}; chance: that of random sets. {_of_intervals(league)}"
        )
        blocks.append(
            Table("agreement", "How far the estimators agree", run.table("agreement"), note, detail=True)
        )
    methods = (
        "Every estimator scored all heads on training data; its most and its least important heads were "
        "silenced at several fractions and the "
        "task evaluated on held-out data." + synthetic_rows(areas)
    )
    return Section("Estimators", sentences, blocks, methods)


def with_unit(league: pd.DataFrame) -> pd.DataFrame:
    """The league with its unit; results of older versions did not say whether a seed drew a training."""
    return league if "unit" in league else league.rename(columns={"seeds": "units"}).assign(unit="seed")


def several(unit: str) -> str:
    """The unit in the plural: "trainings", "draws of examples"."""
    first, *words = unit.split(" ")
    return " ".join([f"{first}s", *words])


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit if number == 1 else several(unit)}"


def _of_intervals(league: pd.DataFrame) -> str:
    """What the intervals are over, or why there are none."""
    units, unit = int(league["units"].max()), str(league["unit"].iloc[0])
    if units < MIN_SEEDS:
        return f"No intervals: {_counted(units, unit)}; {MIN_SEEDS} are needed."
    if unit == DRAW:
        return (
            f"Intervals: Student's t over {_counted(units, unit)} of one model, which say nothing about "
            "other trainings."
        )
    return f"Intervals: Student's t over {_counted(units, unit)}."


def finding(league: pd.DataFrame, order: str) -> str:
    """The estimator that comes first, beside random heads, as far as trainings or draws of examples carry
    it."""
    first = league.sort_values("rank").iloc[0]
    units, unit = int(first["units"]), str(first["unit"])
    if first["at_chance"]:
        counts = ""
        if units > 1:
            counts = f" in {first['at_chance']} of {_counted(units, unit)}"
        return (
            f"the intact model is at chance{counts} ({number(first['intact'])} %), so its lesions show "
            "nothing."
        )
    drop = f"{number(first['drop'])} points on average{between(first['drop_low'], first['drop_high'])}"
    if order == "most":
        heads, verb, compared = "top", "hurt most", "more"
    else:
        heads, verb, compared = "least important", "are missed least", "less"
    equal = [str(name) for name in league.loc[league["rank"] == 1, "estimator"]]
    if RANDOM_ESTIMATOR in equal:
        return f"no estimator's {heads} heads cost {compared} than random heads do ({drop})."
    chance = league[league["estimator"] == RANDOM_ESTIMATOR].iloc[0]
    if len(equal) == 1:
        names = f"{equal[0]} finds"
    else:
        names = f"{', '.join(equal[:-1])} and {equal[-1]} find equally well"
    if units == 1:
        where = f"in the one {unit} there is"
    else:
        where = f"in {first['better']} of {_counted(units, unit)}"
    return (
        f"{names} the heads that {verb}: silencing them costs {drop} over {first['examples']} held-out "
        f"examples, random heads {number(chance['drop'])}; {compared} than random heads {where}."
    )
