"""What every probe, of classes or of numbers, refuses to be fitted to."""

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.errors import HeadwiseError


def check_problem(
    features: Tensor, labels: Tensor, strengths: Sequence[float], folds: Sequence[int] | None
) -> None:
    """Refuses what no probe can be fitted to: HeadwiseError says which setting is wrong."""
    if labels.shape != (features.shape[1],):
        raise HeadwiseError(
            f"features hold {features.shape[1]} examples and labels have shape {tuple(labels.shape)}: "
            "expected one per row"
        )
    if not strengths or min(strengths) <= 0:
        raise HeadwiseError(
            f"L2 strengths must be positive, got {list(strengths)}: without a penalty separable data has no "
            "optimum"
        )
    if folds is not None and (len(folds) < 2 or sum(folds) != features.shape[1]):
        raise HeadwiseError(
            f"fold sizes {list(folds)} must be at least two and add up to the {features.shape[1]} examples"
        )


def check_finite(mean: Tensor) -> Tensor:
    """Features, or their mean, if finite: one value that is not makes its mean so.

    Raises:
        HeadwiseError: it is not.
    """
    if not torch.isfinite(mean).all():
        raise HeadwiseError(
            "features hold NaN or infinite values; record with dtype='float32' if half precision overflowed"
        )
    return mean


def check_squares(sums: Tensor, features: Tensor) -> Tensor:
    """Sums of products of features, if they are finite.

    Raises:
        HeadwiseError: they are not, since the features are too large.
    """
    if not torch.isfinite(sums).all():
        raise HeadwiseError(
            f"features are as large as {float(features.abs().max()):.3g}, too large to be squared in single "
            "precision: scale them"
        )
    return sums


def check_features(features: Tensor) -> Tensor:
    """Features (sets, examples, dim), if all of them are finite: a probe would give the first class to an
    example that is not.

    Raises:
        HeadwiseError: one is not.
    """
    for number in range(len(features)):  # one at a time, for all together may fill the memory
        check_finite(features[number])
    return features
