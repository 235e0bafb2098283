"""Which task each step trains, and in which order each task's examples come."""

import numpy as np
import pytest
import toy
from hypothesis import given, settings, strategies as st

from headwise.errors import HeadwiseError
from headwise.tasks import encode
from headwise.training._data import Stream, shares
from headwise.training._samplers import SAMPLINGS, plan, probabilities

SIZES, BATCHES = [1000, 100, 10], [32, 4, 1]


def test_probabilities_follow_their_definitions() -> None:
    n = np.array(SIZES, float)
    expected = {
        "proportional": n / n.sum(),
        "square-root": n**0.5 / (n**0.5).sum(),
        "uniform": np.full(3, 1 / 3),
        "temperature": n ** (1 / 5) / (n ** (1 / 5)).sum(),
        "power": np.array(BATCHES) ** 0.8 / (np.array(BATCHES) ** 0.8).sum(),
    }
    for name, p in expected.items():
        np.testing.assert_allclose(probabilities(name, SIZES, BATCHES, 1, 5), p)


def test_annealed_sampling_is_equation_8() -> None:
    n = np.array(SIZES, float)
    for epoch, exponent in ((1, 1.0), (2, 0.8), (3, 0.6), (4, 0.4), (5, 0.2)):
        np.testing.assert_allclose(
            probabilities("annealed", SIZES, BATCHES, epoch, 5), n**exponent / (n**exponent).sum()
        )
    np.testing.assert_allclose(
        probabilities("annealed", SIZES, BATCHES, 1, 1), n / n.sum()
    )  # a single epoch: nothing to anneal


def test_plan_draws_by_probability_and_an_epoch_has_as_many_steps_as_batches() -> None:
    drawn = plan("square-root", [900, 100], [150, 50], 100, seed=3)
    assert len(drawn) == 100 * 200
    assert abs((drawn == 0).mean() - 0.75) < 0.01
    assert (drawn == plan("square-root", [900, 100], [150, 50], 100, seed=3)).all()
    assert (drawn != plan("square-root", [900, 100], [150, 50], 100, seed=4)).any()


def test_pooled_plan_has_every_batch_once_an_epoch() -> None:
    drawn = plan("pooled", SIZES, BATCHES, 4, seed=0).reshape(4, -1)
    for epoch in drawn:
        assert np.bincount(epoch).tolist() == BATCHES


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_one_epoch_and_one_task_work(sampling: str) -> None:
    assert plan(sampling, [10], [3], 1, seed=0).tolist() == [0, 0, 0]


def test_no_examples_is_an_error() -> None:
    with pytest.raises(HeadwiseError, match="nothing to train on"):
        plan("uniform", [0], [0], 1, seed=0)


def test_no_example_repeats_before_all_were_seen() -> None:
    encoded = encode(toy.task("mood", 45).split("train"), toy.tokenizer())
    stream = Stream(encoded, 16, seed=5)
    passes = [[stream.rows_of_batch(3 * p + i)[0] for i in range(3)] for p in range(3)]
    for batches in passes:
        assert sorted(np.concatenate(batches).tolist()) == list(range(45))
    assert [b.tolist() for b in passes[0]] != [b.tolist() for b in passes[1]]
    assert (
        stream.rows_of_batch(1)[0].tolist() == passes[0][1].tolist()
    )  # any batch can be asked for at any time


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 5), st.one_of(st.none(), st.integers(1, 9)))
def test_processes_share_a_step_completely_and_meet_equally_often(
    size: int, world: int, micro: int | None
) -> None:
    chosen = np.arange(100, 100 + size)
    parts = [shares(chosen, rank, world, micro) for rank in range(world)]
    assert len({len(own) for own in parts}) == 1
    real = [part for own in parts for part, weight in own if weight]
    assert sorted(np.concatenate(real).tolist()) == chosen.tolist()
    assert all(len(part) <= (micro or size) for own in parts for part, _ in own)
    assert all(len(part) == 1 for own in parts for part, weight in own if not weight)


def test_annealing_reaches_the_plan() -> None:
    sizes, batches, epochs = [900, 100], [3000, 1000], 3
    drawn = plan("annealed", sizes, batches, epochs, seed=0).reshape(epochs, -1)
    for epoch, exponent in enumerate((1.0, 0.6, 0.2)):
        expected = 900**exponent / (900**exponent + 100**exponent)
        assert abs((drawn[epoch] == 0).mean() - expected) < 0.02  # 0.90, 0.79, 0.61
