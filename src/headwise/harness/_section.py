"""What is said of a changed model beside the intact one in lm-evaluation-harness."""

from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from headwise._base.least import EXPLAINED
from headwise._base.sentences import NOT_SHOWN, between, no_interval, number, sign
from headwise.figures import language as figures
from headwise.sections import Chart, Section, Table

if TYPE_CHECKING:
    from headwise.harness._result import HarnessResult

SAID = 6  # metrics in sentences of their own


def section(result: "HarnessResult") -> Section:
    """The section of an evaluation by the harness."""
    named = result.table.set_axis(_names(result.table))
    interval = f"{100 * result.settings['level']:g} % intervals of the paired difference over examples, where there are enough of them."
    chart = Chart("evaluation", "Changed minus intact model", partial(figures.differences, named), interval)
    table = Table(
        "evaluation",
        "Intact and changed model on every task",
        result.table,
        f"{result.settings['change']}; {interval}",
    )
    return Section(
        title="Evaluation of a changed model",
        findings=findings(result),
        blocks=[chart, table] if len(named) else [table],
        methods=f"lm-evaluation-harness ran the same requests on the intact and on the changed model ({result.settings['change']}). "
        "The unit is the example: differences are paired, intervals a bootstrap over examples, each at its own level. "
        f"{EXPLAINED}.",
        settings=result.settings,
        notes=result.notes,
    )


def findings(result: "HarnessResult") -> list[str]:
    """Every metric by its interval; of many, how many rise and fall."""
    table, level = result.table, result.settings["level"]
    if not len(table):
        return ["No metric of these tasks has a value per example, so there is nothing to compare."]
    signs = [sign(low, high) for low, high in zip(table["low"], table["high"], strict=True)]
    head = f"The change ({result.settings['change']}) "
    sentences = []
    for name, way, (_, row) in list(zip(_names(table), signs, table.iterrows(), strict=True))[:SAID]:
        verdict = {
            1: "it is higher",
            -1: "it is lower",
            0: no_interval(row.get("note", "")) if pd.isna(row["low"]) else NOT_SHOWN,
        }[way]
        sentences.append(
            f"{name}: {number(row['intact'], 3)} intact, {number(row['changed'], 3)} changed, a difference of "
            f"{number(row['difference'], 3, sign=True)}{between(row['low'], row['high'], 3, level)}: {verdict}."
        )
    without = int(table["low"].isna().sum())
    counted = f"raises {signs.count(1)} and lowers {signs.count(-1)} of {len(table)} metrics; " + (
        f"for the others {NOT_SHOWN}."
        if not without
        else f"there is no interval for {without}; for the rest {NOT_SHOWN}."
    )
    return [head + counted, *sentences]


def _names(table: pd.DataFrame) -> list[str]:
    """A row's task and metric, and its filter where a task has several."""
    several = table.groupby("task")["filter"].transform("nunique") > 1
    return [
        f"{row['task']}, {row['metric']}" + (f" ({row['filter']})" if many else "")
        for many, (_, row) in zip(several, table.iterrows(), strict=True)
    ]
