"""The task-conditioned modules of CA-MTL (Pilault et al. 2021): what a task's embedding changes in a shared
encoder."""

from math import ceil

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm


class FiLM(nn.Module):
    """(1 + γ(z)) ⊙ x + β(z), γ and β linear in the task embedding z; generators of zeros leave x as it is."""

    def __init__(self, dim: int, size: int) -> None:
        super().__init__()
        self.generate = linear(dim, 2 * size)

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        scale, shift = self.generate(z).chunk(2, dim=-1)
        return (1 + scale) * x + shift


class ConditionalAttention(nn.Module):
    """M(z) in softmax(M(z) + QKᵀ/√d) V, added to a layer's attention scores: N blocks A_n on the diagonal,
    each changed by FiLM.

    Args:
        dim: of the task embedding.
        length: L, most tokens of a text.
        blocks: N; a block is ⌈L ÷ N⌉ wide. γ and β have one value for each of its columns.
    """

    def __init__(self, dim: int, length: int, blocks: int) -> None:
        super().__init__()
        self.width = ceil(length / blocks)
        self.matrix = nn.Parameter(torch.zeros(length, self.width))  # the blocks, one under the other
        self.film = FiLM(dim, self.width)

    def forward(self, z: Tensor, tokens: int) -> Tensor:
        """(tokens, tokens), nothing outside the blocks."""
        positions = torch.arange(tokens, device=z.device)
        block, column = positions // self.width, positions % self.width
        rows = self.film(z, self.matrix[:tokens])  # (tokens, width)
        return rows[:, column].masked_fill(block[:, None] != block[None, :], 0)


class ConditionalNorm(nn.Module):
    """Conditional layer normalisation: the scale of an existing layer norm is changed by FiLM, its shift is
    shared."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.film = FiLM(dim, dim)

    def forward(self, z: Tensor, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        return layer_norm(x, norm.normalized_shape, self.film(z, norm.weight), norm.bias, norm.eps)


class ConditionalBottleneck(nn.Module):
    """The conditional bottleneck: FiLM, then down to a third of the width and up again."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform = linear(dim, dim)
        self.film = FiLM(dim, dim)
        self.down, self.up = linear(dim, dim // 3), linear(dim // 3, dim)

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return self.up(self.down(self.film(self.transform(z), x)))


class Conditions(nn.Module):
    """Everything CA-MTL adds to an encoder; all of it is shared by the tasks, each of which has one row of
    `tasks`.

    Args:
        n_tasks: how many.
        dim: width of the encoder and of the task embeddings.
        layers: of the encoder; the upper half (the larger part, if they are odd) is conditioned.
        length, blocks: of the conditional attention.
        large: whether the bottlenecks of all layers make a path of their own (CA-MTL large), or one follows
            the last layer (base).
    """

    def __init__(self, n_tasks: int, dim: int, layers: int, length: int, blocks: int, large: bool) -> None:
        super().__init__()
        upper = layers - layers // 2
        self.tasks = nn.Embedding(n_tasks, dim)
        nn.init.normal_(self.tasks.weight, std=0.02)
        self.transform = linear(dim, dim)
        self.align = FiLM(dim, dim)
        self.attention = nn.ModuleList(ConditionalAttention(dim, length, blocks) for _ in range(upper))
        self.norms = nn.ModuleList(ConditionalNorm(dim) for _ in range(2 * upper))
        self.bottlenecks = nn.ModuleList(ConditionalBottleneck(dim) for _ in range(layers if large else 1))
        self.last: ConditionalNorm | None = None if large else ConditionalNorm(dim)
        self.last_norm: nn.LayerNorm | None = None if large else nn.LayerNorm(dim)


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer as BERT begins one: N(0, 0.02²) and zeros."""
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer
