"""Keeping parts of parameters, and of their optimizer state, as they are while an optimizer steps."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from headwise.errors import HeadwiseError

KEPT_LAYOUTS = 64  # per optimizer: multi-task training comes back to a few head sets again and again


@dataclass(frozen=True)
class Frozen:
    """The frozen part of one parameter: of its axis `dim`, cut into blocks of `block` entries, the blocks
    `index`.

    Attributes:
        home, name: the module the parameter is in, and its name there.
        dim, block: the axis, and how many entries are frozen or free together: whole blocks are quicker to
            copy than single columns.
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

    def marks(self, tensor: Tensor) -> Tensor:
        """Which blocks are frozen, bool, in a shape that goes with `blocks`."""
        shape = [1] * (tensor.ndim + 1)
        shape[self.dim] = tensor.shape[self.dim] // self.block
        frozen = torch.zeros(shape[self.dim], dtype=torch.bool, device=tensor.device)
        return frozen.index_fill_(0, _index(self), True).view(shape)

    def stretches(self, tensor: Tensor) -> tuple[Tensor, ...] | None:
        """The frozen part as flat views of a tensor of the parameter's shape; None if it does not lie in
        stretches of memory."""
        if self.dim or not tensor.is_contiguous():
            return None
        size = tensor.numel() // tensor.shape[0] * self.block
        return tensor.detach().view(-1).split_with_sizes([run * size for run in self.runs])[1::2]


Tensors = dict[tuple[int, str], tuple[Frozen, Tensor]]  # by number of the parameter and name of the state


class Keeper:
    """Keeps the frozen parts of an optimizer's parameters, and of their state, as they are.

    Args:
        optimizer: the optimizer.
        key: what to remember the layout of these parts by, for later steps of this optimizer.
        masked: whether the frozen parts have no gradient; if they have one, state that is born in a step is
            set to zero there.
    """

    def __init__(self, optimizer: Optimizer, key: Hashable, masked: bool = True) -> None:
        self.optimizer, self.key, self.masked = optimizer, key, masked
        self.memory = _MEMORIES.setdefault(optimizer, _Memory())
        self.frozen_parameters: list[nn.Parameter] = []
        self.frozen_slices: list[tuple[Frozen, nn.Parameter]] = []
        self.saved: tuple[_Layout, list[Tensor]] | None = None  # while a step runs

    def add(self, frozen: Frozen) -> None:
        """Keeps this from now on."""
        if frozen.index is None:
            self.frozen_parameters.append(frozen.parameter)
        else:
            self.frozen_slices.append((frozen, frozen.parameter))

    def before(self, *_: Any) -> None:
        """A step begins."""
        for parameter in self.frozen_parameters:
            parameter.grad = None  # data-parallel training hands a gradient of zeros back
        layout = self.memory.layout(self.key, self._tensors())
        self.saved = (layout, layout.copied(self.memory))

    def after(self, *_: Any) -> None:
        """A step has ended, or failed."""
        if self.saved is None:
            return
        (layout, copies), self.saved = self.saved, None
        tensors = self._tensors()
        restored = {name: tensors[name] for name in layout.tensors}
        if not layout.fits(restored):  # an optimizer may replace its state
            layout = _Layout(restored)
        layout.restore(copies)
        room = [copy for copy in copies if copy.device.type == "cpu" and copy.ndim == 1]
        self.memory.room = room or self.memory.room
        if len(restored) == len(tensors) or not type(self.optimizer).__module__.startswith("torch.optim"):
            return
        decaying: set[int] = set()
        for group in self.optimizer.param_groups:
            if group.get("weight_decay"):
                decaying |= set(map(id, group["params"]))
        for (i, name), (frozen, tensor) in tensors.items():
            if (i, name) not in restored and (not self.masked or id(self.frozen_slices[i][1]) in decaying):
                # Born in this step. Without a gradient it has its first value, unless weight decay was added
                # to the gradient: torch's optimizers that do so start at zero, as do those that may have a
                # gradient here.
                frozen.blocks(tensor).index_fill_(frozen.dim, _index(frozen), 0)

    def _tensors(self) -> Tensors:
        """Parameters ("") and their state that has one value for each of their elements."""
        tensors: Tensors = {}
        for i, (frozen, parameter) in enumerate(self.frozen_slices):
            tensors[i, ""] = (frozen, parameter)
            for name, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    if not value.is_floating_point():
                        raise HeadwiseError(
                            f"{type(self.optimizer).__name__} keeps {name!r} of {frozen.name} as "
                            f"{value.dtype}, in blocks that share a scale, so the state of one head cannot "
                            "be separated: use an optimizer with floating-point state"
                        )
                    tensors[i, name] = (frozen, value)
        return tensors


class _Layout:
    """Where the frozen parts of some tensors lie.

    Most are stretches of memory, which are copied all at once: on a GPU that takes a few launches instead of
    hundreds. Columns are not; there the whole tensor is copied, and one choice between old and new entries
    restores them.
    """

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self.addresses = [tensor.data_ptr() for _, tensor in tensors.values()]
        self.stretches: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        # (blocks, frozen or not)
        # (blocks, frozen or not)
        self.masked: dict[tuple[torch.device, torch.dtype], list[tuple[Tensor, Tensor]]] = {}
        self.indexed: list[tuple[Tensor, int, Tensor]] = []  # (blocks, axis, frozen blocks)
        for frozen, tensor in tensors.values():
            views, kind = frozen.stretches(tensor), (tensor.device, tensor.dtype)
            if views is not None:
                self.stretches.setdefault(kind, []).extend(views)
            elif tensor.device.type == "cuda" and tensor.is_contiguous():
                self.masked.setdefault(kind, []).append((frozen.blocks(tensor), frozen.marks(tensor)))
            else:
                self.indexed.append((frozen.blocks(tensor), frozen.dim, _index(frozen)))
        # Copied with the stretches, and restored by a choice of old and new
        for kind, pairs in self.masked.items():
            self.stretches.setdefault(kind, []).extend(blocks.view(-1) for blocks, _ in pairs)
        self.sizes = {kind: [view.numel() for view in views] for kind, views in self.stretches.items()}

    def fits(self, tensors: Tensors) -> bool:
        """Whether these are the same parts of the same tensors, at the same addresses."""
        if tensors.keys() != self.tensors.keys():
            return False
        for (frozen, tensor), before, address in zip(
            tensors.values(), self.tensors.values(), self.addresses, strict=True
        ):
            if frozen is not before[0] or tensor is not before[1] or tensor.data_ptr() != address:
                return False
        return True

    def copied(self, memory: "_Memory") -> list[Tensor]:
        """Copies of the frozen parts."""
        copies = []
        for kind, views in self.stretches.items():
            room = memory.empty(kind, sum(self.sizes[kind]))
            torch._foreach_copy_(room.split_with_sizes(self.sizes[kind]), views)
            copies.append(room)
        return copies + [blocks.index_select(dim, index) for blocks, dim, index in self.indexed]

    def restore(self, copies: list[Tensor]) -> None:
        """Writes copies of the frozen parts back."""
        flat = zip(self.stretches.items(), copies, strict=False)
        for (kind, views), copy in flat:
            saved, pairs = copy.split_with_sizes(self.sizes[kind]), self.masked.get(kind, [])
            stretches = len(views) - len(pairs)
            torch._foreach_copy_(views[:stretches], saved[:stretches])
            for (blocks, frozen), old in zip(pairs, saved[stretches:], strict=True):
                torch.where(frozen, old.view_as(blocks), blocks, out=blocks)
        for (blocks, dim, index), copy in zip(self.indexed, copies[len(self.stretches) :], strict=True):
            blocks.index_copy_(dim, index, copy)


class _Memory:
    """What one optimizer's steps have in common: layouts, and on a CPU, where new memory is costly, room for
    copies."""

    def __init__(self) -> None:
        self.layouts: dict[Hashable, _Layout] = {}
        self.room: list[Tensor] = []

    def layout(self, key: Hashable, tensors: Tensors) -> _Layout:
        """The layout of these tensors, if it has not changed the one remembered."""
        layout = self.layouts.get(key)
        if layout is None or not layout.fits(tensors):
            layout = self.layouts[key] = _Layout(tensors)
            if len(self.layouts) > KEPT_LAYOUTS:
                del self.layouts[next(iter(self.layouts))]
        return layout

    def empty(self, kind: tuple[torch.device, torch.dtype], size: int) -> Tensor:
        """A flat tensor to copy into."""
        for i, old in enumerate(self.room):
            if (old.device, old.dtype) == kind and old.ndim == 1:
                return self.room.pop(i).resize_(size)
        return torch.empty(size, device=kind[0], dtype=kind[1])


_MEMORIES: "WeakKeyDictionary[Optimizer, _Memory]" = WeakKeyDictionary()


def _index(frozen: Frozen) -> Tensor:
    # Parameters that are frozen as a whole have no gradient to keep them from
    assert frozen.index is not None
    return frozen.index
