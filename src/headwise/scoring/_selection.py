"""Choosing heads by their scores, over the whole model, and random sets under the same constraint."""

from collections.abc import Sequence
from math import comb
from numbers import Integral, Real
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from headwise._base.names import as_fraction, shown
from headwise._base.senses import Sense, importance
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet


def count_for(fraction: float, total: int) -> int:
    """floor(fraction × total): 30 % of 144 heads is 43, of 384 is 115, of 72 is 21.

    The product is nudged by 1e-9, so that 29 % of 100 is 29 although 0.29 × 100 is 28.999… in binary.
    """
    if not 0 <= fraction <= 1:
        raise HeadwiseError(f"fraction is {fraction}; {as_fraction(fraction)}")
    return int(np.floor(fraction * total + 1e-9))


def _amount(fraction: float | None, n: int | None, total: int) -> int:
    if (fraction is None) == (n is None):
        raise HeadwiseError(
            f"give either fraction or n, not both and not neither; got fraction={fraction}, n={n}"
        )
    if fraction is not None:
        if not isinstance(fraction, Real):
            raise HeadwiseError(
                f"fraction is {shown(fraction)}; it must be a number: a fraction is between 0 and 1"
            )
        if isinstance(fraction, Integral) and fraction == 1:  # as one head, or as all of them?
            raise HeadwiseError(f"fraction is {fraction}: for 1 head say n=1, for all heads fraction=1.0")
        if fraction > 1 and float(fraction).is_integer():
            raise HeadwiseError(
                f"fraction is {fraction}; {as_fraction(fraction)}: for {fraction:g} heads say n={fraction:g}"
            )
        return count_for(fraction, total)
    if not isinstance(n, Integral) or isinstance(n, bool) or not 0 <= n <= total:
        raise HeadwiseError(
            f"n is {shown(n)}; it must be a whole number from 0 to {total}, the number of the model's heads"
        )
    return int(n)


def _room(per_layer: NDArray[np.intp], n: int, min_per_layer: int) -> NDArray[np.intp]:
    """How many heads of each layer may be chosen if `min_per_layer` of them must stay out; checks that n
    fit."""
    if min_per_layer < 0:
        raise HeadwiseError(f"min_per_layer is {min_per_layer}; it must be 0 or more")
    room = np.maximum(per_layer - min_per_layer, 0)
    if n > room.sum():
        raise HeadwiseError(
            f"{n} heads cannot be chosen with min_per_layer={min_per_layer}: only {room.sum()} of "
            f"{per_layer.sum()} may be; lower the fraction or min_per_layer"
        )
    return room


def top_heads(
    scores: xr.DataArray | NDArray[Any],
    fraction: float | None = None,
    *,
    n: int | None = None,
    min_per_layer: int = 0,
    by: Sense = "magnitude",
) -> HeadSet:
    """The most important heads, over the whole model and not per layer.

    Args:
        scores: (layer, head), of xarray or NumPy, NaN where a layer has no such head. `attrs["sense"]` says what scores below 0
            mean: "signed" (the head is in the task's way, 0 is no effect) or "magnitude" (the higher, the
            more important).
        fraction: the share of all heads to take, 0–1; floor(fraction × all heads) are taken.
        n: how many to take instead.
        min_per_layer: at least this many heads of every layer stay out of the set, so that a lesion leaves
            each layer alive.
        by: "magnitude" ranks signed scores by their size, so that heads come first whose loss changes most,
            for better or worse; "signed" ranks scores as they are, so that heads come first that help most.

    Returns:
        the chosen heads; equal scores go to the lower (layer, head).
    """
    scores = _labelled(scores)
    return _first(scores, importance(scores, by), fraction, n, min_per_layer)


def bottom_heads(
    scores: xr.DataArray | NDArray[Any],
    fraction: float | None = None,
    *,
    n: int | None = None,
    min_per_layer: int = 0,
    by: Sense = "magnitude",
) -> HeadSet:
    """The least important heads: those to go first in pruning. Arguments as for `top_heads`.

    By "magnitude" these are heads whose loss changes least, by "signed" the most harmful ones. Equal scores
    go to the lower (layer, head).
    """
    scores = _labelled(scores)
    return _first(scores, -importance(scores, by), fraction, n, min_per_layer)


def _labelled(scores: Any) -> xr.DataArray:
    """An array of NumPy as one of layers and heads."""
    if isinstance(scores, np.ndarray) and scores.ndim == 2:
        return xr.DataArray(scores, dims=("layer", "head"))
    if not isinstance(scores, xr.DataArray):
        raise HeadwiseError(
            f"scores are a {type(scores).__name__}; expected the result of hw.score, or an array (layer, head)"
        )
    return scores


def _first(
    scores: xr.DataArray,
    values: NDArray[np.float64],
    fraction: float | None,
    n: int | None,
    min_per_layer: int,
) -> HeadSet:
    """The heads with the highest `values`, which have the shape of the scores."""
    if scores.dims != ("layer", "head"):
        raise HeadwiseError(
            f"scores have dims {scores.dims}; expected ('layer', 'head'): pick one with .sel(task=…), or "
            "average"
        )
    valid = ~np.isnan(values)  # (layers, heads)
    if np.isinf(values).any():
        raise HeadwiseError("scores hold infinite values; they cannot be ranked reliably")
    amount = _amount(fraction, n, int(valid.sum()))
    room = _room(valid.sum(axis=1), amount, min_per_layer)
    # a stable sort of -score keeps row-major order, which is (layer, head), among equals; NaN sorts last
    order = np.argsort(np.where(valid, -values, np.nan).ravel(), kind="stable")[: int(valid.sum())]
    heads: list[tuple[int, int]] = []
    in_layer = np.zeros(len(values), dtype=int)
    for flat in order:
        if len(heads) == amount:
            break
        layer, head = divmod(int(flat), values.shape[1])
        if in_layer[layer] < room[layer]:
            in_layer[layer] += 1
            heads.append((layer, head))
    return HeadSet(heads)


def random_heads(
    valid: ArrayLike,
    fraction: float | None = None,
    *,
    n: int | None = None,
    draws: int = 1,
    seed: int = 0,
    min_per_layer: int = 0,
    per_layer: Sequence[int] | None = None,
) -> list[HeadSet]:
    """Random sets of heads, each equally likely among all sets that obey the constraint.

    Args:
        valid: (layers, heads) bool, where a head exists (`Heads.valid`, or `scores.notnull()`).
        fraction: the share of all heads; n: their number instead.
        draws: how many sets.
        seed: the same seed gives the same sets.
        min_per_layer: as for `top_heads`: at least this many heads of every layer stay out.
        per_layer: exactly this many heads from each layer (a layer-matched baseline); then neither fraction
            nor n.
    """
    grid = np.asarray(valid, dtype=bool)  # (layers, heads)
    sizes = grid.sum(axis=1)
    rng = np.random.default_rng(seed)
    if per_layer is not None:
        if fraction is not None or n is not None:
            raise HeadwiseError("per_layer already says how many heads to draw; leave out fraction and n")
        if len(per_layer) != len(sizes) or any(
            not 0 <= want <= have for want, have in zip(per_layer, sizes, strict=True)
        ):
            raise HeadwiseError(f"per_layer is {list(per_layer)}; the layers have {sizes.tolist()} heads")
        return [_draw(grid, per_layer, rng) for _ in range(draws)]
    amount = _amount(fraction, n, int(sizes.sum()))
    room = _room(sizes, amount, min_per_layer)
    ways = _ways(sizes, room, amount)
    return [_draw(grid, _layer_counts(sizes, room, amount, ways, rng), rng) for _ in range(draws)]


def _draw(grid: NDArray[np.bool_], counts: Sequence[int], rng: np.random.Generator) -> HeadSet:
    heads: list[tuple[int, int]] = []
    for layer, count in enumerate(counts):
        drawn = rng.choice(np.flatnonzero(grid[layer]), size=count, replace=False)
        heads += [(layer, int(head)) for head in drawn]
    return HeadSet(heads)


def _ways(sizes: NDArray[np.intp], room: NDArray[np.intp], n: int) -> list[list[int]]:
    """ways[l][m]: how many sets of m heads from layers l, l+1, … obey the room of each layer (exact
    integers)."""
    ways = [[1] + [0] * n]
    for size, limit in zip(sizes[::-1].tolist(), room[::-1].tolist(), strict=True):
        above, here = ways[0], []
        for m in range(n + 1):
            here.append(sum(comb(size, c) * above[m - c] for c in range(min(limit, m) + 1)))
        ways.insert(0, here)
    return ways


def _layer_counts(
    sizes: NDArray[np.intp], room: NDArray[np.intp], n: int, ways: list[list[int]], rng: np.random.Generator
) -> list[int]:
    """Draws how many heads each layer gives, with the probability that a uniformly drawn allowed set has
    them."""
    counts = []
    for layer, (size, limit) in enumerate(zip(sizes.tolist(), room.tolist(), strict=True)):
        # divided as integers by Python, which rounds correctly however large they are
        above, total = ways[layer + 1], ways[layer][n]
        odds = np.array([comb(size, c) * above[n - c] / total for c in range(min(limit, n) + 1)])
        counts.append(int(rng.choice(len(odds), p=odds / odds.sum())))
        n -= counts[-1]
    return counts
