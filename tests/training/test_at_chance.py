"""A task that did no better than a guess is said to be at chance, and only that."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
import toy

import headwise
from headwise.evaluation import Evaluation
from headwise.tasks import Examples, Task
from headwise.training._grid import Comparison
from headwise.training._result import TrainingResult


def evaluation(predictions: np.ndarray, labels: np.ndarray, metric: str) -> Evaluation:
    kind = "number" if metric == "spearman" else "classes"
    classes = () if kind == "number" else ("a", "b", "c")
    examples = Examples([("x",)] * len(labels), labels, kind, classes)
    task = Task.from_examples("t", {"validation": examples}, metric=metric)
    return Evaluation.from_answers(task, examples, (predictions, np.zeros(len(labels))), "validation")


def test_the_test_of_chance_is_that_of_all_permutations() -> None:
    """Six examples have 720 orders: the share that does as well decides, not how far the score is from chance."""
    labels = np.array([0.0, 1, 2, 3, 4, 5])
    for predictions in ([0, 1, 2, 3, 5, 4], [0, 3, 1, 5, 2, 4], [5, 1, 2, 3, 4, 0]):
        found = evaluation(np.array(predictions, dtype=float), labels, "spearman")
        every = [found.task.score(found.predictions, np.array(order)) for order in permutations(labels)]
        assert found.at_chance == (np.mean(np.array(every) >= found.score - 1e-12) > 0.05), predictions


@pytest.mark.parametrize("metric", ["accuracy", "f1", "macro-f1", "matthews", "spearman"])
def test_what_was_learnt_is_not_at_chance_and_what_collapsed_is(metric: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.normal(size=200) if metric == "spearman" else rng.integers(2, size=200)
    noisy = (
        labels + rng.normal(size=200)
        if metric == "spearman"
        else np.where(rng.random(200) < 0.2, 1 - labels, labels)
    )
    assert not evaluation(noisy, labels, metric).at_chance
    constant = np.ones(200, dtype=labels.dtype)
    assert evaluation(constant, labels, metric).at_chance


def test_chance_is_that_of_the_examples_that_were_asked() -> None:
    task = toy.task("mood", 60)
    labels = np.asarray(task.split("validation").labels)
    found = headwise.lesion(toy.model([task]), task, {}, examples=7, seed=3, quiet=True)
    asked = found.tasks["mood"].labels
    assert len(asked) == 7
    share = np.bincount(asked).max() / 7
    assert found.tasks["mood"].chance == pytest.approx(share)
    assert share != pytest.approx(np.bincount(labels).max() / len(labels))


def test_the_table_says_so() -> None:
    def result(scores: list[float], at_chance: list[bool]) -> TrainingResult:
        rows = {
            "task": ["a", "b"],
            "split": "validation",
            "metric": "accuracy",
            "score": scores,
            "chance": 0.5,
        }
        return TrainingResult(
            pd.DataFrame({**rows, "at_chance": at_chance, "examples": 10}), pd.DataFrame(), pd.DataFrame(), {}
        )

    two = {("iat", 0): result([0.8, 0.5], [False, True]), ("iat", 1): result([0.8, 0.7], [False, False])}
    table = Comparison(two).table()
    assert table.loc["a", "iat"] == "80.0 ± 0.0"
    assert table.loc["b", "iat"] == "60.0 ± 14.1 (1 of 2 seeds at chance)"
    assert Comparison({("iat", 0): two["iat", 0]}).table().loc["b", "iat"] == "50.0 at chance"
