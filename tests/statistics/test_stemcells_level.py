"""Stem cells: the number of shared heads against relabelled heads, and the effect over runs, where tasks repeat themselves."""

import numpy as np
import pytest
import xarray as xr
from level import DRAWS, LEAST_COVERED, MOST_REJECTED, covered, rejected

from headwise.studies._stemcells import claim_agreement, stem_cell_test
from headwise.studies._stemcells_effects import Effect, sparing, stem_cell_effect

TASKS, LAYERS, HEADS, K = 5, 4, 8, 10


def scores(rng: np.random.Generator, own: float, shared: float = 0.0, runs: int = 3) -> xr.DataArray:
    """Each task likes layers, and in every run again the same heads, as far as `own` goes; `shared` is what all tasks like."""
    layers = np.linspace(-0.7, 0.7, LAYERS)[:, None]
    tastes = own * rng.normal(size=(TASKS, LAYERS, HEADS)) + shared * rng.normal(size=(LAYERS, HEADS)) + layers
    values = tastes + rng.normal(size=(runs, TASKS, LAYERS, HEADS))
    return xr.DataArray(values, dims=("run", "task", "layer", "head"), coords={"run": range(runs), "task": list("abcde")})


def top(values: xr.DataArray) -> xr.DataArray:
    """What `claim` gives, without its checks."""
    flat = values.to_numpy().reshape(*values.shape[:2], -1)
    chosen = flat.argsort(-1).argsort(-1) >= flat.shape[-1] - K
    return values.copy(data=chosen.reshape(values.shape))


@pytest.mark.parametrize(("own", "overlap"), [(1.6, 0.7), (2.5, 0.8), (6.0, 0.92)])
def test_the_level_of_the_number_of_stem_cells(own: float, overlap: float) -> None:
    rng = np.random.default_rng(1)
    p, repeated = [], []
    for study in range(DRAWS):
        drawn = scores(rng, own)
        claims = top(drawn)
        p.append(stem_cell_test(claims, draws=99, seed=study)["p"])
        if study < 20:
            table = claim_agreement(claims, drawn)
            repeated.append(table.loc[table["comparison"] == "runs", "overlap"].mean())
    assert np.mean(repeated) == pytest.approx(overlap, abs=0.05)  # as real tasks repeat themselves
    assert rejected(p) <= MOST_REJECTED


def test_shared_heads_are_found() -> None:
    rng = np.random.default_rng(2)
    p = [stem_cell_test(top(scores(rng, own=1.5, shared=3.0)), draws=99)["p"] for _ in range(60)]
    assert np.mean(np.array(p) <= 0.05) >= 0.9


def test_a_draw_keeps_what_runs_of_a_task_share() -> None:
    """Five tasks that claim the very same heads in every run: relabelled, a task's runs still agree wholly."""
    claims = top(scores(np.random.default_rng(3), own=50.0).isel(run=[0, 0, 0]).assign_coords(run=[0, 1, 2]))
    once = stem_cell_test(claims.isel(run=[0]), draws=2000)
    thrice = stem_cell_test(claims, draws=2000)
    assert once["expected"] == thrice["expected"]
    assert once["p"] == thrice["p"]


def test_heads_that_do_not_exist_are_never_claimed() -> None:
    from headwise.studies._stemcells import _relabellings

    valid = np.array([[True, False, True, True], [True, True, True, True]])
    orders = _relabellings(valid, (300, 2), np.random.default_rng(0))
    assert (orders[..., 0, 1] == 1).all()
    assert (np.sort(orders, -1) == np.arange(4)).all()
    assert len(np.unique(orders[:, 0, 0][:, [0, 2, 3]], axis=0)) == 6  # every order of the three
    assert len(np.unique(orders[:, 0, 1], axis=0)) == 24


WIDE = (TASKS, 6, 12)  # tasks, layers, heads of the effect's simulations: room for as many stem-cell heads as an interval needs


def study(rng: np.random.Generator, runs: int, own: float, damage: float = 0.0) -> tuple[xr.DataArray, ...]:
    """Claims, and probe scores before and after. What a task claims goes by its talent, the same in all runs, and by the run's luck with
    the probe; training together changes every head a little, in every run alike, costs stem-cell heads `damage`, and shifts a task's
    scores from run to run."""
    stem = np.zeros(WIDE[1:])
    stem[1, :8] = 1
    talent = own * (rng.normal(size=WIDE) + 3 * stem)
    luck, noise = rng.normal(size=(2, runs, *WIDE))
    shift, change = rng.normal(size=(runs, TASKS, 1, 1)), 0.02 * rng.normal(size=WIDE)
    before, after = 0.5 + 0.05 * (talent + luck), 0.5 + 0.05 * (talent + noise) + change + 0.01 * shift - damage * stem
    coords = {"run": range(runs), "task": list("abcde")}
    like = xr.DataArray(before, dims=("run", "task", "layer", "head"), coords=coords)
    values = (talent + luck).reshape(runs, TASKS, -1)
    claimed = values.argsort(-1).argsort(-1) >= 0.7 * values.shape[-1]
    return like.copy(data=claimed.reshape(before.shape)), like, like.copy(data=after)


def intervals(effects: list[Effect]) -> tuple[list[float], list[float]]:
    """The bounds of the studies that have an interval, nearly all of them."""
    bounds = [(effect.low, effect.high) for effect in effects if not effect.note]
    assert len(bounds) >= 0.95 * len(effects)
    return [low for low, _ in bounds], [high for _, high in bounds]


@pytest.mark.parametrize(("runs", "own", "against"), [(3, 3.0, "alone"), (5, 1.5, "alone"), (3, 3.0, "layer"), (5, 1.5, "layer")])
def test_the_coverage_of_the_effect_over_runs(runs: int, own: float, against) -> None:
    rng = np.random.default_rng(4)
    effects = [stem_cell_effect(*study(rng, runs, own), against=against) for _ in range(DRAWS + 40)]
    assert covered(*intervals(effects)) >= LEAST_COVERED


def test_the_coverage_of_what_important_head_training_spares() -> None:
    rng = np.random.default_rng(5)
    effects = [sparing(*study(rng, 3, 1.5)) for _ in range(DRAWS + 40)]
    assert covered(*intervals(effects)) >= LEAST_COVERED


def test_damage_to_stem_cells_is_found() -> None:
    rng = np.random.default_rng(6)
    found = [stem_cell_effect(*study(rng, 5, 1.5, damage=0.15)) for _ in range(60)]
    assert np.mean([e.high < 0 for e in found]) >= 0.9
    assert np.mean([sparing(*study(rng, 5, 1.5, damage=-0.15)).low > 0 for _ in range(60)]) >= 0.9
