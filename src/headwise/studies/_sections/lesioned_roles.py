"""Roles of language-model heads and what is left without the strongest, as the study `roles` leaves them."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd

from headwise._base.sentences import between, number
from headwise.figures import roles as figures
from headwise.sections import Chart, Section, Table

COPIES = 5.0  # percent of repeated tokens, below which a model does not copy and no lesion can show anything
LESIONS = (
    "Accuracy: repeated tokens that the model predicts, in percent; loss: of these tokens, in nats. "
    "Intervals: 95 %, Student's t over what the table names."
)
SHARES = (
    "Share of a head's attention on the role's pattern, in percent; chance: that of a head that spreads its "
    "attention evenly."
)
DOTS = (
    "Filled: trained weights; open: random weights; grey: each draw of random heads. Lines: 95 % intervals."
)


def of_roles(run: Any) -> Section:
    """Every model: what its strongest heads carry; then the lesions and the strongest heads."""
    heads, lesions, draws = (run.table(name, "roles-tables") for name in ("heads", "lesions", "draws"))
    recipe = run.recipe
    sentences = []
    for (model, weights), model_lesions in lesions.groupby(["model", "weights"], sort=False):
        here = [table[(table["model"] == model) & (table["weights"] == weights)] for table in (heads, draws)]
        sentences.append(
            f"{model}{', random weights' if weights == 'random' else ''}: {finding(model_lesions, *here)}"
        )
    return Section(
        "Roles",
        sentences,
        [
            Chart("copying", "What is left of copying", partial(figures.copying, lesions, draws), DOTS),
            Table("lesions", "What silencing heads costs", lesions, LESIONS),
            Table("heads", "Strongest heads", heads, SHARES),
        ],
        f"Each sequence is {recipe['repeated']} random tokens and the same tokens again. Heads were ranked "
        f"by their attention on {recipe['sequences']} sequences and silenced on {recipe['held_out']} others; "
        "random heads lie in the same layers as the strongest and are none of them. Only the second reading "
        "counts, from its second token on.",
    )


def finding(lesions: pd.DataFrame, heads: pd.DataFrame, draws: pd.DataFrame) -> str:
    """What one model's strongest heads carry of its copying, beside random heads."""
    intact, without, controls = lesions.to_dict("records")
    role = str(without["silenced"]).split()[-2]
    first = heads[heads["role"] == role].iloc[0]
    share = (
        f"head {first['head']}, the strongest for {role}, gives the pattern {number(first['share'])} % of "
        f"its attention (chance {number(first['chance'])} %)"
    )
    if intact["accuracy"] < COPIES:
        return (
            f"{share}; intact, the model predicts {number(intact['accuracy'])} % of repeated tokens, so "
            "lesions say nothing about copying."
        )
    return (
        f"{share}; intact, the model predicts {_accuracy(intact)} of repeated tokens, without its "
        f"{without['silenced']} {_accuracy(without)}, without {controls['silenced']} {_accuracy(controls)}; "
        f"the lowest of {len(draws)} draws is {number(draws['accuracy'].min())} %."
    )


def _accuracy(row: Mapping[Any, Any]) -> str:
    return f"{number(row['accuracy'])} %{between(row['low'], row['high'])}"
