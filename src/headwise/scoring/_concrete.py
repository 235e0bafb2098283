"""Hard-concrete gates (Louizos et al. 2018; Voita et al. 2019): random gates that are often exactly 0 or 1,
with gradients."""

from math import log

import torch
from torch import Tensor

TEMPERATURE = 0.33
LOW, HIGH = -0.1, 1.1  # the concrete variable is stretched to this range, then cut to 0–1
CLAIMED_GATE = 1e-3  # a head whose gate at test is above this is claimed


def sample(log_a: Tensor, noise: Tensor) -> Tensor:
    """Gates drawn for training: s = σ((log u − log(1−u) + log a) ÷ 0.33), g = clip(1.2 s − 0.1, 0, 1).

    Args:
        log_a: (layers, heads), learnt.
        noise: uniform in 0–1, (..., layers, heads); one draw per leading entry.
    """
    u = noise.clamp(1e-6, 1 - 1e-6)
    s = torch.sigmoid((u.log() - (-u).log1p() + log_a) / TEMPERATURE)
    return ((HIGH - LOW) * s + LOW).clamp(0, 1)


def at_test(log_a: Tensor) -> Tensor:
    """The gate without noise: clip(1.2 σ(log a) − 0.1, 0, 1)."""
    return ((HIGH - LOW) * torch.sigmoid(log_a) + LOW).clamp(0, 1)


def open_probability(log_a: Tensor) -> Tensor:
    """P(g > 0) = σ(log a − 0.33 log(0.1 ÷ 1.1)): the differentiable count of open gates, which the L0 penalty
    sums."""
    return torch.sigmoid(log_a - TEMPERATURE * log(-LOW / HIGH))
