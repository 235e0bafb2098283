"""Which heads to remove so that every layer keeps the same number."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from headwise._base.names import as_fraction
from headwise._base.sentences import counted
from headwise.errors import HeadwiseError
from headwise.heads._headset import HeadSet
from headwise.heads._sites import Site


def prunable_evenly(sites: Sequence[Site], scores: ArrayLike, fraction: float) -> HeadSet:
    """See `Heads.prunable_evenly`."""
    kinds = sorted({(site.n_heads, site.n_groups) for site in sites})
    if len(kinds) > 1:
        sizes = ", ".join(f"{heads} heads in {groups} groups" for heads, groups in kinds)
        raise HeadwiseError(
            f"the layers of this model differ ({sizes}), so they cannot all lose the same heads: choose "
            "heads with top_heads"
        )
    heads, groups = kinds[0]
    values = np.asarray(scores, dtype=float)
    if values.shape != (len(sites), heads):
        raise HeadwiseError(
            f"scores have shape {values.shape}; this model has {len(sites)} layers of {heads} heads: give "
            "those of one task, scores.sel(task=…), or their mean"
        )
    if not np.isfinite(values).all():
        layer, head = np.argwhere(~np.isfinite(values))[0].tolist()
        raise HeadwiseError(
            f"the score of head ({layer}, {head}) is {values[layer, head]}: every head needs a finite one"
        )
    if not 0 < fraction < 1:
        raise HeadwiseError(f"fraction is {fraction}; {as_fraction(fraction)}")
    count = int(np.floor(fraction * groups + 1e-9))
    if count < 1:
        advice = "none can go without the whole layer"
        if groups > 1:
            advice = f"give at least {1 / groups:.3g}, and less than 1"
        raise HeadwiseError(
            f"fraction is {fraction}, and each layer has {counted(groups, 'group')} of keys: {advice}"
        )
    size = heads // groups
    sums = values.reshape(len(sites), groups, size).sum(axis=2)  # (layers, groups)
    paths = np.array([site.path for site in sites])
    pruned: list[tuple[int, int]] = []
    for layer, path in enumerate(paths):
        shared = sums[paths == path].sum(axis=0)  # layers that share weights lose the same
        for group in np.argsort(shared, kind="stable")[:count].tolist():
            pruned += [(layer, head) for head in range(group * size, (group + 1) * size)]
    return HeadSet(pruned)
