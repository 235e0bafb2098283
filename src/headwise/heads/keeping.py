"""Keeping parts of parameters, and of their optimizer state, as they are while an optimizer steps."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from headwise.errors import HeadwiseError


@dataclass(frozen=True)
class Frozen:
    """The frozen part of one parameter: of its axis `dim`, cut into blocks of `block` entries, the blocks `index`.

    Attributes:
        home, name: the module the parameter is in, and its name there.
        dim, block: the axis, and how many entries are frozen or free together: whole blocks are quicker to copy than single columns.
        index: the frozen blocks, (blocks,); None if the whole parameter is frozen.
        runs: lengths of its alternating stretches of free and frozen blocks, free first.
    """

    home: nn.Module
    name: str
    dim: int
    block: int
    index: Tensor | None
    runs: tuple[int, ...]

    @property
    def parameter(self) -> nn.Parameter:
        """The parameter as it is now."""
        return self.home._parameters[self.name]  # type: ignore[return-value]

    def mask(self, parameter: Tensor) -> None:
        """Takes the frozen part out of a parameter's gradient."""
        if self.index is None:
            parameter.grad = None
        elif parameter.grad is not None:
            self.blocks(parameter.grad).index_fill_(self.dim, self.index, 0)

    def blocks(self, tensor: Tensor) -> Tensor:
        """A tensor of the parameter's shape with axis `dim` cut into (blocks, block)."""
        shape = tensor.shape
        return tensor.detach().view(*shape[: self.dim], -1, self.block, *shape[self.dim + 1 :])

    def stretches(self, tensor: Tensor) -> tuple[Tensor, ...] | None:
        """The frozen part as flat views of a tensor of the parameter's shape; None if it does not lie in stretches of memory."""
        if self.dim or not tensor.is_contiguous():
            return None
        size = tensor.numel() // tensor.shape[0] * self.block
        return tensor.detach().view(-1).split_with_sizes([run * size for run in self.runs])[1::2]


Tensors = dict[tuple[int, str], tuple[Frozen, Tensor]]  # by place of the parameter and name of the state


class Keeper:
    """Keeps the frozen parts of an optimizer's parameters, and of their state, as they are."""

    def __init__(self, optimizer: Optimizer, parts: list[Frozen]) -> None:
        self.optimizer = optimizer
        self.whole = [part.parameter for part in parts if part.index is None]
        self.parts = [(part, part.parameter) for part in parts if part.index is not None]
        self.saved: _Saved | None = None  # while a step runs

    def before(self, *_: Any) -> None:
        """A step begins."""
        for parameter in self.whole:
            parameter.grad = None  # data-parallel training hands a gradient of zeros back
        self.saved = _Saved(self._tensors(), _POOLS.setdefault(self.optimizer, []))

    def after(self, *_: Any) -> None:
        """A step has ended, or failed."""
        if self.saved is None:
            return
        tensors = self._tensors()
        self.saved.restore(tensors)
        if type(self.optimizer).__module__.startswith("torch.optim"):
            decays = {id(p) for group in self.optimizer.param_groups if group.get("weight_decay") for p in group["params"]}
            for (i, name), (part, tensor) in tensors.items():
                if (i, name) not in self.saved.tensors and id(self.parts[i][1]) in decays:
                    # Born in this step. Without a gradient it has its first value, unless weight decay was added to the
                    # gradient: torch's optimizers that do so start at zero.
                    part.blocks(tensor).index_fill_(part.dim, _index(part), 0)
        self.saved = None

    def _tensors(self) -> Tensors:
        """Parameters ("") and their state that has one value for each of their elements."""
        found: Tensors = {}
        for i, (part, parameter) in enumerate(self.parts):
            found[i, ""] = (part, parameter)
            for name, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    if not value.is_floating_point():
                        raise HeadwiseError(
                            f"{type(self.optimizer).__name__} keeps {name!r} of {part.name} as {value.dtype}, in blocks that share a "
                            "scale, so the state of one head cannot be kept apart: use an optimizer with floating-point state"
                        )
                    found[i, name] = (part, value)
        return found


class _Saved:
    """Copies of the frozen parts of some tensors.

    Most parts are stretches of memory. They are copied all at once: on a GPU that takes a few launches instead of hundreds.
    """

    def __init__(self, tensors: Tensors, pool: list[Tensor]) -> None:
        self.tensors, self.pool = tensors, pool
        self.stretches, self.others = _sorted_out(tensors)
        self.flat = {}
        for kind, views in self.stretches.items():
            self.flat[kind] = torch.cat(views, out=self._room(kind, sum(view.numel() for view in views)))
        self.blocks = {
            name: part.blocks(tensor).index_select(part.dim, _index(part)) for name, (part, tensor) in self.others.items()
        }

    def restore(self, tensors: Tensors) -> None:
        """Writes the copies back into tensors of the same names, which an optimizer may have put in place of the old ones."""
        if any(tensors[name][1] is not tensor for name, (_, tensor) in self.tensors.items()):
            self.stretches, self.others = _sorted_out({name: tensors[name] for name in self.tensors})
        for kind, views in self.stretches.items():
            torch._foreach_copy_(views, self.flat[kind].split_with_sizes([view.numel() for view in views]))
        for name, (part, tensor) in self.others.items():
            part.blocks(tensor).index_copy_(part.dim, _index(part), self.blocks[name])
        self.pool += [flat for flat in self.flat.values() if flat.device.type == "cpu"]

    def _room(self, kind: tuple[torch.device, torch.dtype], size: int) -> Tensor:
        """Memory to copy into. New memory is costly on a CPU, so there it is used again in later steps."""
        for i, old in enumerate(self.pool):
            if (old.device, old.dtype) == kind:
                return self.pool.pop(i).resize_(size)
        return torch.empty(size, device=kind[0], dtype=kind[1])


_POOLS: "WeakKeyDictionary[Optimizer, list[Tensor]]" = WeakKeyDictionary()


def _sorted_out(tensors: Tensors) -> tuple[dict[tuple[torch.device, torch.dtype], list[Tensor]], Tensors]:
    """Flat views of the frozen parts that are stretches of memory, by device and type; and the tensors whose frozen parts are not."""
    stretches: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    others: Tensors = {}
    for name, (part, tensor) in tensors.items():
        views = part.stretches(tensor)
        if views is None:
            others[name] = (part, tensor)
        else:
            stretches.setdefault((tensor.device, tensor.dtype), []).extend(views)
    return stretches, others


def _index(part: Frozen) -> Tensor:
    assert part.index is not None  # parameters that are frozen as a whole have no gradient to keep them from
    return part.index
