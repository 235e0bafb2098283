"""The test of whether a task's heads are its own: the sets it is compared with, and p by hand; its level: tests/statistics."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import headwise
import planted
from headwise.errors import HeadwiseError
from headwise.lesions import dissociate
from headwise.lesions._matched import matched_masks, matched_test
from headwise.lesions._section import findings


def chosen(rng: np.random.Generator, tasks: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Scores (tasks, layers, heads), the last head of layer 0 missing, and each task's eight best."""
    scores = rng.random((tasks, 4, 6))
    scores[:, 0, 5] = np.nan
    flat = np.nan_to_num(scores, nan=-1.0).reshape(tasks, -1)
    return scores, (flat.argsort(-1).argsort(-1) >= flat.shape[1] - 8).reshape(scores.shape)


def test_matched_sets_have_as_many_heads_in_every_layer_and_none_that_do_not_exist() -> None:
    scores, sets = chosen(np.random.default_rng(0))
    drawn = matched_masks(sets, scores, 1, 300, seed=0)
    assert (drawn.sum(-1) == sets[1].sum(-1)).all()
    assert not drawn[:, 0, 5].any()
    np.testing.assert_array_equal(drawn, matched_masks(sets, scores, 1, 300, seed=0))
    assert len(np.unique(drawn.reshape(300, -1), axis=0)) > 100


def test_heads_that_the_task_alone_chose_come_last() -> None:
    sets = np.zeros((2, 2, 6), dtype=bool)
    sets[0, 0, :2], sets[0, 1, :4] = True, True  # layer 0: four others for two; layer 1: two others for four
    sets[1, 0, 0], sets[1, 1, 5] = True, True  # head (0, 0) is of both
    drawn = matched_masks(sets, np.random.default_rng(1).random(sets.shape), 0, 400, seed=1)
    assert not drawn[:, 0, 1].any()
    assert drawn[:, 0, 0].any()
    assert drawn[:, 1, 4:].all()
    assert (drawn[:, 1, :4].sum(-1) == 2).all()


def test_the_sets_run_from_random_heads_to_the_best_of_another_task() -> None:
    scores = np.random.default_rng(2).random((2, 1, 40))
    sets = np.zeros((2, 1, 40), dtype=bool)
    sets[0, 0, :8] = True
    scores[0, 0, :8] += 1
    scores[1, 0, 20:28] += 1  # the other task's best
    sets[1, 0, 20:28] = True
    best = matched_masks(sets, scores, 0, 1000, seed=0)[:, 0, 20:28].sum(-1)
    assert best.max() == 8
    assert (best <= 2).mean() > 0.1  # 2 are expected of random heads
    assert 3.5 < best.mean() < 7


def test_p_is_the_share_of_sets_as_harmful_to_the_others_that_harm_the_task_as_much() -> None:
    rng = np.random.default_rng(3)
    own, drawn = np.array([0.6, 0.8, 0.9]), 0.5 + 0.5 * rng.random((200, 3))
    compared = [row for row in drawn if (row[0] + row[2]) / 2 <= (0.6 + 0.9) / 2]
    assert len(compared) > 30
    found = matched_test(own, drawn, 1)
    assert found.p == pytest.approx((1 + sum(row[1] <= 0.8 for row in compared)) / (1 + len(compared)))
    assert found.d == pytest.approx(np.mean([row[1] for row in compared]) - 0.8)
    assert len(found.null) == len(compared)
    assert found.p == pytest.approx((1 + (found.null >= found.d - 1e-9).sum()) / (1 + len(compared)))


@pytest.mark.parametrize(("sets", "tested"), [(18, False), (19, True)])
def test_too_few_sets_that_harm_the_others_as_much_give_no_p_but_a_reason(sets: int, tested: bool) -> None:
    drawn = np.ones((199, 2))
    drawn[:sets, 1] = 0.4
    found = matched_test([0.5, 0.5], drawn, 0)
    assert bool(np.isfinite(found.p)) == tested
    assert (
        (found.p == pytest.approx(1 / 20))
        if tested
        else found.note.startswith("18 of 199 sets of other heads harm the other")
    )
    undefined = matched_test([np.nan, 0.5], drawn, 0)
    assert (np.isnan(undefined.p), undefined.note) == (True, "relative performance is undefined")


def test_planted_heads_are_their_tasks_own_and_shared_ones_nobodys(tmp_path: Path) -> None:
    both = planted.tasks()
    options = {"fraction": 1 / 8, "random_draws": 2, "bootstrap": 0, "matched_draws": 199, "quiet": True}
    apart = dissociate(planted.model({"a": (0, 2), "b": (1, 1)}, both), list(both.values()), **options)  # type: ignore[arg-type]
    table = apart.table("matched").set_index("task")
    assert (table["p"] == 1 / 200).all()
    assert (table["RP own"] < 65).all()
    np.testing.assert_allclose(table["RP matched"] - table["RP own"], table["difference"])
    assert any(
        said.startswith("In 2 of 2 tasks tested, silencing a task's own heads costs it more")
        for said in findings(apart)
    )
    apart.save(tmp_path / "study")
    pd.testing.assert_frame_equal(headwise.load(tmp_path / "study").table("matched"), apart.table("matched"))

    same = xr.DataArray(np.ones((2, 2, 4)), dims=("task", "layer", "head"), coords={"task": ["a", "b"]})
    same[:, 0, 2] = 2  # both tasks choose the one head that carries both
    shared = dissociate(
        planted.model({"a": (0, 2), "b": (0, 2)}, both), list(both.values()), scores=same, **options
    )  # type: ignore[arg-type]
    found = shared.table("matched")
    assert (found["p"].isna() | (found["p"] > 0.05)).all()


def test_few_sets_are_refused_and_none_are_drawn_unasked() -> None:
    both = planted.tasks()
    model = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    with pytest.raises(HeadwiseError, match="matched_draws: given 19; the test needs 199 sets or more"):
        dissociate(model, list(both.values()), matched_draws=19)
    plain = dissociate(model, list(both.values()), fraction=1 / 8, random_draws=0, bootstrap=0, quiet=True)
    assert plain.table("matched").empty
    assert not any("tasks tested" in said for said in findings(plain))
