"""Stem cells: the number of shared heads against relabelled heads, and the effect over runs, where tasks repeat themselves."""

import numpy as np
import pytest
import xarray as xr
from level import DRAWS, LEAST_COVERED, MOST_REJECTED, covered, rejected

from headwise.studies import _stemcells_contrasts as contrasts
from headwise.studies._stemcells import SHARE, claim_agreement, stem_cell_test
from headwise.studies._stemcells_effects import sparing, stem_cell_effect

TASKS, LAYERS, HEADS, K = 5, 4, 8, 10


def scores(rng: np.random.Generator, own: float, shared: float = 0.0, runs: int = 3) -> xr.DataArray:
    """Each task likes layers, and in every run again the same heads, as far as `own` goes; `shared` is what all tasks like."""
    layers = np.linspace(-0.7, 0.7, LAYERS)[:, None]
    tastes = (
        own * rng.normal(size=(TASKS, LAYERS, HEADS)) + shared * rng.normal(size=(LAYERS, HEADS)) + layers
    )
    values = tastes + rng.normal(size=(runs, TASKS, LAYERS, HEADS))
    return xr.DataArray(
        values, dims=("run", "task", "layer", "head"), coords={"run": range(runs), "task": list("abcde")}
    )


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
    assert (
        rejected(p, "number of stem-cell heads", f"five tasks, 4 × 8 heads, runs share {100 * overlap:.0f} %")
        <= MOST_REJECTED
    )


@pytest.mark.parametrize("tied", [True, False])
def test_the_level_of_the_number_of_stem_cells_where_layers_are_tied(tied: bool) -> None:
    """Heads of one number do alike in all layers: a task that likes one likes its namesakes. Without the groups the test rejects too often."""
    rng = np.random.default_rng(8)
    p = []
    for number in range(DRAWS if tied else 200):
        drawn = scores(rng, own=0.5)
        drawn = drawn + 6.0 * rng.normal(size=(TASKS, 1, HEADS)) + np.zeros((1, TASKS, LAYERS, 1))
        p.append(
            stem_cell_test(
                top(drawn), tied=[range(LAYERS)] if tied else (), share=0.6, draws=99, seed=number
            )["p"]
        )
    if not tied:
        assert np.mean(np.array(p) <= 0.05) > 0.07
        return
    world = "five tasks, 4 tied layers of 8 heads"
    assert rejected(p, "number of stem-cell heads", world) <= MOST_REJECTED


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


WIDE = (
    TASKS,
    6,
    12,
)  # tasks, layers, heads of the effect's simulations: room for as many stem-cell heads as an interval needs


def worlds(
    rng: np.random.Generator, studies: int, runs: int, own: float, damage: float = 0.0, spread: float = 0.02
) -> tuple[np.ndarray, ...]:
    """Claims, and probe scores before and after, (studies, run, task, layer, head) each. What a task claims goes by its talent, the same in
    all runs, and by the run's luck with the probe; training together changes every head by `spread`, in every run alike, costs stem-cell
    heads `damage`, and shifts a task's scores from run to run."""
    stem = np.zeros(WIDE[1:])
    stem[1, :8] = 1
    talent = own * (rng.normal(size=(studies, 1, *WIDE)) + 3 * stem)
    luck, noise = rng.normal(size=(2, studies, runs, *WIDE))
    shift, change = (
        rng.normal(size=(studies, runs, TASKS, 1, 1)),
        spread * rng.normal(size=(studies, 1, *WIDE)),
    )
    before, after = (
        0.5 + 0.05 * (talent + luck),
        0.5 + 0.05 * (talent + noise) + change + 0.01 * shift - damage * stem,
    )
    values = (talent + luck).reshape(studies, runs, TASKS, -1)
    claimed = values.argsort(-1).argsort(-1) >= 0.7 * values.shape[-1]
    return claimed.reshape(before.shape), before, after


def labelled(values: np.ndarray) -> xr.DataArray:
    """One study, as the functions that users call take it."""
    coords = {"run": range(len(values)), "task": list("abcde")}
    return xr.DataArray(values, dims=("run", "task", "layer", "head"), coords=coords)


def ends(
    rng: np.random.Generator, runs: int, own: float, spread: float, against: str
) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of many studies, NaN where there are too few heads for an interval; of some, compared with what users get."""
    found: list[np.ndarray] = []
    while sum(map(len, found)) < DRAWS:
        claims, before, after = worlds(rng, 100, runs, own, spread=spread)
        change = after - before
        stem, alone = contrasts.chosen_elsewhere(claims, SHARE)
        if against == "before":
            several = contrasts.mean_change(change, stem)
        elif against == "alone":
            several = contrasts.against(change, stem, alone, "task")
        else:
            several = contrasts.against(change, stem, ~stem[..., None, :, :], "layer")
        if not found:
            arrays = [labelled(part[0]) for part in (claims, before, after)]
            one = sparing(*arrays) if against == "before" else stem_cell_effect(*arrays, against=against)  # type: ignore[arg-type]
            np.testing.assert_allclose((one.low, one.high), (several.low[0], several.high[0]))
        found.append(np.stack([several.low, several.high], -1))
    low, high = np.concatenate(found)[:DRAWS].T
    assert np.isnan(low).mean() <= 0.05
    return low, high


@pytest.mark.parametrize(
    ("runs", "own", "spread", "against"),
    [
        (3, 3.0, 0.02, "alone"),
        (5, 1.5, 0.02, "alone"),
        (3, 3.0, 0.02, "layer"),
        (5, 1.5, 0.02, "layer"),
        pytest.param(2, 1.5, 0.02, "alone", marks=pytest.mark.slow),
        pytest.param(3, 3.0, 0.0, "alone", marks=pytest.mark.slow),
        pytest.param(3, 3.0, 0.1, "alone", marks=pytest.mark.slow),
        pytest.param(5, 6.0, 0.1, "layer", marks=pytest.mark.slow),
        pytest.param(5, 1.5, 0.1, "layer", marks=pytest.mark.slow),
    ],
)
def test_the_coverage_of_the_effect_over_runs(runs: int, own: float, spread: float, against) -> None:
    rng = np.random.default_rng(4)
    low, high = ends(rng, runs, own, spread, against)
    world = f"{runs} runs, talent {own:g} times the noise of a run, heads' changes {spread / 0.05:g} times"
    assert covered(low, high, 0.0, f"stem-cell effect, against {against}", world) >= LEAST_COVERED


def test_the_coverage_of_what_important_head_training_spares() -> None:
    rng = np.random.default_rng(5)
    low, high = ends(rng, 3, 1.5, 0.02, "before")
    assert (
        covered(low, high, 0.0, "sparing of stem cells", "five tasks, 6 × 12 heads, 3 runs") >= LEAST_COVERED
    )


def test_damage_to_stem_cells_is_found() -> None:
    rng = np.random.default_rng(6)
    hurt, spared = (
        [[labelled(part[study]) for part in parts] for study in range(60)]
        for parts in (worlds(rng, 60, 5, 1.5, damage=0.15), worlds(rng, 60, 5, 1.5, damage=-0.15))
    )
    assert np.mean([stem_cell_effect(*one).high < 0 for one in hurt]) >= 0.9
    assert np.mean([sparing(*one).low > 0 for one in spared]) >= 0.9
