"""Sentences and tables that call a difference shown, or a task at chance, and the standard errors they stand on: by the code that
writes them."""

import re

import numpy as np
import pandas as pd
import pytest
from level import DRAWS, MOST_REJECTED
from scipy import stats

from headwise._base.inference import MIN_EXAMPLES
from headwise.evaluation import Evaluation
from headwise.figures._blocks import NOT_SHOWN
from headwise.probing._errors import standard_error
from headwise.probing._fits import Labels
from headwise.studies._sections import probing, training
from headwise.tasks import Examples, Task, _metrics as metrics

NUMBERS = ("pearson",)


def probed(metric: str, n: int, skills: tuple[float, float], studies: int = DRAWS) -> pd.DataFrame:
    """Embeddings as `probe` gives them, a task for every simulated study; what is hard for one of the two is hard for the other."""
    rng = np.random.default_rng(n)
    rows = []
    for study in range(studies):
        hard, skill = 0.8 * rng.normal(size=n) + 0.6 * rng.normal(size=(2, n)), np.array(skills)[:, None]
        if metric in NUMBERS:
            labels: np.ndarray = rng.normal(size=n)
            predictions = skill * labels + hard
        else:
            labels = (rng.random(n) < 0.4).astype(np.int64)
            predictions = np.where(hard < stats.norm.ppf(skill), labels, 1 - labels)
        kind, classes = ("number", 0) if metric in NUMBERS else ("classes", 2)
        task = Labels(kind, metric, classes, labels, labels, labels)
        for name, answers in zip(("best layer", "top 4 heads"), predictions, strict=True):
            found = {"test": metrics.score(metric, kind, answers, labels), "stderr": standard_error(answers, task, resamples=60)}
            rows.append({"task": str(study), "embedding": name, **found, "examples": n})
    return pd.DataFrame(rows)


def shown(embeddings: pd.DataFrame) -> tuple[int, int]:
    """On how many tasks the sentence calls the top heads ahead, and behind."""
    sentence = probing.top_against(embeddings, "best")
    found = re.search(r"shown ahead on (\d+), shown behind on (\d+);", sentence)
    assert found, sentence
    return int(found[1]), int(found[2])


@pytest.mark.parametrize(
    ("metric", "n", "skill"),
    [
        ("accuracy", MIN_EXAMPLES, 0.8),
        ("accuracy", MIN_EXAMPLES, 0.97),
        ("accuracy", 300, 0.6),
        ("matthews", MIN_EXAMPLES, 0.8),
        pytest.param("f1", MIN_EXAMPLES, 0.8, marks=pytest.mark.slow),
        pytest.param("pearson", MIN_EXAMPLES, 0.7, marks=pytest.mark.slow),
    ],
)
def test_top_heads_are_rarely_shown_ahead_where_they_are_not(metric: str, n: int, skill: float) -> None:
    assert sum(shown(probed(metric, n, (skill, skill)))) <= MOST_REJECTED * DRAWS


def test_top_heads_that_are_ahead_are_shown() -> None:
    ahead, behind = shown(probed("accuracy", 300, (0.6, 0.8), studies=60))
    assert ahead >= 54
    assert behind == 0


@pytest.mark.parametrize(
    ("metric", "skill"), [("accuracy", 0.8), ("matthews", 0.8), pytest.param("pearson", 0.7, marks=pytest.mark.slow)]
)
def test_the_standard_error_of_a_probe_is_the_spread_over_test_sets(metric: str, skill: float) -> None:
    found = probed(metric, 100, (skill, skill))
    assert found["stderr"].mean() == pytest.approx(found["test"].std(), rel=0.12)


def trained(seeds: int, gain: float = 0.0, studies: int = DRAWS) -> list[str]:
    """The verdict of the sentence on two methods, for each of many simulated studies; a seed is hard for both."""
    rng = np.random.default_rng(seeds)
    verdicts = []
    for _ in range(studies):
        seed = 0.02 * rng.normal(size=(seeds, 1, 1)) + 0.01 * rng.normal(size=(seeds, 2, 2))  # (seeds, methods, tasks)
        scores = 0.8 + seed + gain * np.array([0.0, 1.0])[:, None]
        where = pd.MultiIndex.from_product([range(seeds), ["multi-task", "iat"], ["a", "b"]], names=["seed", "method", "task"])
        table = pd.DataFrame({"score": scores.ravel(), "chance": 0.5}, where).reset_index()
        verdicts.append(training.findings(table)[-1].rpartition("; ")[2])
    return verdicts


@pytest.mark.parametrize("seeds", [3, pytest.param(2, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.slow)])
def test_methods_are_rarely_called_better_or_worse_where_they_are_not(seeds: int) -> None:
    verdicts = trained(seeds)
    assert {"iat is better.", "iat is worse.", f"{NOT_SHOWN}."} >= set(verdicts)
    assert sum(said != f"{NOT_SHOWN}." for said in verdicts) <= MOST_REJECTED * DRAWS


def test_a_better_method_is_called_so() -> None:
    assert trained(5, gain=0.04, studies=40).count("iat is better.") >= 36


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["accuracy", "matthews"])
def test_guesses_are_at_chance_at_the_level_promised(metric: str) -> None:
    rng = np.random.default_rng(1)
    above = 0
    for _ in range(DRAWS):
        examples = Examples([("x",)] * 60, rng.integers(3, size=60), "classes", ("a", "b", "c"))
        task = Task.of("t", {"validation": examples}, metric=metric)
        above += not Evaluation.of(task, examples, (rng.integers(3, size=60), np.zeros(60)), "validation").at_chance
    assert above <= MOST_REJECTED * DRAWS
