"""Intervals of language-model operations hold their level: simulated through the code that users call."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from headwise._base.inference import MIN_EXAMPLES
from headwise.evaluation import Evaluation
from headwise.harness._pairing import summary
from headwise.heads import HeadSet
from headwise.models._decoders.output import SavedTask
from headwise.steering._measuring import Judged
from headwise.steering._settings import Steer
from headwise.studies._induction import Induction
from headwise.studies._roles_study import summary as of_lesion

DRAWS = 400


def covered(inside: list[bool]) -> None:
    assert 0.925 <= np.mean(inside) <= 0.99, np.mean(inside)


@pytest.mark.parametrize("n", [MIN_EXAMPLES, 200])
def test_the_coverage_of_a_paired_evaluation(n: int) -> None:
    """Right or wrong under both models, which share most of their answers."""
    rng = np.random.default_rng(n)
    p = np.array([[0.50, 0.08], [0.22, 0.20]])  # intact wrong/right × changed wrong/right
    inside = []
    for draw in range(DRAWS):
        cell = rng.choice(4, size=n, p=p.ravel())
        rows = {"task": "t", "filter": "none", "metric": "acc", "example": range(n), "intact": cell // 2, "changed": cell % 2}
        (row,) = summary(pd.DataFrame(rows).astype({"intact": float, "changed": float}), 999, 0.95, draw).to_dict("records")
        inside.append(row["low"] <= p[0, 1] - p[1, 0] <= row["high"])
    covered(inside)


@pytest.mark.parametrize("metric", ["accuracy", pytest.param("macro-f1", marks=pytest.mark.slow)])
def test_the_coverage_of_the_score_of_an_evaluation(metric: str) -> None:
    """Answers that are right about four times in five; the truth is that of very many examples."""
    rng = np.random.default_rng(3)
    task = SavedTask("t", "classes", ("a", "b", "c"), metric)

    def evaluated(n: int, seed: int) -> Evaluation:
        labels = rng.integers(3, size=n)
        predictions = np.where(rng.random(n) < 0.75, labels, rng.integers(3, size=n))
        return Evaluation(
            task, "validation", predictions, np.zeros(n), labels, 0.0, {"bootstrap": 199, "level": 0.95, "seed": seed}
        )

    truth = evaluated(200_000, 0).score
    inside = []
    for draw in range(DRAWS):
        low, high = evaluated(2 * MIN_EXAMPLES, draw).interval
        inside.append(low <= truth <= high)
    covered(inside)


def test_too_few_examples_have_no_interval() -> None:
    rows = {"task": "t", "filter": "none", "metric": "acc", "example": range(5), "intact": 0.0, "changed": [0.0, 1, 0, 1, 1]}
    (row,) = summary(pd.DataFrame(rows), 999, 0.95, 0).to_dict("records")
    assert np.isnan(row["low"])
    assert row["note"] == "no interval: 5 held-out examples; 50 are needed"


@pytest.mark.parametrize("pairs", [True, False])
def test_the_coverage_of_the_effect_of_steering(pairs: bool) -> None:
    """Skewed log-probabilities; the change is that of the same examples under another strength."""
    rng = np.random.default_rng(1)
    n, truth, inside = 2 * MIN_EXAMPLES, 0.4, []
    of_target = None if pairs else np.arange(n) < n // 2
    settings = Steer(bootstrap=999, seed=0, quiet=True)
    for _ in range(DRAWS):
        own = rng.gamma(2.0, 1.0, size=n)
        gain = truth * rng.gamma(2.0, 0.5, size=n)
        if of_target is not None:
            gain = np.where(of_target, gain, 0.1 * rng.gamma(2.0, 0.5, size=n))
        table = Judged(np.stack([own, own + gain]), np.zeros((2, n)), of_target).table([0.0, 1.0], settings)
        expected = truth if pairs else truth - 0.1
        inside.append(table["change_low"][1] <= expected <= table["change_high"][1])
    covered(inside)


def test_the_coverage_over_sequences() -> None:
    rng = np.random.default_rng(2)
    inside = []
    for _ in range(DRAWS):
        accuracy = pd.DataFrame({"intact": rng.binomial(40, rng.beta(14, 6, size=16)) / 40})
        scores = xr.DataArray(np.zeros((1, 1)), dims=("layer", "head"))
        row = Induction(scores, HeadSet(), accuracy, "m").summary.iloc[0]
        inside.append(row["low"] <= 70 <= row["high"])
    covered(inside)


@pytest.mark.parametrize("units", [8, 24])
def test_the_coverage_of_silenced_roles(units: int) -> None:
    """Random sets of heads, of which a few cost much: a skewed population that is drawn from again and again."""
    rng = np.random.default_rng(units)
    sets = 100 - rng.gamma(6.0, 3.0, size=300)
    drawn = [rng.choice(sets, units) for _ in range(DRAWS)]
    found = [of_lesion(pd.DataFrame({"accuracy": one, "loss": 0.0}), "draws") for one in drawn]
    covered([row["low"] <= sets.mean() <= row["high"] for row in found])


def test_intervals_stay_within_percent_and_need_distinct_values() -> None:
    found = of_lesion(pd.DataFrame({"accuracy": [0.0, 0, 0, 0, 0, 0, 2, 9], "loss": 1.0}), "draws")
    assert found["low"] == 0
    assert np.isnan(of_lesion(pd.DataFrame({"accuracy": [0.0, 0, 0, 0, 0, 0, 2, 2], "loss": 1.0}), "draws")["low"])
