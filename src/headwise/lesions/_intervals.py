"""Intervals over examples: of whatever is computed from resamples of them, and of means over them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from headwise._base.inference import MIN_EXAMPLES, SAME, constant
from headwise._base.least import least_resamples
from headwise.errors import HeadwiseError

Array = NDArray[np.float64]
# examples that differ, added to those that were seen: the next sample may have some where this one has few
FLOOR = 3


def resample_counts(n: int, draws: int, seed: int | np.random.Generator) -> NDArray[np.int64]:
    """How often each of n examples occurs in each bootstrap sample: (draws, n), rows summing to n."""
    if n < 1:
        raise HeadwiseError("there are no examples to resample")
    # numpy's multinomial draws one binomial per example: about thirty times slower
    drawn = np.random.default_rng(seed).integers(n, size=(draws, n)) + n * np.arange(draws)[:, None]
    return np.bincount(drawn.ravel(), minlength=draws * n).reshape(draws, n)


def interval(
    draws: ArrayLike,
    level: float = 0.95,
    axis: int = 0,
    *,
    examples: int | None = None,
    value: ArrayLike | None = None,
    differing: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """The percentile interval of bootstrap draws along `axis`; NaN where there is none, and `why_none` says
    why.

    Args:
        draws: the bootstrap's values.
        level: of the interval.
        axis: of the draws.
        examples: how many were resampled. A bootstrap of few is too narrow, so that its percentiles are taken
            further out: those of a normal at Student's t times √(n ÷ (n − 1)), for n = 50 the 2.1st and
            97.9th (Hesterberg 2015, §5.3).
        value, differing: where the value comes from examples on which two things differ, as those that one of
            two lesions gets wrong, the value and their number. Where they are few, as near 100 %, resamples
            know too little of those not seen: either end is moved away from the value as if `FLOOR` more of
            them had been, by √(1 + 3 ÷ differing).
    """
    values = np.asarray(draws, dtype=float)
    if values.shape[axis] < least_resamples(level) or (examples is not None and examples < MIN_EXAMPLES):
        undefined = np.full(tuple(np.delete(values.shape, axis).tolist()), np.nan)
        return undefined, undefined.copy()
    tail = (1 - level) / 2
    if examples is not None:
        ends = scipy.stats.t.ppf(tail, examples - 1) * np.sqrt(examples / (examples - 1))
        tail = float(scipy.stats.norm.cdf(ends))
    # of R draws, the k-th lies at k ÷ (R + 1)
    low, high = np.quantile(values, [tail, 1 - tail], axis=axis, method="weibull")
    if value is not None and differing is not None:
        centre, differ = np.asarray(value, dtype=float), np.asarray(differing, dtype=float)
        scale = np.sqrt(1 + FLOOR / np.where(differ > 0, differ, np.inf))
        low, high = centre - (centre - low) * scale, centre + (high - centre) * scale
    none = constant(values, axis)
    return np.where(none, np.nan, low), np.where(none, np.nan, high)


def mean_interval(
    values: ArrayLike,
    counts: NDArray[Any],
    level: float = 0.95,
    *,
    strata: Sequence[tuple[NDArray[np.int64], float]] | None = None,
) -> tuple[Array, Array]:
    """The interval of a mean over examples, or of a sum of weighted means of strata: the wider of the
    percentiles of `interval` and of the bootstrap of t, which follows skewed values; few values that differ
    from 0 count as a few more in both (`FLOOR`).

    Args:
        values: (..., examples).
        counts: (draws, examples): how often each example occurs in each sample; strata are resampled apart.
        level: of the interval.
        strata: the examples of each, and the weight of its mean; default: all, 1.
    """
    every = np.asarray(values, dtype=float)
    weighted = strata or [(np.arange(every.shape[-1]), 1.0)]
    mean, square = np.zeros(every.shape[:-1]), np.zeros(every.shape[:-1])
    drawn, squares = np.zeros((len(counts), *mean.shape)), np.zeros((len(counts), *mean.shape))
    for rows, weight in weighted:
        x, often, n = every[..., rows], counts[:, rows], len(rows)
        apart = (x - x.mean(-1, keepdims=True)) * weight
        nonzero = (np.abs(x) > 0).sum(-1)
        added = FLOOR * weight**2 * (x**2).sum(-1) / np.maximum(nonzero, 1)
        mean += weight * x.mean(-1)
        square += ((apart**2).sum(-1) + added) / n**2
        moved = np.moveaxis(apart, -1, 0).reshape(n, -1)  # (examples, ...)
        shift = (often @ moved / n).reshape(drawn.shape)
        drawn += shift
        squares += ((often @ moved**2).reshape(drawn.shape) - n * shift**2 + added) / n**2
    low, high = interval(
        mean + drawn,
        level,
        examples=min(len(rows) for rows, _ in weighted),
        value=mean,
        differing=sum((np.abs(every[..., rows]) > 0).sum(-1) for rows, _ in weighted),
    )
    tail = (1 - level) / 2
    if len(counts) >= least_resamples(level):
        t = np.divide(drawn, np.sqrt(np.maximum(squares, 0)), out=np.zeros_like(drawn), where=squares > 0)
        below, above = np.quantile(t, [tail, 1 - tail], axis=0, method="weibull")
        error = np.sqrt(square)
        # NaN stays NaN
        low, high = np.minimum(low, mean - above * error), np.maximum(high, mean - below * error)
    return low, high


def why_none(draws: ArrayLike, level: float = 0.95, *, examples: int | None = None) -> str:
    """Why one figure's bootstrap draws give no interval; empty where they do.

    Args:
        draws: (resamples,).
        level, examples: as of `interval`.
    """
    values = np.asarray(draws, dtype=float)
    if not len(values):
        return "no resamples were asked for (bootstrap is 0)"
    if examples is not None and examples < MIN_EXAMPLES:
        return f"{examples} held-out examples; {MIN_EXAMPLES} are needed"
    if len(values) < least_resamples(level):
        return f"{len(values)} resamples; {least_resamples(level)} are needed for {100 * level:g} %"
    if np.isnan(values).any():
        return "the value is undefined in some resamples"
    return SAME.format(unit="resample of the examples") if constant(values) else ""
