"""AHP: task affinity from pair-wise transfer results (Zamir et al. 2018; appendix D)."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from headwise.errors import HeadwiseError
from headwise.similarity._matrices import labelled

Array = NDArray[Any]


def transfer_affinity(
    losses: Mapping[str, Mapping[str, Array]],
    *,
    scale: Literal["best", "sum"] = "best",
    clip: tuple[float, float] = (0.001, 0.999),
) -> xr.DataArray:
    """How well each source task transfers to each target task: the asymmetric matrix of the analytic
    hierarchy process.

    For each target, w_ij is the fraction of held-out examples on which source i has a lower loss than source
    j (a tie counts half), clipped; the principal eigenvector of w_ij / w_ji gives the sources' shares.

    Args:
        losses: losses[target][source] is the loss of each held-out example of the target, (examples,), for
            the model transferred from that source. A target need not have itself as a source; its own entry
            is then NaN.
        scale: "best" divides a target's shares by the largest, so that equally good sources all get 1; "sum"
            makes them sum to 1.
        clip: bounds of w.

    Returns:
        DataArray (source, target).
    """
    sources = list(dict.fromkeys(chain.from_iterable(losses.values())))
    values = np.full((len(sources), len(losses)), np.nan)
    for column, (target, by_source) in enumerate(losses.items()):
        names = list(by_source)
        rows = [np.asarray(of_source, dtype=float) for of_source in by_source.values()]
        if len({row.shape for row in rows}) != 1 or rows[0].ndim != 1 or not rows[0].size:
            shapes = {name: row.shape for name, row in zip(names, rows, strict=True)}
            raise HeadwiseError(
                f"every source needs one loss per held-out example of {target}, got shapes {shapes}"
            )
        missing = np.isnan(rows).any(1)
        if missing.any():
            raise HeadwiseError(f"a held-out loss of {target} is NaN (source {names[int(missing.argmax())]})")
        shares = principal_shares(win_rates(np.stack(rows)), clip)
        shares = shares / (shares.max() if scale == "best" else shares.sum())
        for name, share in zip(names, shares, strict=True):
            values[sources.index(name), column] = share
    return xr.DataArray(
        values,
        dims=("source", "target"),
        coords={"source": sources, "target": list(losses)},
        name="affinity",
        attrs={"method": "AHP", "scale": scale, "clip": list(clip)},
    )


def ahp(losses: Mapping[str, Mapping[str, Array]], *, scale: Literal["best", "sum"] = "best") -> xr.DataArray:
    """The symmetric AHP similarity: the mean of `transfer_affinity` in both directions; DataArray (task,
    other), diagonal 1.

    Raises:
        HeadwiseError: the sources and targets are not the same tasks.
    """
    affinity = transfer_affinity(losses, scale=scale)
    names = [str(name) for name in affinity["target"].values]
    if set(names) != set(map(str, affinity["source"].values)):
        raise HeadwiseError(
            f"AHP needs every task as source and target; targets {names}, sources "
            f"{list(affinity['source'].values)}"
        )
    values = affinity.sel(source=names).to_numpy()
    values = (values + values.T) / 2
    np.fill_diagonal(values, 1.0)
    return labelled(values, names, "AHP", scale=scale)


def win_rates(losses: Array) -> Array:
    """(sources, examples) losses → (sources, sources): the fraction of examples on which row beats column;
    ties count half."""
    better = (losses[:, None, :] < losses[None, :, :]).mean(-1)
    equal = (losses[:, None, :] == losses[None, :, :]).mean(-1)
    return better + equal / 2


def principal_shares(wins: Array, clip: tuple[float, float] = (0.001, 0.999)) -> Array:
    """The principal eigenvector of w_ij / w_ji, positive and summing to one."""
    bounded = np.clip(wins, *clip)
    values, vectors = np.linalg.eig(bounded / bounded.T)
    vector = np.abs(np.real(vectors[:, np.argmax(np.real(values))]))  # Perron: one sign throughout
    return vector / vector.sum()
