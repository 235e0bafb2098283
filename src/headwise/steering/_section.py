"""What is said of a steering: inference-time intervention."""

from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from headwise._base.least import EXPLAINED
from headwise._base.sentences import NOT_SHOWN, between, no_interval, number, sign
from headwise.figures import language as figures
from headwise.sections import Chart, Section, Table

if TYPE_CHECKING:
    from headwise.steering._result import Steering

REPORTED = "test"


def section(result: "Steering") -> Section:
    """The section of a steering."""
    effect = (
        "log p(good) − log p(bad)"
        if result.settings["pairs"]
        else f"log p per token, {result.settings['target']} − others"
    )
    heads = result.heads.assign(
        head=[f"{layer}.{head}" for layer, head in result.heads[["layer", "head"]].to_numpy()]
    )
    level = f"{100 * result.settings['level']:g} % intervals over examples"
    bounds = "no intervals" if pd.isna(result.table["effect_low"]).all() else level
    probes = "Accuracy of a head's probe; sigma: standard deviation of its output along the direction."
    return Section(
        title=f"Steering towards {result.settings['target']}",
        findings=findings(result),
        blocks=[
            Chart(
                "steering",
                "Effect and distance from the intact model, by strength",
                partial(
                    figures.strengths, result.table, result.strength, effect.replace("token, ", "token,\n")
                ),
                f"The validation split chose the strength (dotted: {result.strength:g}); the test split is reported.",
            ),
            Table(
                "steering",
                "Every strength on both splits",
                result.table,
                f"Effect: {effect}; change: from the intact model; kl: nats per token; {bounds}; chosen on validation: {result.strength:g}.",
            ),
            Table("steering-heads", "Steered heads", heads.drop(columns="layer"), probes),
        ],
        methods=_methods(result),
        settings=result.settings,
        notes=result.notes,
        values={"strength": result.strength},
    )


def findings(result: "Steering") -> list[str]:
    """What the chosen strength does on the reported split, by its interval; and the best probe."""
    facts, level = result.settings, result.settings["level"]
    reported = result.table[result.table["split"] == REPORTED].set_index("strength")
    what = (
        "the mean of log p(good) − log p(bad)"
        if facts["pairs"]
        else f"the lead of {facts['target']} statements over the others in log p"
    )
    best = result.heads.iloc[0]
    probe = (
        f"The probe of head {int(best['layer'])}.{int(best['head'])}, best on validation, classifies {number(100 * best['test'])} % of the "
        "test statements correctly."
    )
    if not result.strength:
        return [
            f"No strength raised {what} within the limit of {facts['max_kl']:g} nats per token on the validation split.",
            probe,
        ]
    row = reported.loc[result.strength]
    changes = {1: "raises", -1: "lowers", 0: "changes"}[sign(row["change_low"], row["change_high"])]
    held = (
        ""
        if sign(row["change_low"], row["change_high"])
        else f": {no_interval(row.get('note', '')) if pd.isna(row['change_low']) else NOT_SHOWN}"
    )
    sentences = [
        f"Steering {len(result.heads)} of {facts['heads_total']} heads towards {facts['target']} with strength {result.strength:g} {changes} "
        f"{what} by {number(row['change'], 2, sign=True)}{between(row['change_low'], row['change_high'], 2, level)} on the test "
        f"split, at {number(row['kl'], 2)} nats per token from the intact model{held}."
    ]
    if "accuracy" in reported:
        intact = reported["accuracy"].loc[0.0]
        sentences.append(
            f"The good text is the likelier one in {number(100 * intact)} % of the pairs with the intact model, and in "
            f"{number(100 * row['accuracy'])} % with the steered one."
        )
    return [*sentences, probe]


def _methods(result: "Steering") -> str:
    way = {
        "mean": "the mean output on the target class minus that on the others",
        "probe": "its probe's weights",
    }
    facts = result.settings
    return (
        "Inference-time intervention (Li et al. 2023): a logistic probe of every head's output at the last token, fitted on the training "
        f"statements of {facts['task']}; the heads with the best probes on validation; a direction of each, {way[facts['directions']]}; "
        "strength × σ × direction is added at all tokens. The strength with the largest effect on the validation split within "
        f"{facts['max_kl']:g} nats per token was chosen. Intervals are over examples: one model, heads and directions fixed. "
        f"{EXPLAINED}."
    )
