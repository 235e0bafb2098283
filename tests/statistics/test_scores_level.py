"""Agreement of head scores over seeds, and standard errors of Shapley values and of probes."""

import numpy as np
import pytest
import xarray as xr
from level import DRAWS, LEAST_COVERED, covered
from scipy import stats

from headwise.probing._errors import score_interval, standard_error
from headwise.probing._fits import Labels
from headwise.scoring import compare_scores
from headwise.tasks import _metrics as metrics


@pytest.mark.parametrize(
    ("metric", "n", "skill"),
    [
        ("accuracy", 50, 0.8),
        ("accuracy", 50, 0.99),
        ("matthews", 50, 0.9),
        ("matthews", 100, 0.97),
        ("pearson", 50, 3.0),
    ],
)
def test_the_coverage_of_the_interval_of_a_probe(metric: str, n: int, skill: float) -> None:
    """Answers right as often as `skill` says, or numbers with that signal for a noise of 1; the truth is that of very many examples."""
    rng = np.random.default_rng(n)
    numbers = metric == "pearson"

    def answers(n: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.normal(size=n) if numbers else (rng.random(n) < 0.4).astype(np.int64)
        return (
            skill * labels + rng.normal(size=n)
            if numbers
            else np.where(rng.random(n) < skill, labels, 1 - labels)
        ), labels

    function = metrics.METRICS[metric].function
    truth, bounds = function(*answers(400_000)), []
    for _ in range(DRAWS):
        predictions, labels = answers(n)
        task = Labels("number" if numbers else "classes", metric, 0 if numbers else 2, labels, labels, labels)
        error = standard_error(predictions, task, resamples=60)
        bounds.append(score_interval(function(predictions, labels), error, n, metric))
    low, high = np.array(bounds).T
    right = f"signal {skill:g} times the noise" if numbers else f"{100 * skill:g} % right"
    assert (
        covered(low, high, truth, "test score of a probe", f"{metric}, {n} examples, {right}")
        >= LEAST_COVERED
    )


def test_the_coverage_of_agreement_over_seeds() -> None:
    """Two estimators of 32 heads in layers that resemble one another, eight seeds; the truth is their mean agreement over many seeds."""
    rng = np.random.default_rng(0)
    studies, seeds = DRAWS, 8
    layer, head = (
        rng.normal(size=(8, 1)),
        rng.normal(size=(8, 4)),
    )  # what this model's layers and heads are, in every seed
    own = rng.normal(size=(2, studies * seeds, 8, 4))
    shared = layer + head + 0.5 * rng.normal(size=(studies * seeds, 8, 4))
    both = shared + 0.7 * own
    rows = []
    for study in range(studies):
        part = slice(study * seeds, (study + 1) * seeds)
        arrays = {
            name: xr.DataArray(values[part], dims=("seed", "layer", "head"), attrs={"sense": "magnitude"})
            for name, values in zip("ab", both, strict=True)
        }
        rows.append(compare_scores(arrays).iloc[0])
    for name in ("spearman", "overlap"):
        values = np.array([row[name] for row in rows])
        low, high = (np.array([row[f"{name}_{side}"] for row in rows]) for side in ("low", "high"))
        world = f"{name}, 32 heads, 8 seeds"
        assert (
            covered(low, high, values.mean(), "agreement of scores (`compare_scores`)", world)
            >= LEAST_COVERED
        )
        chance = rows[0]["chance"] if name == "overlap" else 0.0
        assert (low > chance).mean() >= 0.8  # agreement above chance is seen
    assert stats.sem(values) < 0.01  # the mean over all studies is a truth to measure by
