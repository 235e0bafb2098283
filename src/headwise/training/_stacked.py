"""Many copies of one model trained side by side as one: every weight gets a leading axis, one slice per copy.

Thousands of few-shot fine-tunings differ only in their examples and their decoder's first weights. Run one
after another they are bound by launching small operations; stacked, a linear layer of all copies is one
batched matrix product. The rows of a stacked batch are ordered copy by copy, so attention, masks and dropout
run unchanged, whatever the architecture. What a norm or an embedding of some family does beside that is not
known here: `stacked_check.compare` shows whether a model may be trusted.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from headwise.errors import HeadwiseError

HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)


class CannotStack(HeadwiseError):
    """The model holds parameters that no stacked module handles; train its copies one after another."""


class _Rows:
    """The number of copies, and of rows in the batch now passing: shared by all stacked modules of a
    model."""

    def __init__(self, copies: int) -> None:
        self.copies, self.batch = copies, 0

    def split(self, x: Tensor) -> Tensor:
        """(copies × n, ..., dim) → (copies, n × ..., dim)."""
        if x.shape[0] != self.batch:
            raise CannotStack(
                f"a layer saw {x.shape[0]} rows where the batch has {self.batch}: it shares work between rows"
            )
        return x.reshape(self.copies, -1, x.shape[-1])

    def per_row(self, weight: Tensor, dims: int) -> Tensor:
        """(copies, dim) → (copies × n, 1, ..., dim), to multiply or add to a tensor of `dims` axes."""
        return weight.repeat_interleave(self.batch // self.copies, 0).view(
            self.batch, *(1,) * (dims - 2), weight.shape[-1]
        )


class StackedLinear(nn.Module):
    """`nn.Linear` (or transformers' transposed `Conv1D`) with weights of its own for every copy; optionally
    low-rank ones only."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, rows: _Rows, rank: int | None, first: Tensor | None = None
    ) -> None:
        super().__init__()
        self.rows, self.rank = rows, rank
        if rank is None:
            self.weight = _copies(weight, rows.copies)  # (copies, out, in)
            self.bias = _bias_copies(bias, rows.copies)  # (copies, out)
        else:  # LoRA: the shared weight stays, each copy learns down (random) and up (zero)
            self.weight = weight.detach()  # type: ignore[assignment]
            self.bias = None
            if bias is not None:
                self.bias = bias.detach()  # type: ignore[assignment]
            assert first is not None
            self.down = nn.Parameter(first)  # (copies, in, rank)
            self.up = nn.Parameter(torch.zeros(rows.copies, rank, weight.shape[0], device=weight.device))

    def forward(self, x: Tensor) -> Tensor:
        flat = self.rows.split(x)  # (copies, n, in)
        if self.rank is not None:
            out = nn.functional.linear(flat, self.weight, self.bias)
            out = out + torch.bmm(torch.bmm(flat, self.down), self.up)
        elif self.bias is None:
            out = torch.bmm(flat, self.weight.transpose(1, 2))
        else:
            out = torch.baddbmm(self.bias.unsqueeze(1), flat, self.weight.transpose(1, 2))
        return out.reshape(*x.shape[:-1], out.shape[-1])


class StackedNorm(nn.Module):
    """Layer norm or root-mean-square norm with a scale (and shift) of its own for every copy."""

    def __init__(self, norm: nn.Module, rows: _Rows) -> None:
        super().__init__()
        self.rows, self.plain = rows, norm
        self.weight = _copies(norm.weight, rows.copies)  # type: ignore[arg-type]
        self.bias = _bias_copies(getattr(norm, "bias", None), rows.copies)
        # the norm itself runs without a scale
        neutral = {"weight": torch.ones_like(self.weight[0]), "bias": torch.zeros_like(self.weight[0])}
        for name, values in neutral.items():
            if getattr(norm, name, None) is not None:
                delattr(norm, name)
                norm.register_buffer(name, values)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.plain(x) * self.rows.per_row(self.weight, x.ndim)
        if self.bias is not None:
            out = out + self.rows.per_row(self.bias, x.ndim)
        return out


class StackedEmbedding(nn.Module):
    """`nn.Embedding` whose used rows each copy owns.

    Adam without weight decay never moves a row that was not looked up, so only the rows in `used` get copies;
    others are read from the shared table. That is exact, and keeps a vocabulary of 30,000 rows from being
    copied, updated and stored for every copy.
    """

    table: Tensor
    positions: Tensor

    def __init__(self, embedding: nn.Embedding, rows: _Rows, used: Tensor) -> None:
        super().__init__()
        self.rows = rows
        self.register_buffer("table", embedding.weight.detach())
        self.weight = _copies(embedding.weight[used], rows.copies)  # (copies, used, dim)
        positions = torch.full((embedding.num_embeddings,), -1, device=used.device)
        positions[used] = torch.arange(len(used), device=used.device)
        self.register_buffer("positions", positions)
        self.padding = embedding.padding_idx

    def forward(self, index: Tensor) -> Tensor:
        if index.ndim < 2 or index.shape[0] == 1:  # positions
            index = index.expand(self.rows.batch, index.shape[-1])
        if index.shape[0] != self.rows.batch:
            raise CannotStack(f"an embedding saw {index.shape[0]} rows where the batch has {self.rows.batch}")
        positions = self.positions[index].view(self.rows.copies, -1)  # (copies, n)
        offset = torch.arange(self.rows.copies, device=index.device)[:, None] * self.weight.shape[1]
        flat = self.weight.flatten(0, 1)  # (copies × used, dim)
        copied = nn.functional.embedding((positions.clamp(min=0) + offset), flat)  # (copies, n, dim)
        shared = self.table[index].view_as(copied)
        out = torch.where((positions >= 0)[..., None], copied, shared).view(*index.shape, -1)
        if self.padding is not None:  # a padding row gets no gradient in the plain module either
            out = torch.where((index == self.padding)[..., None], out.detach(), out)
        return out


class Stacked(nn.Module):
    """Copies of `model` as one module; rows of every tensor argument are ordered copy by copy.

    Args:
        model: any module of linear layers, norms, embeddings and parameter-free modules; it is not changed.
        copies: how many.
        used: token numbers that training will look up (every copy gets these rows of the word embedding).
        rank: None copies all weights; a number gives every copy low-rank changes of the linear layers and
            nothing else (LoRA).
        seeds: with a rank, one for each copy, which alone decides its first low-rank matrices; default 0, 1,
            ...

    Raises:
        CannotStack: a module holds parameters of an unknown kind.
    """

    def __init__(
        self,
        model: nn.Module,
        copies: int,
        used: Tensor,
        rank: int | None = None,
        seeds: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.rows = _Rows(copies)
        shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        self.model = deepcopy(model, memo=shared)  # the structure is copied, the weights are not
        if seeds is None:
            seeds = range(copies)
        for path, module in list(self.model.named_modules()):
            if any(True for _ in module.parameters(recurse=False)):
                new = _stacked(path, module, self.rows, used, rank, seeds)
                for hooks in HOOKS:  # what follows or precedes a module (an adapter) keeps doing so
                    setattr(new, hooks, getattr(module, hooks))
                _put(self.model, path, new)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        batch = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        self.rows.batch = batch.shape[0]
        return self.model(*args, **kwargs)

    def trained(self) -> Iterator[nn.Parameter]:
        """The parameters that training updates."""
        return (parameter for parameter in self.parameters() if parameter.requires_grad)


def _stacked(
    path: str, module: nn.Module, rows: _Rows, used: Tensor, rank: int | None, seeds: Sequence[int]
) -> nn.Module:
    kind = type(module).__name__
    linear = isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
    if linear or (kind == "Conv1D" and isinstance(module.weight, Tensor) and module.weight.ndim == 2):
        weight: Any = module.weight
        if not linear:
            weight = weight.T
        down = None
        if rank is not None:
            down = torch.stack([first_down(path, weight.shape[1], rank, seed) for seed in seeds])
            down = down.to(weight.device)
        return StackedLinear(weight, module.bias, rows, rank, down)  # type: ignore[arg-type]
    if isinstance(module, nn.LayerNorm | nn.RMSNorm) or kind.endswith("RMSNorm"):
        return _frozen(StackedNorm(module, rows), rank)
    if isinstance(module, nn.Embedding) and type(module).forward is nn.Embedding.forward:
        if module.num_embeddings > 4096:
            copied_rows = used[used < module.num_embeddings]
        else:
            copied_rows = torch.arange(module.num_embeddings, device=module.weight.device)
        return _frozen(StackedEmbedding(module, rows, copied_rows), rank)
    raise CannotStack(f"{path} ({kind}) holds parameters that cannot be stacked")


def _frozen(module: nn.Module, rank: int | None) -> nn.Module:
    if rank is not None:
        module.requires_grad_(False)
    return module


def _copies(weight: Tensor, copies: int) -> nn.Parameter:
    return nn.Parameter(weight.detach().unsqueeze(0).repeat(copies, *(1,) * weight.ndim))


def _bias_copies(bias: Tensor | None, copies: int) -> nn.Parameter | None:
    if bias is None:
        return None
    return _copies(bias, copies)


def _put(root: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(root.get_submodule(parent), name, module)


def set_copies(stacked: nn.Module, models: Sequence[nn.Module]) -> None:
    """Gives each copy of a stacked module (a decoder, say) the weights of its own model."""
    parameters_by_copy = [dict(model.named_parameters()) for model in models]
    with torch.no_grad():
        for name, parameter in stacked.named_parameters():
            for copy, parameters in enumerate(parameters_by_copy):
                if name in parameters:
                    parameter[copy].copy_(parameters[name])


def first_down(path: str, into: int, rank: int, seed: int) -> Tensor:
    """The first low-rank matrix (in, rank) of one layer: drawn by the seed and the layer's name, whatever is
    trained beside it."""
    # torch reads 32 bits of a seed
    generator = torch.Generator().manual_seed(crc32(f"{seed} {path}".encode()))
    return torch.randn(into, rank, generator=generator) / into**0.5


class _LowRank(nn.Module):
    """weight + (down @ up)ᵀ: the low-rank change of one linear layer, as `StackedLinear` has it for many."""

    def __init__(self, weight: Tensor, path: str, rank: int, seed: int, transposed: bool) -> None:
        super().__init__()
        out, into = weight.shape
        if transposed:
            into, out = weight.shape
        self.transposed = transposed
        self.down = nn.Parameter(first_down(path, into, rank, seed).to(weight.device))
        self.up = nn.Parameter(torch.zeros(rank, out, device=weight.device))

    def forward(self, weight: Tensor) -> Tensor:
        change = self.down @ self.up  # (in, out)
        if not self.transposed:
            change = change.T
        return weight + change


def add_low_rank(model: nn.Module, rank: int, seed: int) -> None:
    """Gives every linear layer of one model a low-rank change to learn; nothing else of it requires gradients
    afterwards."""
    model.requires_grad_(False)
    for path, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D":
            weight: Any = module.weight
            change = _LowRank(weight, path, rank, seed, not isinstance(module, nn.Linear))
            register_parametrization(module, "weight", change, unsafe=True)
