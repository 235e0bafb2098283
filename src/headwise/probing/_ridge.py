"""Ridge regression on many feature sets at once, in closed form for all L2 strengths and folds.

Every problem minimises ½·mean squared error + λ/2·‖w‖², bias free of penalty: scikit-learn's `Ridge(alpha=n·λ)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from headwise.probing._parallel import workers
from headwise.probing._problem import check_finite, check_problem


@dataclass(frozen=True)
class RidgeFit:
    """Fitted regressions.

    Attributes:
        weights: (sets, folds, strengths, dim).
        bias: (sets, folds, strengths).
    """

    weights: Tensor
    bias: Tensor

    def predictions(self, features: Tensor, fold: int = 0) -> Tensor:
        """Predicted numbers of examples (sets, examples, dim): (sets, strengths, examples)."""
        weights, bias = (
            self.weights[:, fold].to(features.dtype),
            self.bias[:, fold, :, None].to(features.dtype),
        )
        return torch.baddbmm(bias, weights, features.transpose(1, 2))


def fit_ridge(
    features: Tensor, targets: Tensor, strengths: Sequence[float], *, folds: Sequence[int] | None = None
) -> RidgeFit:
    """Fits one regression per feature set, fold and strength.

    Args:
        features: (sets, examples, dim), any floating type.
        targets: (examples,) numbers.
        strengths: the λ; all positive.
        folds: sizes of consecutive blocks; fold f is fitted on all blocks but the f-th. None: one fit on all examples.
    """
    check_problem(features, targets, strengths, folds)
    sets, examples, dim = features.shape
    edges = list(accumulate(folds or [examples], initial=0))
    shift = targets.double().mean()
    weights = torch.empty(sets, len(edges) - 1, len(strengths), dim, device=features.device)
    bias = torch.empty(sets, len(edges) - 1, len(strengths), device=features.device)
    penalties = torch.tensor(strengths, device=features.device, dtype=torch.float64)

    def solve(number: int) -> None:
        x = features[number].float()
        centre = check_finite(x.mean(0))  # sums of products are taken around the mean: they keep their digits
        x = x - centre
        y = targets.double() - shift
        parts = [_sums(x[low:high], y[low:high]) for low, high in pairwise(edges)]
        whole = [torch.stack([part[i] for part in parts]).sum(0) for i in range(5)]
        for fold, part in enumerate(parts):
            n, sx, sy, sxx, sxy = [w - p for w, p in zip(whole, part, strict=True)] if folds else whole
            mx, my = sx / n, sy / n
            variances, axes = torch.linalg.eigh(sxx / n - torch.outer(mx, mx))
            along = axes.T @ (sxy / n - mx * my)  # (dim,)
            w = (along / (variances.clamp_min(0) + penalties[:, None])) @ axes.T  # (strengths, dim)
            weights[number, fold] = w.float()
            bias[number, fold] = (my + shift - w @ (mx + centre.double())).float()

    with workers(features.device) as spread:
        for _ in spread(solve, range(sets)):
            pass
    return RidgeFit(weights, bias)


def _sums(x: Tensor, y: Tensor) -> list[Tensor]:
    """Count, sums, and sums of products over some examples, in double precision."""
    d = x.double()
    return [
        torch.tensor(float(len(x)), device=x.device, dtype=torch.float64),
        d.sum(0),
        y.sum(),
        d.T @ d,
        d.T @ y,
    ]
