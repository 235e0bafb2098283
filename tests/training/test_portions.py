"""Early stopping chooses on examples of its own; the seed decides which examples a training sees, whatever the method."""

import numpy as np
import pytest
import toy

from headwise.errors import HeadwiseError
from headwise.tasks import Task
from headwise.tasks._splits import text_key
from headwise.training import TrainingResult, TrainingRun, evaluate, train
from headwise.training._grid import steps_of
from headwise.training._portions import portion_of, set_aside
from headwise.training.methods import make_method

EPOCHS = {"epochs": 9, "learning_rate": 1e-2, "evaluate": "epoch", "early_stopping": 2}


def skewed(n: int = 200) -> Task:
    """A fifth is of the rare class; some texts occur several times."""
    draw = np.random.default_rng(0)
    rows = [
        (f"{text} {'' if i % 7 else 'cat'}", "rare" if i % 5 == 0 else "common")
        for i, text in enumerate(toy.texts(n, 3))
    ]
    rows += [rows[i] for i in draw.integers(n, size=n // 4)]
    return Task("skewed", data={"train": rows, "validation": rows[:40]}, kind="classes")


def test_the_part_set_aside_has_its_share_of_every_class_and_no_text_of_the_rest() -> None:
    train_split = skewed().split("train")
    labels = np.asarray(train_split.labels)
    for seed in range(5):
        aside = set_aside(train_split, 0.1, seed)
        assert np.array_equal(aside, set_aside(train_split, 0.1, seed))
        for label in np.unique(labels):
            wanted = 0.1 * (labels == label).sum()
            assert abs((labels[aside] == label).sum() - wanted) <= 3  # copies of one text come together
        keys = [text_key(text) for text in train_split.texts]
        rest = np.setdiff1d(np.arange(len(keys)), aside)
        assert not {keys[i] for i in aside} & {keys[i] for i in rest}
    assert len({tuple(set_aside(train_split, 0.1, seed)) for seed in range(5)}) == 5
    for task in (toy.task("warmth", 50), toy.task("mood", 50)):  # numbers have no classes
        assert len(set_aside(task.split("train"), 0.1, 0)) == 5


def test_early_stopping_never_looks_at_the_split_that_is_reported() -> None:
    """Another validation split, the same choice: here validation says the opposite of train."""
    mood = toy.task("mood", 60)
    held = mood.split("validation")
    turned = mood.with_splits(
        validation=type(held)(held.texts, 1 - np.asarray(held.labels), held.kind, held.classes)
    )
    runs = []
    for task in (mood, turned):
        run = TrainingRun(toy.model([task], dropout=0.1), [task], settings=toy.settings(**EPOCHS))
        run.train()
        runs.append(run)
    toy.assert_identical(toy.weights(runs[0].model), toy.weights(runs[1].model))
    assert runs[0].evaluations == runs[1].evaluations
    assert {row["split"] for row in runs[0].evaluations} == {"stopping"}
    portion = portion_of(mood, runs[0].settings)
    assert portion.stopping is not None
    assert len(portion.train) == len(runs[0].encoded[0]) == 60 - len(portion.stopping)
    assert len(runs[0].plan) == steps_of([mood], runs[0].settings) == 9 * -(-len(portion.train) // 16)
    best = max(row["score"] for row in runs[0].evaluations)
    stopping = mood.with_splits(stopping=portion.stopping)
    assert evaluate(runs[0].model, stopping, split="stopping", quiet=True).score == best


def test_choosing_on_validation_is_possible_and_noted(tmp_path) -> None:
    task = toy.task("mood", 60)
    options = {**EPOCHS, "batch_size": 16, "quiet": True, "device": "cpu"}
    noted = train(
        toy.model([task]), task, "multi-task", stopping_split="validation", out=tmp_path / "a", **options
    )
    assert noted.description["notes"][0].startswith(
        "early stopping chose the epoch on validation, the split that is reported"
    )
    assert TrainingResult.load(tmp_path / "a").description["notes"] == noted.description["notes"]
    silent = train(toy.model([task]), task, "multi-task", **options)
    assert silent.description["notes"] == []
    with pytest.raises(HeadwiseError, match='stopping_split: given "test"'):
        toy.settings(stopping_split="test")
    few = {
        "train": [("good cat", "up"), ("sad dog", "down")],
        "validation": [("nice tree", "up"), ("poor car", "down")],
    }
    with pytest.raises(HeadwiseError, match="2 are too few for that"):
        portion_of(Task("few", data=few, kind="classes"), toy.settings(**EPOCHS))


def test_the_seed_draws_the_examples_and_every_method_sees_the_same() -> None:
    task = toy.task("mood", 60)
    seen = {}
    for seed in (0, 0, 1):
        for method in ("multi-task", "iat", "mt-dnn"):
            settings = toy.settings(max_examples=20, seed=seed)
            run = TrainingRun(toy.model([task]), [task], make_method(method), settings)
            seen.setdefault(seed, set()).add(tuple(run.encoded[0].examples.texts))
    assert len(seen[0]) == len(seen[1]) == 1
    assert seen[0] != seen[1]
    assert seen[0] == {tuple(task.split("train").sample(20, 0).texts)}
