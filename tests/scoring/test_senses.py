"""Signed scores and sizes: what estimators declare, and what every ranking of heads makes of it."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import planted
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.scoring import HeadScores, score
from headwise.similarity import head_similarity
from headwise.studies._estimators_study import head_sets

# head 0.3 is in the task's way, 1.0 and 1.1 do nothing: by size they are the first and the last two
EFFECTS = np.array([[0.5, 0.3, 0.2, -2.0], [0.0, 0.01, 0.4, -0.1]])


@pytest.fixture(scope="module")
def both() -> dict[str, planted.Task]:
    return planted.tasks(size=8)


@pytest.fixture(scope="module")
def model(both: dict[str, planted.Task]) -> planted.MultiTaskModel:
    return planted.model({"a": (0, 2), "b": (1, 1)}, both)


def effects(sense: str = "signed") -> xr.DataArray:
    return xr.DataArray(
        EFFECTS, dims=("layer", "head"), attrs={"sense": sense, "method": "mine", "task": "a"}
    )


def test_the_league_silences_heads_by_the_size_of_signed_scores() -> None:
    sets = head_sets({"signed": effects(), "ranks": effects("magnitude")}, [], [0.25])
    assert sets["signed", "most", 0.25, 0] == HeadSet([(0, 0), (0, 3)])
    assert sets["signed", "least", 0.25, 0] == HeadSet([(1, 0), (1, 1)])
    assert sets["ranks", "most", 0.25, 0] == HeadSet([(0, 0), (1, 2)])
    assert sets["ranks", "least", 0.25, 0] == HeadSet([(0, 3), (1, 3)])


@pytest.mark.parametrize("silence", ["most", "least"])
@pytest.mark.parametrize("sense", ["signed", "magnitude"])
def test_iterative_scores_rank_by_size(
    silence: str, sense: str, model: Any, both: dict[str, planted.Task]
) -> None:
    def mine(model: Any, task: Any, silenced: Any = None) -> xr.DataArray:
        gone = (silenced or HeadSet()).to_mask(EFFECTS.shape)
        return effects(sense).where(~gone)

    found = score(model, both["a"], method=mine, iterative=3, silence=silence, quiet=True)
    size = np.abs(EFFECTS) if sense == "signed" else EFFECTS
    expected = (pd.Series(size.ravel()).rank(method="first") - 1) / 7
    assert found.to_numpy().ravel() == pytest.approx(expected.to_numpy())
    assert found.attrs["sense"] == "magnitude"  # they are ranks


def test_a_users_own_estimator_says_what_scores_below_zero_mean(
    model: Any, both: dict[str, planted.Task]
) -> None:
    def mine(model: Any, task: Any) -> Any:
        return EFFECTS

    def labelled(model: Any, task: Any) -> Any:
        return effects()

    with pytest.raises(
        HeadwiseError, match="method 'mine' does not say what scores below 0 mean: set its attribute `sense`"
    ):
        score(model, both["a"], method=mine)
    mine.sense = "signs"  # type: ignore[attr-defined]
    with pytest.raises(HeadwiseError, match="method 'mine' has the sense 'signs'"):
        score(model, both["a"], method=mine)
    mine.sense = "magnitude"  # type: ignore[attr-defined]
    assert score(model, both["a"], method=mine, quiet=True).attrs["sense"] == "magnitude"
    assert score(model, list(both.values()), method=labelled, quiet=True).attrs["sense"] == "signed"
    plain = score(model, both["a"], method=lambda model, task: np.abs(EFFECTS), quiet=True)
    assert plain.attrs["sense"] == "magnitude"  # none is below 0


def test_ablation_and_shapley_measure_the_loss_and_accuracy_on_request(
    model: Any, both: dict[str, planted.Task]
) -> None:
    for method, more in (("ablation", {}), ("shapley", {"permutations": 1})):
        found, loss, metric = (
            score(model, both["a"], method=method, quiet=True, **more, **measure)
            for measure in ({}, {"measure": "loss"}, {"measure": "metric"})
        )
        assert (found == loss).all()
        assert (found != metric).any()
        assert found.attrs["measure"] == "loss"


def test_reports_and_overlaps_rank_by_size() -> None:
    table = next(block.frame for block in HeadScores(effects()).section().blocks if block.name == "top-heads")
    assert table["head"].tolist() == ["0.3", "0.0"]
    two = xr.concat([effects(), effects()[:, ::-1]], pd.Index(["a", "b"], name="task")).assign_attrs(
        sense="signed"
    )
    # by size both tasks have 0.0 and 0.3 of eight heads; with their signs they would share none
    assert head_similarity(two, "overlap", fraction=0.25).sel(task="a", other="b").item() == pytest.approx(1)
