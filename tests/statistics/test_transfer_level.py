"""Transfer: methods compared over source models, with few-shot samples that all sources share."""

import numpy as np
import pandas as pd
import pytest
from level import DRAWS, LEAST_COVERED, MOST_REJECTED, covered, rejected

from headwise._base.inference import crossed_t, sign_flip_p, t_interval
from headwise.studies._transfer import compare_transfers, difference

SEEDS = 30
# spread of the difference between sources, between few-shot samples (shared by all sources), and of the rest
WORLDS = {"sources": (0.02, 0.0, 0.02), "both": (0.02, 0.02, 0.02), "samples": (0.005, 0.02, 0.02)}


def differences(world: str, sources: int, effect: float = 0.0, studies: int = DRAWS) -> np.ndarray:
    """(studies, sources, seeds): paired differences of two methods; what sources and samples do to both methods alike cancels."""
    rng = np.random.default_rng([sources, len(world)])
    between, shared, rest = WORLDS[world]
    return (
        effect
        + between * rng.normal(size=(studies, sources, 1))
        + shared * rng.normal(size=(studies, 1, SEEDS))
        + rest * rng.normal(size=(studies, sources, SEEDS))
    )


@pytest.mark.parametrize("sources", [6, 10])
@pytest.mark.parametrize("world", WORLDS)
def test_the_level_of_the_comparison_of_methods(world: str, sources: int) -> None:
    p = [difference(grid)["p"] for grid in differences(world, sources)]
    assert rejected(p, "transfer: p", f"{sources} sources × 30 samples, spread of: {world}") <= MOST_REJECTED


@pytest.mark.parametrize(("effect", "least", "most"), [(0.0, 0.0, MOST_REJECTED), (0.05, 0.9, 1.0)])
def test_the_level_of_the_table_that_is_printed(effect: float, least: float, most: float) -> None:
    """`compare_transfers`, a new task for every simulated study; what sources and samples do to both methods alike cancels."""
    sources, seeds = 6, 10
    gains = differences("both", sources, effect)[..., :seeds]
    rng = np.random.default_rng(3)
    plain = 0.6 + 0.05 * rng.normal(size=(1, sources, 1)) + 0.05 * rng.normal(size=(1, 1, seeds)) + 0 * gains
    where = pd.MultiIndex.from_product(
        [range(DRAWS), range(sources), range(seeds)], names=["task", "source", "seed"]
    )
    both = [
        pd.DataFrame({"method": m, "score": v.ravel()}, where)
        for m, v in (("plain", plain), ("iat", plain + gains))
    ]
    found = compare_transfers(pd.concat(both).reset_index().assign(shots=4), "plain")
    assert least <= rejected(found["p"]) <= most
    assert covered(found["low"], found["high"], 100 * effect) >= LEAST_COVERED
    assert (found["note"] == "").all()


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
def test_a_gain_is_found(alternative: str) -> None:
    found = [difference(grid, alternative)["p"] for grid in differences("both", 8, effect=0.04)]  # type: ignore[arg-type]
    assert rejected(found) >= 0.9


@pytest.mark.parametrize("sources", [2, 3, 6, 10])
@pytest.mark.parametrize("world", WORLDS)
def test_the_coverage_of_the_interval_over_sources(world: str, sources: int) -> None:
    low, high, _ = crossed_t(differences(world, sources, studies=max(DRAWS, 2000)))
    shown = f"{sources} sources × 30 samples, spread of: {world}"
    assert covered(low, high, 0.0, "transfer: difference", shown) >= LEAST_COVERED
    assert covered(low, high) <= 0.985  # an interval of any width would cover
    if sources >= 6:
        missed = crossed_t(differences(world, sources, effect=0.05))
        assert covered(missed[0], missed[1]) <= 0.1  # power


def test_sources_alone_would_miss_what_the_samples_share() -> None:
    """Why p is not the sign-flip test alone: a method that suits the samples drawn looks better in every source."""
    grids = differences("samples", 10)
    assert rejected([sign_flip_p(grid.mean(1)) for grid in grids]) > 0.15
    assert covered(*t_interval(grids.mean(-1))) < 0.85


@pytest.mark.parametrize("units", [6, 10, 20])
@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_the_level_of_the_sign_flip_test(units: int, alternative: str) -> None:
    rng = np.random.default_rng(units)
    draws = rng.laplace(size=(DRAWS, units))  # symmetric, far from normal
    p = [sign_flip_p(d, alternative, draws=999) for d in draws]  # type: ignore[arg-type]
    assert rejected(p, "sign-flip test over sources", f"{units} sources, {alternative}") <= MOST_REJECTED


def test_the_sign_flip_test_equals_a_loop_over_all_flips() -> None:
    d = np.random.default_rng(0).normal(size=7)
    sums = [sum(x if (flip >> i) & 1 else -x for i, x in enumerate(d)) for flip in range(2**7)]
    assert sign_flip_p(d) == pytest.approx(np.mean([abs(s) >= abs(d.sum()) - 1e-12 for s in sums]))
    assert sign_flip_p(d, "greater") == pytest.approx(np.mean([s >= d.sum() - 1e-12 for s in sums]))
    assert sign_flip_p(np.ones(6)) == pytest.approx(2 / 64)
    assert np.isnan(sign_flip_p(np.ones(5)))


def test_the_crossed_interval_equals_mean_squares_by_hand() -> None:
    grid = differences("samples", 6, studies=1)[0]
    mean, n, m = grid.mean(), *grid.shape
    units = m * sum((grid[i].mean() - mean) ** 2 for i in range(n)) / (n - 1)
    samples = n * sum((grid[:, k].mean() - mean) ** 2 for k in range(m)) / (m - 1)
    rest = sum(
        (grid[i, k] - grid[i].mean() - grid[:, k].mean() + mean) ** 2 for i in range(n) for k in range(m)
    )
    rest /= (n - 1) * (m - 1)
    total = units + samples - rest
    df = total**2 / (units**2 / (n - 1) + samples**2 / (m - 1) + rest**2 / ((n - 1) * (m - 1)))
    from scipy import stats

    half = max(
        stats.t.ppf(0.975, df) * np.sqrt(total / (n * m)),
        stats.t.ppf(0.975, n - 1) * np.sqrt(units / (n * m)),
    )
    low, high, p = crossed_t(grid)
    assert (float(low), float(high)) == pytest.approx((mean - half, mean + half))
    assert 0 < p < 1
    assert np.isnan(crossed_t(grid[:1])).all()


@pytest.mark.parametrize("units", [2, 3, 8])
def test_the_coverage_of_t_intervals_over_units(units: int) -> None:
    values = np.random.default_rng(units).normal(size=(2000, units))
    low, high = t_interval(values)
    assert (
        LEAST_COVERED
        <= covered(low, high, 0.0, "t over units (change of a layer, methods)", f"{units} units, normal")
        <= 0.97
    )
    if units == 8:
        assert covered(*t_interval(values + 2)) <= 0.1
