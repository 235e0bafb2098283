"""A sweep over α and δ: the settings share their first steps, to the bit, and those are computed once."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import toy

from headwise.errors import HeadwiseError
from headwise.training import TrainingRun
from headwise.training._grid import BRANCHES, compare, grid_entries
from headwise.training.methods.iat import ImportantHeads

TASKS = [toy.task("mood", 60), toy.task("animal", 40)]
QUICK = {"epochs": 2, "batch_size": 10, "learning_rate": 1e-3, "quiet": True, "device": "cpu", "seeds": 1}
STEPS = 2 * (6 + 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    toy.encoder().save_pretrained(place)
    toy.tokenizer().save_pretrained(place)
    return place


def test_settings_branch_from_one_training(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: Counter[int] = Counter()
    branches = {}
    one, at_branch = TrainingRun.optimizer_step, ImportantHeads.at_branch

    def counted(self, step):
        computed[self.step] += 1
        return one(self, step)

    def noted(self, run):
        branches[self.options.alpha, self.options.delta] = (
            toy.weights(run.model),
            run.losses[: run.step].copy(),
        )
        at_branch(self, run)

    monkeypatch.setattr(TrainingRun, "optimizer_step", counted)
    monkeypatch.setattr(ImportantHeads, "at_branch", noted)
    sweep = {"alpha": (0.25, 0.5), "delta": (0.2, 0.5)}
    found = compare(folder, TASKS, ["iat", "multi-task"], out=tmp_path / "swept", sweep=sweep, **QUICK)
    labels = [
        "iat-alpha-0.25-delta-0.2",
        "iat-alpha-0.25-delta-0.5",
        "iat-alpha-0.5-delta-0.2",
        "iat-alpha-0.5-delta-0.5",
    ]
    assert [label for label, _ in found.results] == [*labels, "multi-task"]
    assert computed == {step: 1 if step < 10 else 3 if step < 16 else 5 for step in range(STEPS)}
    for delta in (0.2, 0.5):
        toy.assert_identical(*(branches[alpha, delta][0] for alpha in (0.25, 0.5)))
    plain = found.results["multi-task", 0]
    for (_, delta), (_, losses) in branches.items():
        before = round((1 - delta) * STEPS)
        assert len(losses) == before
        assert np.array_equal(losses, plain.history["loss"].to_numpy()[:before])
    for label in labels:  # as if each had been trained by itself
        _, own = found.swept[label]
        alone = compare(folder, TASKS, ["iat"], out=tmp_path / "alone" / label, **own, **QUICK)
        toy.assert_identical(
            toy.weights(found.results[label, 0].model), toy.weights(alone.results["iat", 0].model)
        )
    assert not (tmp_path / "swept" / BRANCHES).exists()
    sets = [found.results[label, 0].heads["mood"] for label in labels]
    assert [len(chosen) for chosen in sets] == [2, 2, 4, 4]


def test_labels_name_what_is_swept() -> None:
    assert list(grid_entries(["multi-task", "iat"], {"alpha": (0.3,), "delta": (0.1,)})) == [
        "multi-task",
        "iat",
    ]
    assert list(grid_entries(["prune", "frozen"], {"alpha": (0.3, 1.0)})) == [
        "prune-alpha-0.3",
        "prune-alpha-1.0",
        "frozen",
    ]
    with pytest.raises(HeadwiseError, match="'alpha' cannot be swept over: it is not an option of frozen"):
        grid_entries(["frozen"], {"alpha": (0.3, 1.0)})
