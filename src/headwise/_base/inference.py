"""Tests and intervals over units of replication (seeds, runs, source models), and corrections for many tests.

A unit is what would be drawn again if the study were repeated. Where there are too few units there is no p
(NaN): show the values. docs/statistics.md lists every interval and p of the package with its unit.
"""

from itertools import product
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Alternative = Literal["two-sided", "greater", "less"]

MIN_TESTED = 6  # units for a test: with five the smallest two-sided p of a sign-flip test is 2 / 32 = 0.0625
MIN_ARRANGEMENTS = 20  # of a permutation test: with fewer, p cannot reach 0.05
MIN_EXAMPLES = 50  # for an interval or a standard error over examples; over fewer they are too narrow
MIN_SEEDS = 8  # for an interval by t over seeds; fewer are shown one by one
EXACT_UNITS = 16  # up to this many units all sign flips are tried (65,536)


SAME = "every {unit} has the same value, which says nothing about its spread"


def constant(values: ArrayLike, axis: int = -1) -> NDArray[np.bool_]:
    """Where values do not vary along `axis`, but for rounding: an interval of no width would read as
    certainty."""
    array = np.asarray(values, dtype=float)
    return np.asarray(np.ptp(array, axis=axis) <= 1e-14 + 1e-12 * np.abs(array).max(axis=axis))


def why_no_t(values: ArrayLike, unit: str) -> str:
    """Why one row of values has no interval by t over its units ("seed", "run", ...); empty where it has
    one."""
    n = len(np.asarray(values))
    if n < 2:
        return f"{n} {unit}{'s' * (n != 1)}, 2 are needed"
    return SAME.format(unit=unit) if constant(values) else ""


def t_interval(values: ArrayLike, level: float = 0.95, axis: int = -1) -> tuple[Array, Array]:
    """Student's t interval of the mean over units along `axis`; NaN for fewer than two, and where all units
    have the same value."""
    array = np.asarray(values, dtype=float)
    n, mean = array.shape[axis], array.mean(axis)
    if n < 2:
        return np.full(mean.shape, np.nan), np.full(mean.shape, np.nan)
    half = scipy.stats.t.ppf((1 + level) / 2, n - 1) * array.std(axis, ddof=1) / np.sqrt(n)
    half = np.where(constant(array, axis), np.nan, half)
    return mean - half, mean + half


def share_interval(right: int, examples: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a share of examples (Clopper and Pearson 1934), which holds near 0 and 100 %,
    too; NaN below 50 examples.

    (Wilson's covers 91 % of the time where 99 % are right and 50 were asked.)
    """
    if examples < MIN_EXAMPLES:
        return float("nan"), float("nan")
    bounds = scipy.stats.binomtest(right, examples).proportion_ci(level, method="exact")
    return float(bounds.low), float(bounds.high)


def sign_flip_p(
    differences: ArrayLike, alternative: Alternative = "two-sided", *, draws: int = 9999, seed: int = 0
) -> float:
    """The sign-flip test of paired differences, one per unit: under H0 each is as likely to have the other
    sign.

    Exact up to 16 units; beyond, `draws` random flips with the observed one counted in.

    Args:
        differences: (units,).
        alternative: "greater" tests for a positive mean.
        draws, seed: of the random flips.

    Returns:
        p; NaN below six units, where the smallest two-sided p exceeds 0.05.
    """
    d = np.asarray(differences, dtype=float)
    if len(d) < MIN_TESTED:
        return float("nan")
    if len(d) <= EXACT_UNITS:
        signs = np.array(list(product((1.0, -1.0), repeat=len(d))))  # the first row is the observed one
    else:
        random = np.random.default_rng(seed).choice((1.0, -1.0), size=(draws, len(d)))
        signs = np.concatenate([np.ones((1, len(d))), random])
    means = signs @ d
    extreme = {"two-sided": np.abs(means), "greater": means, "less": -means}[alternative]
    return float((extreme >= extreme[0] - 1e-12 * max(1.0, np.abs(d).sum())).mean())


def crossed_t(grid: ArrayLike, level: float = 0.95) -> tuple[Array, Array, Array]:
    """The mean of a grid of units crossed with samples, both drawn at random: its t interval, and p of "the
    mean is 0".

    The samples (few-shot examples, say) are the same for every unit, so what they have in common does not
    average out over units: a t over units alone would miss it. The variance of the mean is (MS_units +
    MS_samples − MS_rest) ÷ (units × samples), with Satterthwaite's degrees of freedom; where a plain t over
    units is wider (few units, or nothing in common), that one counts.

    Args:
        grid: (..., units, samples), paired differences.
        level: of the interval.

    Returns:
        low, high, and the two-sided p, (...) each; NaN for fewer than two units. Where no cell differs from
        another there is no interval.
    """
    values = np.asarray(grid, dtype=float)
    units, samples = values.shape[-2:]
    mean = values.mean((-2, -1))
    if units < 2:
        missing = np.full(mean.shape, np.nan)
        return missing, missing, missing
    by_unit, by_sample = values.mean(-1), values.mean(-2)  # (..., units), (..., samples)
    ms_units = samples * by_unit.var(-1, ddof=1)
    variances = [(ms_units, np.full(mean.shape, units - 1.0))]  # mean square and degrees of freedom
    if samples > 1:
        ms_samples = units * by_sample.var(-1, ddof=1)
        residual = values - by_unit[..., :, None] - by_sample[..., None, :] + mean[..., None, None]
        ms_rest = (residual**2).sum((-2, -1)) / ((units - 1) * (samples - 1))
        both = np.maximum(ms_units + ms_samples - ms_rest, 0)
        denominator = (
            ms_units**2 / (units - 1)
            + ms_samples**2 / (samples - 1)
            + ms_rest**2 / ((units - 1) * (samples - 1))
        )
        variances.append((both, np.maximum(both**2 / np.where(denominator > 0, denominator, 1.0), 1.0)))
    half, p = np.zeros(mean.shape), np.zeros(mean.shape)
    for squares, df in variances:
        error = np.sqrt(squares / (units * samples))
        t = np.divide(np.abs(mean), error, out=np.where(mean == 0, 0.0, np.inf), where=error > 0)
        half = np.maximum(half, scipy.stats.t.ppf((1 + level) / 2, df) * error)
        p = np.maximum(p, 2 * scipy.stats.t.sf(t, df))
    half = np.where(constant(values.reshape(*mean.shape, -1)), np.nan, half)
    return mean - half, mean + half, p


def false_discovery(p: ArrayLike) -> Array:
    """Benjamini and Hochberg's adjusted p-values; NaN entries stay NaN and do not count as tests."""
    values = np.asarray(p, dtype=float)
    tested = ~np.isnan(values)
    adjusted = np.full_like(values, np.nan)
    if tested.any():
        adjusted[tested] = scipy.stats.false_discovery_control(values[tested], method="bh")
    return adjusted
