"""Intervals of language-model operations hold their level: simulated through the code that users call."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from level import DRAWS, LEAST_COVERED, covered

from headwise._base.inference import MIN_EXAMPLES
from headwise.evaluation import Evaluation
from headwise.harness._pairing import summary
from headwise.heads import HeadSet
from headwise.lesions._intervals import mean_interval, resample_counts
from headwise.models._decoders.output import SavedTask
from headwise.steering._settings import Steer
from headwise.steering._strengths import Judged
from headwise.studies._induction import Induction
from headwise.studies._roles_study import summary as of_lesion


@pytest.mark.parametrize(
    ("n", "cells"),
    [
        (MIN_EXAMPLES, (0.50, 0.08, 0.22, 0.20)),
        (200, (0.50, 0.08, 0.22, 0.20)),
        (MIN_EXAMPLES, (0.02, 0.02, 0.06, 0.90)),
    ],
)
def test_the_coverage_of_a_paired_evaluation(n: int, cells: tuple[float, ...]) -> None:
    """Right or wrong under both models, which share most of their answers; `cells`: intact wrong/right × changed wrong/right."""
    rng = np.random.default_rng(n)
    drawn = rng.choice(4, size=(DRAWS, n), p=cells)
    bounds = [
        mean_interval(cell % 2 - cell // 2, resample_counts(n, 199, study))
        for study, cell in enumerate(drawn)
    ]
    low, high = np.array(bounds).T
    world = f"accuracy, {n} examples, {100 * (cells[2] + cells[3]):.0f} % right intact, {100 * (cells[1] + cells[3]):.0f} % changed"
    assert covered(low, high, cells[1] - cells[2], "`headwise eval`: difference", world) >= LEAST_COVERED
    rows = {
        "task": "t",
        "filter": "none",
        "metric": "acc",
        "example": range(n),
        "intact": drawn[0] // 2,
        "changed": drawn[0] % 2,
    }
    (row,) = summary(pd.DataFrame(rows).astype({"intact": float, "changed": float}), 199, 0.95, 0).to_dict(
        "records"
    )
    assert (row["low"], row["high"]) == pytest.approx(bounds[0])  # the table has the interval simulated


@pytest.mark.parametrize(
    ("metric", "n", "skill"),
    [
        ("accuracy", 100, 0.75),
        ("accuracy", MIN_EXAMPLES, 0.98),
        pytest.param("macro-f1", 100, 0.75, marks=pytest.mark.slow),
        pytest.param("macro-f1", MIN_EXAMPLES, 0.94, marks=pytest.mark.slow),
        pytest.param("matthews", MIN_EXAMPLES, 0.94, marks=pytest.mark.slow),
        pytest.param("matthews", 100, 0.5, marks=pytest.mark.slow),
    ],
)
def test_the_coverage_of_the_score_of_an_evaluation(metric: str, n: int, skill: float) -> None:
    """Answers that are right as often as `skill` says, else guessed; the truth is that of very many examples."""
    rng = np.random.default_rng(3)
    task = SavedTask("t", "classes", ("a", "b", "c"), metric)

    def evaluated(n: int, seed: int) -> Evaluation:
        labels = rng.integers(3, size=n)
        predictions = np.where(rng.random(n) < skill, labels, rng.integers(3, size=n))
        return Evaluation(
            task,
            "validation",
            predictions,
            np.zeros(n),
            labels,
            0.0,
            {"bootstrap": 199, "level": 0.95, "seed": seed},
        )

    truth = evaluated(200_000, 0).score
    low, high = np.array([evaluated(n, study).interval for study in range(DRAWS)]).T
    world = f"{metric}, {n} examples, three classes, {100 * (skill + (1 - skill) / 3):.0f} % right"
    assert covered(low, high, truth, "metric of a model (`evaluate`)", world) >= LEAST_COVERED


def test_too_few_examples_have_no_interval() -> None:
    rows = {
        "task": "t",
        "filter": "none",
        "metric": "acc",
        "example": range(5),
        "intact": 0.0,
        "changed": [0.0, 1, 0, 1, 1],
    }
    (row,) = summary(pd.DataFrame(rows), 999, 0.95, 0).to_dict("records")
    assert np.isnan(row["low"])
    assert row["note"] == "no interval: 5 held-out examples; 50 are needed"


@pytest.mark.parametrize(("pairs", "n"), [(True, MIN_EXAMPLES), (False, 2 * MIN_EXAMPLES)])
def test_the_coverage_of_the_effect_of_steering(pairs: bool, n: int) -> None:
    """Skewed log-probabilities; the change is that of the same examples under another strength."""
    rng = np.random.default_rng(1)
    truth, of_target = 0.4, None if pairs else np.arange(n) < n // 2
    settings = Steer(bootstrap=199, seed=0, quiet=True)
    ends: dict[str, list[tuple[float, float]]] = {"effect": [], "change": [], "kl": []}
    for _ in range(DRAWS):
        own, kl = rng.gamma(2.0, 1.0, size=n), rng.gamma(1.0, 0.2, size=n)
        gain = truth * rng.gamma(2.0, 0.5, size=n)
        if of_target is not None:
            gain = np.where(of_target, gain, 0.1 * rng.gamma(2.0, 0.5, size=n))
        table = Judged(np.stack([own, own + gain]), np.stack([0 * kl, kl]), of_target).table(
            [0.0, 1.0], settings
        )
        for name, kept in ends.items():
            kept.append((table[f"{name}_low"][1], table[f"{name}_high"][1]))
    gained = truth if pairs else truth - 0.1
    kind = "pairs" if pairs else f"statements, {n // 2} of each class"
    for name, expected in (("effect", gained + 2 * pairs), ("change", gained), ("kl", 0.2)):
        low, high = np.array(ends[name]).T
        assert covered(low, high, expected, f"steering: {name}", f"{n} {kind}, skewed") >= LEAST_COVERED


@pytest.mark.parametrize(("a", "b"), [(14, 6), (38, 2)])
def test_the_coverage_over_sequences(a: int, b: int) -> None:
    rng = np.random.default_rng(2)
    accuracy = pd.DataFrame(
        rng.binomial(40, rng.beta(a, b, size=(16, DRAWS))) / 40
    )  # a column for each study
    scores = xr.DataArray(np.zeros((1, 1)), dims=("layer", "head"))
    found = Induction(scores, HeadSet(), accuracy, "m").summary
    truth = 100 * a / (a + b)
    world = f"16 sequences of 40 tokens, {truth:.0f} % right"
    assert (
        covered(found["low"], found["high"], truth, "accuracy on repeated tokens (demo)", world)
        >= LEAST_COVERED
    )


@pytest.mark.parametrize("units", [8, 24])
def test_the_coverage_of_silenced_roles(units: int) -> None:
    """Random sets of heads, of which a few cost much: a skewed population that is drawn from again and again."""
    rng = np.random.default_rng(units)
    sets = 100 - rng.gamma(6.0, 3.0, size=300)
    drawn = [rng.choice(sets, units) for _ in range(DRAWS)]
    found = [of_lesion(pd.DataFrame({"accuracy": one, "loss": 0.0}), "draws") for one in drawn]
    low, high = ([row[end] for row in found] for end in ("low", "high"))
    world = f"{units} sets of random heads, skewed"
    assert (
        covered(low, high, sets.mean(), "accuracy on repeated tokens (study `roles`)", world) >= LEAST_COVERED
    )


def test_intervals_stay_within_percent_and_need_distinct_values() -> None:
    found = of_lesion(pd.DataFrame({"accuracy": [0.0, 0, 0, 0, 0, 0, 2, 9], "loss": 1.0}), "draws")
    assert found["low"] == 0
    assert np.isnan(
        of_lesion(pd.DataFrame({"accuracy": [0.0, 0, 0, 0, 0, 0, 2, 2], "loss": 1.0}), "draws")["low"]
    )
