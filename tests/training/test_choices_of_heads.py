"""Which heads a method masks or frees, given known scores."""

import numpy as np
import pytest
import toy
import xarray as xr

from headwise.heads import HeadSet
from headwise.scoring import gate_gradient
from headwise.training import TrainingRun
from headwise.training._evaluation import evaluate
from headwise.training.methods import ImportantHeads, PruneLeast, RandomHeads, TicketShare

TASKS = [toy.task("mood", 30), toy.task("warmth", 30)]
RISING = xr.DataArray([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]], dims=("layer", "head"))
SCORES = {"mood": RISING, "warmth": 7 - RISING}  # what one task needs most the other needs least
LOW, HIGH = HeadSet([(0, 0), (0, 1)]), HeadSet([(1, 2), (1, 3)])


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training without steps, and scores that are known."""
    monkeypatch.setattr(
        TrainingRun, "score_tasks", lambda run, *_, **__: {name: SCORES[name] for name in run.names}
    )
    monkeypatch.setattr(TrainingRun, "train", lambda run: None)


def branched(method):
    run = TrainingRun(toy.model(TASKS), TASKS, method, toy.settings(epochs=1))
    method.at_branch(run)
    return method


@pytest.mark.usefixtures("known")
def test_pruning_masks_the_least_important_heads() -> None:
    assert branched(PruneLeast(alpha=0.25)).heads == {"mood": LOW, "warmth": HIGH}


@pytest.mark.usefixtures("known")
def test_important_heads_are_the_most_important_of_each_task() -> None:
    assert branched(ImportantHeads(alpha=0.25)).heads == {"mood": HIGH, "warmth": LOW}


@pytest.mark.usefixtures("known")
def test_ticket_share_masks_the_least_important_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def equally_good(model, task, *rest, **options):
        found = evaluate(model, task, *rest, **options)
        asked.append((task.name, task.split("validation").texts))
        found.predictions[:] = 0  # so the sparsest mask is taken
        return found

    monkeypatch.setattr("headwise.training._evaluation.evaluate", equally_good)
    run = TrainingRun(toy.model(TASKS), TASKS, TicketShare(ratios=(0.125, 0.25)), toy.settings(epochs=1))
    assert run.method.heads == {"mood": LOW, "warmth": HIGH}
    assert len(asked) == 2 * 3
    for task in TASKS:  # the share is chosen on a part of train, never on the split that is reported
        (held_out,) = {tuple(texts) for name, texts in asked if name == task.name}
        assert len(held_out) == 3
        assert set(held_out) <= set(task.split("train").texts)


def test_random_heads_differ_between_tasks() -> None:
    tasks = [*TASKS, toy.task("animal", 30)]
    method = RandomHeads(alpha=0.5)
    method.at_branch(TrainingRun(toy.model(tasks), tasks, method, toy.settings(epochs=1)))
    assert [len(heads) for heads in method.heads.values()] == [4, 4, 4]
    assert len(set(method.heads.values())) == 3


def test_heads_are_scored_on_what_was_trained_on() -> None:
    run = TrainingRun(toy.model(TASKS), TASKS, ImportantHeads(), toy.settings(max_examples=20))
    found = run.score_tasks()
    for i, task in enumerate(TASKS):
        sample = task.with_splits(train=run.encoded[i].examples)
        assert len(sample.split("train")) == 20
        expected = gate_gradient(run.model, sample, seed=run.settings.seed, quiet=True)
        np.testing.assert_allclose(found[task.name], expected, rtol=1e-5)
        held_out = gate_gradient(run.model, task, split="validation", quiet=True)
        assert not np.allclose(found[task.name], held_out, rtol=1e-2)
