"""Ridge regression on many feature sets at once, in closed form for all L2 strengths and folds.

Every problem minimises ½·mean squared error + λ/2·‖w‖², bias free of penalty: scikit-learn's
`Ridge(alpha=n·λ)`.
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
        weights = self.weights[:, fold].to(features.dtype)
        bias = self.bias[:, fold, :, None].to(features.dtype)
        return torch.baddbmm(bias, weights, features.transpose(1, 2))


def fit_ridge(
    features: Tensor, targets: Tensor, strengths: Sequence[float], *, folds: Sequence[int] | None = None
) -> RidgeFit:
    """Fits one regression per feature set, fold and strength.

    Args:
        features: (sets, examples, dim), any floating type.
        targets: (examples,) numbers.
        strengths: the λ; all positive.
        folds: sizes of consecutive blocks; fold f is fitted on all blocks but the f-th. None: one fit on all
            examples.
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
        by_block = [_sums(x[low:high], y[low:high]) for low, high in pairwise(edges)]
        totals = [torch.stack(sums).sum(0) for sums in zip(*by_block, strict=True)]
        for fold, of_block in enumerate(by_block):
            sums = totals
            if folds:
                sums = [total - in_block for total, in_block in zip(totals, of_block, strict=True)]
            n, sx, sy, sxx, sxy = sums
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
