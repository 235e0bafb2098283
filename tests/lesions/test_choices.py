"""What a dissociation chooses and resamples: heads on training data, random sets under the same constraint, examples jointly."""

from typing import Any

import numpy as np
import pytest

import planted
from headwise.heads import HeadSet
from headwise.lesions import dissociate
from headwise.lesions._analysis import analyse, performance_draws
from headwise.lesions._dissociation import overall, per_task
from headwise.lesions._evaluation import INTACT, Lesions, TaskOutcome
from headwise.lesions._intervals import interval
from headwise.lesions._statistics import resplit_test
from headwise.scoring import score


def study(**options: Any) -> Any:
    both = planted.tasks(size=24)
    model = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    return model, both, dissociate(model, list(both.values()), bootstrap=0, quiet=True, **options)


def test_heads_are_chosen_on_the_training_split() -> None:
    model, both, found = study(fraction=1 / 8, random_draws=1)
    train, validation = (
        score(model, list(both.values()), split=split, quiet=True) for split in ("train", "validation")
    )
    np.testing.assert_allclose(found.scores, train)
    assert not np.allclose(train, validation, rtol=1e-3)
    assert found.lesions.settings["split"] == "validation"  # and judged on held-out examples


def test_random_sets_obey_the_same_constraint_as_the_chosen_ones() -> None:
    _, _, found = study(fraction=0.25, min_per_layer=3, random_draws=12)
    sets = {name: chosen for name, chosen in found.lesions.sets.items() if name != INTACT}
    assert len(sets) == 2 + 12
    for name, chosen in sets.items():
        assert [sum(layer == here for here, _ in chosen) for layer in range(2)] == [1, 1], name
    assert len({chosen for name, chosen in sets.items() if name.startswith("random ")}) > 3


def made_up(lesioned: dict[str, np.ndarray], labels: np.ndarray) -> Lesions:
    """Two tasks with the same labels whose predictions under each lesion are given."""
    predictions = np.stack(list(lesioned.values()))
    outcome = TaskOutcome("classes", "accuracy", predictions, np.zeros(predictions.shape), labels, 0.5, {})
    return Lesions({name: HeadSet() for name in lesioned}, {"a": outcome, "b": outcome}, {})


def test_lesions_that_change_nothing_have_no_interval() -> None:
    rng = np.random.default_rng(0)
    labels, predictions = rng.integers(0, 2, (2, 60))
    found = analyse(
        made_up(dict.fromkeys((INTACT, "a", "b"), predictions), labels), ["a", "b"], ["a", "b"], bootstrap=199
    )
    assert (
        found.draws == 1
    ).all()  # the same examples for every lesion: relative performance is 1 in each resample
    assert np.isnan(found.d_interval()).all()  # 0 to 0 would read as certainty


def test_resamples_follow_the_seed() -> None:
    rng = np.random.default_rng(1)
    labels, intact, worse = rng.integers(0, 2, (3, 60))
    lesions = made_up({INTACT: intact, "a": worse}, labels)
    one, again, other = (
        performance_draws(lesions, ["a", "b"], [INTACT, "a"], 30, seed) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert not np.array_equal(
        one[..., 0], one[..., 1]
    )  # tasks are different examples: each has its own resamples


def test_p_of_the_resplit_test_counts_the_observed_split() -> None:
    a, b = (
        HeadSet((layer, head) for head in range(4)) for layer in range(2)
    )  # 70 splits: more than are drawn
    assert resplit_test(1.0, a, b, lambda pairs: [0.0] * len(pairs), draws=19).p == pytest.approx(1 / 20)
    assert resplit_test(
        0.5, a, b, lambda pairs: [1.0] * 4 + [0.0] * (len(pairs) - 4), draws=19
    ).p == pytest.approx(5 / 20)


def of_sizes(sizes: dict[str, int], metric: str = "accuracy", classes: int = 3) -> Lesions:
    """Tasks of some numbers of examples, each with lesions named after all of them; a few answers differ between any two lesions."""
    rng = np.random.default_rng(5)
    tasks = {}
    for name, n in sizes.items():
        labels = rng.integers(classes, size=n)
        wrong = rng.random((1 + len(sizes), n)) < 0.12
        predictions = np.where(wrong, rng.integers(classes, size=wrong.shape), labels)
        tasks[name] = TaskOutcome(
            "classes", metric, predictions, np.zeros(wrong.shape), labels, 1 / classes, {}
        )
    return Lesions({INTACT: HeadSet(), **{name: HeadSet() for name in sizes}}, tasks, {})


@pytest.mark.parametrize("metric", ["accuracy", "f1"])
def test_an_interval_is_as_wide_as_the_examples_on_which_lesions_differ_allow(metric: str) -> None:
    """Answers that differ, counted by hand: under a task's own lesion against each other one, over the tasks of the figure."""
    sizes = {"a": 60, "b": 400, "c": 90}
    lesions = of_sizes(sizes, metric, classes=3 if metric == "accuracy" else 2)
    found = analyse(lesions, list(sizes), list(sizes), bootstrap=399)

    def unlike(task: str, one: str, two: str) -> int:
        outcome, rows = lesions.tasks[task], list(lesions.sets)
        assert outcome.labels is not None
        pairs = zip(
            outcome.predictions[rows.index(one)],
            outcome.predictions[rows.index(two)],
            outcome.labels,
            strict=True,
        )
        if metric == "accuracy":  # two wrong answers are alike
            return sum((first == label) != (second == label) for first, second, label in pairs)
        return sum(first != second for first, second, _ in pairs)

    def apart(tasks: str, lesioned: str) -> float:
        return float(
            sum(np.mean([unlike(task, task, other) for other in lesioned if other != task]) for task in tasks)
        )

    d_i, pairs = found.d_i_bounds(), found.pair_bounds()
    draws = {
        "D": overall(found.draws),
        "b": per_task(found.draws)[:, 1],
        "a–b": overall(found.draws[:, :2, :2]),
    }
    values = {"D": found.d, "b": found.d_i[1], "a–b": float(overall(found.rp[:2, :2]))}
    for name, bounds, examples, differing in (
        ("D", found.d_bounds(), 60, apart("abc", "abc")),
        ("b", d_i[1], 400, apart("b", "abc")),
        ("a–b", pairs[0, 1], 60, apart("ab", "ab")),
    ):
        expected = interval(draws[name], examples=examples, value=values[name], differing=differing)
        assert (bounds.low, bounds.high) == pytest.approx(tuple(map(float, expected))), name
    under = found.rp_bounds([0, 2], 1)
    differing = np.mean([unlike("b", INTACT, "a"), unlike("b", INTACT, "c")])
    expected = interval(
        found.draws[:, [0, 2], 1].mean(1), examples=400, value=found.rp[[0, 2], 1].mean(), differing=differing
    )
    assert (under.low, under.high) == pytest.approx(tuple(map(float, expected)))


def test_the_smallest_task_of_a_figure_decides_whether_it_has_an_interval() -> None:
    found = analyse(of_sizes({"a": 400, "b": 49, "c": 90}), list("abc"), list("abc"), bootstrap=199)
    assert found.d_bounds().why == "b has 49 held-out examples; 50 are needed"
    pairs = found.pair_bounds()
    assert pairs[0, 1].why == pairs[1, 2].why == "b has 49 held-out examples; 50 are needed"
    assert pairs[0, 2].why == ""
    assert [bool(bounds.why) for bounds in found.d_i_bounds()] == [False, True, False]
