"""Planted truth: every estimator but `random` finds the head that carries a task."""

import pytest

import planted
from headwise.heads import HeadSet
from headwise.scoring import ESTIMATORS, score, top_heads

CARRIERS = {"a": (0, 2), "b": (1, 1)}
QUICK = {
    "l0": {"steps": 60, "lr": 0.2},
    "subset": {"steps": 60, "lr": 0.3},
    "causal-gating": {"steps": 40, "lr": 0.3},
    "shapley": {"permutations": 2},
}
SIGNED = ("ablation", "shapley", "causal-gating")


@pytest.fixture(scope="module")
def both() -> dict[str, planted.Task]:
    return planted.tasks()


@pytest.fixture(scope="module")
def model(both: dict[str, planted.Task]) -> planted.MultiTaskModel:
    return planted.model(CARRIERS, both)


@pytest.mark.parametrize(
    "method", [name for name in ESTIMATORS if name != "random" and "patching" not in name]
)
def test_every_estimator_finds_the_planted_heads(
    method: str, model: planted.MultiTaskModel, both: dict[str, planted.Task]
) -> None:
    k = {"k": 1} if method == "subset" else {"fraction": 1 / 8} if method == "l0" else {}
    scores = score(model, list(both.values()), method=method, quiet=True, **QUICK.get(method, {}), **k)
    assert scores.dims == ("task", "layer", "head")
    assert scores.attrs["sense"] == ("signed" if method in SIGNED else "magnitude")
    for name, carrier in CARRIERS.items():
        assert top_heads(scores.sel(task=name), n=1) == HeadSet([carrier]), scores.sel(task=name).to_numpy()


@pytest.mark.parametrize("silence", ["most", "least"])
def test_iterative_scoring_finds_them_too(
    silence: str, model: planted.MultiTaskModel, both: dict[str, planted.Task]
) -> None:
    scores = score(model, both["a"], iterative=0.25, silence=silence, quiet=True)
    assert scores.max() == 1
    assert scores.min() == 0
    assert len(set(scores.to_numpy().ravel())) == 8  # every head has its own rank
    assert top_heads(scores, n=1) == HeadSet([CARRIERS["a"]])


def test_random_scores_depend_on_the_seed_alone(
    model: planted.MultiTaskModel, both: dict[str, planted.Task]
) -> None:
    one, again, other = (
        score(model, both[task], method="random", seed=seed) for task, seed in (("a", 1), ("b", 1), ("a", 2))
    )
    assert (one == again).all()
    assert (one != other).any()
