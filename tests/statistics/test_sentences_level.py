"""Sentences and tables that call a difference shown, or a task at chance, and the standard errors they stand on: by the code that
writes them."""

import re

import numpy as np
import pandas as pd
import pytest
from level import DRAWS, LEAST_COVERED, MOST_REJECTED, covered, noted
from scipy import stats

from headwise._base.inference import MIN_EXAMPLES
from headwise._base.sentences import NOT_SHOWN
from headwise.evaluation import Evaluation
from headwise.probing import _section as probing
from headwise.probing._errors import standard_error
from headwise.probing._fits import Labels
from headwise.studies._training_tables import differences_of
from headwise.tasks import Examples, Task, _metrics as metrics
from headwise.training import _section as training

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
            found = {
                "test": metrics.score(metric, kind, answers, labels),
                "stderr": standard_error(answers, task, resamples=60),
            }
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
    share = sum(shown(probed(metric, n, (skill, skill)))) / DRAWS
    world = f"{metric}, {n} examples, skill {skill:g}"
    assert noted(share, "top heads against a layer: verdict", world, "rejects", DRAWS) <= MOST_REJECTED


def test_top_heads_that_are_ahead_are_shown() -> None:
    ahead, behind = shown(probed("accuracy", 300, (0.6, 0.8), studies=60))
    assert ahead >= 54
    assert behind == 0


@pytest.mark.parametrize(
    ("metric", "skill"),
    [("accuracy", 0.8), ("matthews", 0.8), pytest.param("pearson", 0.7, marks=pytest.mark.slow)],
)
def test_the_standard_error_of_a_probe_is_the_spread_over_test_sets(metric: str, skill: float) -> None:
    found = probed(metric, 100, (skill, skill), studies=400)
    assert found["stderr"].mean() == pytest.approx(found["test"].std(), rel=0.12)


def trained(seeds: int, gain: float = 0.0, studies: int = DRAWS) -> pd.DataFrame:
    """Scores of two methods on two tasks, a model for every simulated study; a seed is hard for both."""
    rng = np.random.default_rng(seeds)
    shape = (studies, seeds, 2, 2)  # (studies, seeds, methods, tasks)
    scores = 0.8 + 0.02 * rng.normal(size=(studies, seeds, 1, 1)) + 0.01 * rng.normal(size=shape)
    scores += gain * np.array([0.0, 1.0])[:, None]
    parts = [range(studies), range(seeds), ["multi-task", "iat"], ["a", "b"]]
    where = pd.MultiIndex.from_product(parts, names=["model", "seed", "method", "task"])
    return pd.DataFrame(
        {"score": scores.ravel(), "chance": 0.5, "sampling": "s", "split": "test"}, where
    ).reset_index()


def verdict(scores: pd.DataFrame) -> str:
    """What the sentence says of one study."""
    columns = ["seed", "method", "task", "score", "chance"]
    return str(training.training_findings(scores[columns])[-1].rpartition("; ")[2])


@pytest.mark.parametrize("seeds", [3, 2, 8])
def test_methods_are_rarely_called_better_or_worse_where_they_are_not(seeds: int) -> None:
    table = trained(seeds)
    found = differences_of(table).query("task == 'average'").set_index("model")
    share = covered(
        found["low"], found["high"], 0.0, "difference of two methods", f"two tasks, {seeds} seeds"
    )
    assert share >= LEAST_COVERED
    some = [*found.index[:20], *found.index[(found["low"] > 0) | (found["high"] < 0)][:10]]
    for study in some:  # the sentence says what the interval does
        row = found.loc[study]
        said = "iat is better." if row["low"] > 0 else "iat is worse." if row["high"] < 0 else f"{NOT_SHOWN}."
        assert verdict(table[table["model"] == study]) == said


def test_a_better_method_is_called_so() -> None:
    table = trained(5, gain=0.04, studies=40)
    assert [verdict(one) for _, one in table.groupby("model")].count("iat is better.") >= 36


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["accuracy", "matthews"])
def test_guesses_are_at_chance_at_the_level_promised(metric: str) -> None:
    rng = np.random.default_rng(1)
    above = 0
    for _ in range(DRAWS):
        examples = Examples([("x",)] * 60, rng.integers(3, size=60), "classes", ("a", "b", "c"))
        task = Task.from_examples("t", {"validation": examples}, metric=metric)
        above += not Evaluation.from_answers(
            task, examples, (rng.integers(3, size=60), np.zeros(60)), "validation"
        ).at_chance
    world = f"{metric}, 60 guesses of three classes"
    assert noted(above / DRAWS, "a task above chance", world, "rejects", DRAWS) <= MOST_REJECTED
