"""What a dissociation chooses and resamples: heads on training data, random sets under the same constraint, examples jointly."""

from typing import Any

import numpy as np
import pytest

import planted
from headwise.heads import HeadSet
from headwise.lesions import dissociate
from headwise.lesions._analysis import analyse, performance_draws
from headwise.lesions._evaluation import INTACT, Lesions, TaskOutcome
from headwise.lesions._statistics import resplit_test
from headwise.scoring import score


def study(**options: Any) -> Any:
    both = planted.tasks(size=24)
    model = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    return model, both, dissociate(model, list(both.values()), bootstrap=0, quiet=True, **options)


def test_heads_are_chosen_on_the_training_split() -> None:
    model, both, found = study(fraction=1 / 8, random_draws=1)
    train, validation = (score(model, list(both.values()), split=split, quiet=True) for split in ("train", "validation"))
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
    found = analyse(made_up(dict.fromkeys((INTACT, "a", "b"), predictions), labels), ["a", "b"], ["a", "b"], bootstrap=199)
    assert (found.draws == 1).all()  # the same examples for every lesion: relative performance is 1 in each resample
    assert np.isnan(found.d_interval()).all()  # 0 to 0 would read as certainty


def test_resamples_follow_the_seed() -> None:
    rng = np.random.default_rng(1)
    labels, intact, worse = rng.integers(0, 2, (3, 60))
    lesions = made_up({INTACT: intact, "a": worse}, labels)
    one, again, other = (performance_draws(lesions, ["a", "b"], [INTACT, "a"], 30, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one[..., 0], one[..., 1])  # tasks are different examples: each has its own resamples


def test_p_of_the_resplit_test_counts_the_observed_split() -> None:
    a, b = (HeadSet((layer, head) for head in range(4)) for layer in range(2))  # 70 splits: more than are drawn
    assert resplit_test(1.0, a, b, lambda pairs: [0.0] * len(pairs), draws=19).p == pytest.approx(1 / 20)
    assert resplit_test(0.5, a, b, lambda pairs: [1.0] * 4 + [0.0] * (len(pairs) - 4), draws=19).p == pytest.approx(5 / 20)
