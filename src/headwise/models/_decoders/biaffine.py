"""The two parts every span and arc decoder is made of: a small perceptron per role, and a bilinear form
between two roles."""

import torch
from torch import Tensor, nn


class Role(nn.Sequential):
    """Linear, leaky ReLU, dropout: a word's vector in one role (head, dependent, start, end, ...)."""

    def __init__(self, dim: int, width: int, dropout: float) -> None:
        linear = nn.Linear(dim, width)
        nn.init.orthogonal_(linear.weight)
        nn.init.zeros_(linear.bias)
        super().__init__(linear, nn.LeakyReLU(0.1), nn.Dropout(dropout))


class Biaffine(nn.Module):
    """left^T U right + linear terms of both + a constant (Dozat & Manning 2017), one form per output.

    The linear terms are the bilinear form of vectors extended by a 1. Weights start at zero, as in the
    paper's parser.

    Args:
        width: length of the vectors on either side.
        outputs: number of forms.
    """

    def __init__(self, width: int, outputs: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, width + 1, width + 1))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """All pairs: (batch, n, width) and (batch, m, width) -> (batch, outputs, n, m)."""
        return torch.einsum("bni,oij,bmj->bonm", _extend(left), self.weight, _extend(right))

    def pairs(self, left: Tensor, right: Tensor) -> Tensor:
        """Chosen pairs: (pairs, width) twice -> (pairs, outputs)."""
        return torch.einsum("ki,oij,kj->ko", _extend(left), self.weight, _extend(right))


def _extend(vectors: Tensor) -> Tensor:
    return torch.cat([vectors, torch.ones_like(vectors[..., :1])], -1)
