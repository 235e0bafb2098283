"""Training only some heads: the parameters of all others, and their optimizer state, stay bit-identical.

Zeroing gradients is not enough: momentum and weight decay go on moving what has none. So the frozen part of weights and
optimizer state is also put aside before each optimizer step, and put back after it. A parameter that is frozen as a whole
gets no gradient at all, and optimizers pass it over.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Optimizer
from torch.utils.hooks import RemovableHandle

from headwise.errors import HeadwiseError
from headwise.heads.headset import HeadSet
from headwise.heads.ownership import Owned, ownership

if TYPE_CHECKING:
    from headwise.heads.heads import Heads

KEPT_PLANS = 64  # per Heads: multi-task training comes back to a few sets again and again


@contextmanager
def training_only(heads: "Heads", head_set: HeadSet, optimizer: Optimizer, output_projection: bool = True) -> Iterator[None]:
    """Every optimizer step inside the block leaves all heads outside `head_set`, and their optimizer state, bit-identical.

    Everything that belongs to no head (norms, feed-forward, embeddings, task heads, the compressed part of latent attention)
    learns as always. Keys and values of grouped queries learn if any head of their group does, and weights that layers share
    if a head of any of these layers does. Nested blocks train the heads that all of them name. Gradients are masked as they
    are accumulated, so that clipping sees only what learns; those present on entry are masked too.

    Args:
        heads: the heads of the model being trained.
        head_set: the heads that learn.
        optimizer: the optimizer, or accelerate's wrapper around it. Any optimizer with one state value per element is
            kept exactly; where elements share state (Adafactor's row and column statistics) the weights are.
        output_projection: whether a head's columns of W_O are frozen with it.

    Raises:
        HeadwiseError: the optimizer moves all parameters along one common direction (LBFGS), keeps its state quantized,
            or holds no parameter of this model.
    """
    optimizer = _checked(optimizer, heads.model)
    mine = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    parts = [_for(optimizer, part) for part in _plan(heads, head_set, output_projection) if id(part.parameter) in mine]
    keeper = _Keeper(optimizer, parts)
    with ExitStack() as undo:
        for part in parts:
            part.mask(part.parameter)
            if part.parameter.requires_grad:
                handle: RemovableHandle = part.parameter.register_post_accumulate_grad_hook(part.mask)  # type: ignore[no-untyped-call]
                undo.callback(handle.remove)
        if parts:
            undo.callback(optimizer.register_step_pre_hook(keeper.before).remove)
            undo.callback(optimizer.register_step_post_hook(keeper.after).remove)
            undo.callback(keeper.after)  # for a step that failed half-way
        yield


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


class _Keeper:
    """Keeps the frozen parts of an optimizer's parameters, and of their state, as they are.

    Most of them are stretches of memory: these are copied all at once, which on a GPU takes a few launches instead of hundreds.
    """

    def __init__(self, optimizer: Optimizer, parts: list[Frozen]) -> None:
        self.optimizer = optimizer
        self.whole = [part.parameter for part in parts if part.index is None]
        self.parts = [(part, part.parameter) for part in parts if part.index is not None]
        self.saved: _Saved | None = None  # while a step runs

    def before(self, *_: Any) -> None:
        """A step begins."""
        for parameter in self.whole:
            parameter.grad = None  # data-parallel training hands a gradient of zeros back
        self.saved = _Saved(self._tensors())

    def after(self, *_: Any) -> None:
        """A step has ended, or failed."""
        if self.saved is None:
            return
        tensors = self._tensors()
        self.saved.restore(tensors)
        if type(self.optimizer).__module__.startswith("torch.optim"):
            decays = {id(p) for group in self.optimizer.param_groups if group.get("weight_decay") for p in group["params"]}
            for (i, name), (part, tensor) in tensors.items():
                if (i, name) not in self.saved.names and id(self.parts[i][1]) in decays:
                    # Born in this step. Without a gradient it has its first value, unless weight decay was added to the
                    # gradient: torch's optimizers that do so start at zero.
                    part.blocks(tensor).index_fill_(part.dim, _index(part), 0)
        self.saved = None

    def _tensors(self) -> dict[tuple[int, str], tuple[Frozen, Tensor]]:
        """Parameters ("") and their state that has one value for each of their elements, by (place, name)."""
        found: dict[tuple[int, str], tuple[Frozen, Tensor]] = {}
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
    """Copies of the frozen parts of some tensors."""

    def __init__(self, tensors: dict[tuple[int, str], tuple[Frozen, Tensor]]) -> None:
        self.names = set(tensors)
        stretches, others = _sorted_out(tensors)
        self.flat = {kind: torch.cat(views) for kind, views in stretches.items()}
        self.blocks = {name: part.blocks(tensor).index_select(part.dim, _index(part)) for name, (part, tensor) in others.items()}

    def restore(self, tensors: dict[tuple[int, str], tuple[Frozen, Tensor]]) -> None:
        """Writes the copies back into tensors of the same names."""
        stretches, others = _sorted_out({name: tensors[name] for name in tensors if name in self.names})
        for kind, views in stretches.items():
            torch._foreach_copy_(views, self.flat[kind].split_with_sizes([view.numel() for view in views]))
        for name, (part, tensor) in others.items():
            part.blocks(tensor).index_copy_(part.dim, _index(part), self.blocks[name])


def _sorted_out(
    tensors: dict[tuple[int, str], tuple[Frozen, Tensor]],
) -> tuple[dict[tuple[torch.device, torch.dtype], list[Tensor]], dict[tuple[int, str], tuple[Frozen, Tensor]]]:
    """Flat views of the frozen parts that are stretches of memory, by device and type; and the tensors whose frozen parts are not."""
    stretches: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    others = {}
    for name, (part, tensor) in tensors.items():
        views = part.stretches(tensor)
        if views is None:
            others[name] = (part, tensor)
        else:
            stretches.setdefault((tensor.device, tensor.dtype), []).extend(views)
    return stretches, others


def _checked(optimizer: Optimizer, model: nn.Module) -> Optimizer:
    """The optimizer that really steps, if heads can be kept from it."""
    from accelerate.optimizer import AcceleratedOptimizer

    while isinstance(optimizer, AcceleratedOptimizer):
        optimizer = optimizer.optimizer
    if isinstance(optimizer, LBFGS):
        raise HeadwiseError(
            "LBFGS moves all parameters along one direction found from their common history and searches its length by the loss, so "
            "some of them cannot be held still inside a step: use an optimizer with per-element state such as AdamW or SGD"
        )
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if held.isdisjoint(id(parameter) for parameter in model.parameters()):
        raise HeadwiseError(
            f"this {type(optimizer).__name__} holds no parameter of the {type(model).__name__} that Heads was built on: "
            "pass the optimizer that trains it (was the model copied, or the optimizer made for another one?)"
        )
    return optimizer


_PLANS: "WeakKeyDictionary[Heads, dict[tuple[HeadSet, bool], list[Frozen]]]" = WeakKeyDictionary()


def _plan(heads: "Heads", head_set: HeadSet, output_projection: bool) -> list[Frozen]:
    """What is frozen; worked out once for each head set."""
    plans = _PLANS.setdefault(heads, {})
    key = (head_set, output_projection)
    if key not in plans:
        parts = [_frozen(heads.model, owned, head_set) for owned in ownership(heads) if output_projection or not owned.output]
        plans[key] = [part for part in parts if part is not None]
        if len(plans) > KEPT_PLANS:
            del plans[next(iter(plans))]
    for i, part in enumerate(plans[key]):
        if type(part.parameter) is not nn.Parameter:
            raise HeadwiseError(
                f"{part.name} of a {type(part.home).__name__} is a {type(part.parameter).__name__}, not a plain parameter (sharded or "
                "quantized weights), and one head's part of it cannot be held still: train with plain or data-parallel parameters"
            )
        if part.index is not None and part.index.device != part.parameter.device:
            plans[key][i] = replace(part, index=part.index.to(part.parameter.device))
    return plans[key]


def _frozen(model: nn.Module, owned: Owned, head_set: HeadSet) -> Frozen | None:
    """The entries that have owners, none of which is in `head_set`."""
    everyone = HeadSet((site, head) for site, marks in owned.owners.items() for head in range(marks.shape[1]))
    frozen = owned.touched(everyone) & ~owned.touched(head_set)  # (entries,)
    if not frozen.any():
        return None
    path, _, name = owned.name.rpartition(".")
    home = model.get_submodule(path)
    if frozen.all():
        return Frozen(home, name, owned.dim, len(frozen), None, (0, 1))
    edges = [i + 1 for i, (a, b) in enumerate(pairwise(frozen.tolist())) if a != b]
    block = gcd(len(frozen), *edges)
    borders = [0, *([0] if frozen[0] else []), *edges, len(frozen)]
    runs = tuple((stop - start) // block for start, stop in pairwise(borders))
    return Frozen(home, name, owned.dim, block, frozen.view(-1, block)[:, 0].nonzero()[:, 0], runs)


def _for(optimizer: Optimizer, part: Frozen) -> Frozen:
    """torch's fused SGD fails where only some parameters have momentum, so there a whole parameter is frozen like a part of one."""
    if part.index is None and isinstance(optimizer, SGD) and optimizer.defaults["fused"]:
        return replace(part, index=torch.zeros(1, dtype=torch.long, device=part.parameter.device))
    return part


def _index(part: Frozen) -> Tensor:
    assert part.index is not None  # parameters that are frozen as a whole have no gradient to keep them from
    return part.index
