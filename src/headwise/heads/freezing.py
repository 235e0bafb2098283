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
    mine = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}
    keepers = [
        _Keeper(parameter, frozen, optimizer, mine[id(parameter)])
        for frozen, parameter in _plan(heads, head_set, output_projection)
        if id(parameter) in mine
    ]

    def before(*_: Any) -> None:
        for keeper in keepers:
            keeper.before()

    def after(*_: Any) -> None:
        for keeper in keepers:
            keeper.after()

    with ExitStack() as undo:
        for keeper in keepers:
            keeper.mask(keeper.parameter)
            if keeper.parameter.requires_grad:
                handle: RemovableHandle = keeper.parameter.register_post_accumulate_grad_hook(keeper.mask)  # type: ignore[no-untyped-call]
                undo.callback(handle.remove)
        undo.callback(optimizer.register_step_pre_hook(before).remove)
        undo.callback(optimizer.register_step_post_hook(after).remove)
        undo.callback(after)  # for a step that failed half-way
        yield


@dataclass(frozen=True)
class Frozen:
    """The frozen part of one parameter: of its axis `dim`, cut into blocks of `block` entries, the blocks `index`.

    Whole blocks are several times quicker to copy than single columns. `index` is None if the whole parameter is frozen.
    """

    name: str
    dim: int
    block: int
    index: Tensor | None  # (blocks,)

    def of(self, tensor: Tensor) -> Tensor:
        """The tensor with its axis `dim` cut into (blocks, block)."""
        shape = tensor.shape
        return tensor.detach().view(*shape[: self.dim], -1, self.block, *shape[self.dim + 1 :])


class _Keeper:
    """Keeps the frozen part of one parameter, and of its optimizer state, as it is."""

    def __init__(self, parameter: nn.Parameter, frozen: Frozen, optimizer: Optimizer, group: dict[str, Any]) -> None:
        if frozen.index is None and isinstance(optimizer, SGD) and group["fused"]:
            # torch's fused SGD fails where only some parameters have momentum, so here none may be passed over.
            frozen = replace(frozen, index=torch.zeros(1, dtype=torch.long, device=parameter.device))
        self.parameter, self.frozen, self.optimizer, self.group = parameter, frozen, optimizer, group
        self.saved: dict[str, Tensor] | None = None  # while a step runs; "" is the parameter itself

    def mask(self, parameter: Tensor) -> None:
        """Takes the frozen part out of the gradient."""
        if self.frozen.index is None:
            parameter.grad = None
        elif parameter.grad is not None:
            self.frozen.of(parameter.grad).index_fill_(self.frozen.dim, self.frozen.index, 0)

    def before(self) -> None:
        """A step begins."""
        index = self.frozen.index
        if index is None:
            self.parameter.grad = None  # data-parallel training hands a gradient of zeros back
        elif self.parameter.grad is not None:
            self.saved = {
                name: self.frozen.of(tensor).index_select(self.frozen.dim, index) for name, tensor in self._tensors().items()
            }

    def after(self) -> None:
        """A step has ended, or failed."""
        index = self.frozen.index
        if self.saved is None or index is None:
            return
        for name, tensor in self._tensors().items():
            if name in self.saved:
                self.frozen.of(tensor).index_copy_(self.frozen.dim, index, self.saved[name])
            elif self.group.get("weight_decay") and type(self.optimizer).__module__.startswith("torch.optim"):
                # Born in this step. Without a gradient it has its first value, unless weight decay was added to the gradient:
                # torch's optimizers that do so start at zero.
                self.frozen.of(tensor).index_fill_(self.frozen.dim, index, 0)
        self.saved = None

    def _tensors(self) -> dict[str, Tensor]:
        """The parameter and the state that has one value for each of its elements."""
        found: dict[str, Tensor] = {"": self.parameter}
        for name, value in self.optimizer.state.get(self.parameter, {}).items():
            if isinstance(value, Tensor) and value.shape == self.parameter.shape:
                if not value.is_floating_point():
                    raise HeadwiseError(
                        f"{type(self.optimizer).__name__} keeps {name!r} of {self.frozen.name} as {value.dtype}, in blocks that share a "
                        "scale, so the state of one head cannot be kept apart: use an optimizer with floating-point state"
                    )
                found[name] = value
        return found


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


def _plan(heads: "Heads", head_set: HeadSet, output_projection: bool) -> list[tuple[Frozen, nn.Parameter]]:
    """What is frozen, with the parameters as they are now; worked out once for each head set."""
    plans = _PLANS.setdefault(heads, {})
    key = (head_set, output_projection)
    if key not in plans:
        parts = [_frozen(owned, head_set) for owned in ownership(heads) if output_projection or not owned.output]
        plans[key] = [part for part in parts if part is not None]
        if len(plans) > KEPT_PLANS:
            del plans[next(iter(plans))]
    plan = []
    for i, part in enumerate(plans[key]):
        parameter = heads.model.get_parameter(part.name)
        if type(parameter) is not nn.Parameter:
            raise HeadwiseError(
                f"{part.name} is a {type(parameter).__name__}, not a plain parameter (sharded or quantized weights), and the slice "
                "of one head cannot be held still in it: train with plain or data-parallel parameters"
            )
        if part.index is not None and part.index.device != parameter.device:
            plans[key][i] = part = replace(part, index=part.index.to(parameter.device))
        plan.append((part, parameter))
    return plan


def _frozen(owned: Owned, head_set: HeadSet) -> Frozen | None:
    """The entries that have owners, none of which is in `head_set`."""
    everyone = HeadSet((site, head) for site, marks in owned.owners.items() for head in range(marks.shape[1]))
    frozen = owned.touched(everyone) & ~owned.touched(head_set)  # (entries,)
    if not frozen.any():
        return None
    if frozen.all():
        return Frozen(owned.name, owned.dim, len(frozen), None)
    edges = [i + 1 for i, (a, b) in enumerate(pairwise(frozen.tolist())) if a != b]
    block = gcd(len(frozen), *edges)
    return Frozen(owned.name, owned.dim, block, frozen.view(-1, block)[:, 0].nonzero()[:, 0])
