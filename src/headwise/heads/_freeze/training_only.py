"""Training only some heads: the parameters of all others, and their optimizer state, stay bit-identical.

Zeroing gradients is not enough: momentum and weight decay keep moving what has none. So the frozen part of
weights and optimizer state is also put aside before each optimizer step, and put back after it. A parameter
that is frozen as a whole gets no gradient at all, and optimizers pass it over.
"""

from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import groupby
from math import gcd
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Optimizer

from headwise.errors import HeadwiseError
from headwise.heads._freeze.adapters import adapter_names, learning_parameters
from headwise.heads._freeze.ownership import Owned
from headwise.heads._freeze.preservation import Frozen, Keeper
from headwise.heads._headset import HeadSet

if TYPE_CHECKING:
    from headwise.heads._heads import Heads

KEPT_PLANS = 64  # per Heads: multi-task training comes back to a few sets again and again


@contextmanager
def training_only(
    heads: "Heads",
    head_set: HeadSet,
    optimizer: Optimizer,
    output_projection: bool,
    drift: bool,
    masked: bool,
) -> Iterator[None]:
    """See `Heads.training_only`."""
    heads._taps.tree.check(adapters=True)
    optimizer = _checked(optimizer, heads.model)
    plan = _plan(heads, head_set, output_projection)
    waiting = plan  # what the optimizer does not hold yet
    keeper = Keeper(optimizer, (id(heads), head_set, output_projection), masked)
    with ExitStack() as undo:

        def admit(*_: Any) -> None:
            """Freezes what the optimizer holds by now: groups may be added while the block is open."""
            nonlocal waiting
            held = _held_by(optimizer)
            arrived = [frozen for frozen in waiting if id(frozen.parameter) in held]
            waiting = [frozen for frozen in waiting if id(frozen.parameter) not in held]
            # torch's fused SGD fails where only some parameters have momentum. While drifting, a gradient of
            # zero, not none, makes the optimizer act.
            zeroed = drift or (isinstance(optimizer, SGD) and optimizer.defaults["fused"])
            for frozen in arrived:
                if zeroed and frozen.index is None:  # the parameter as its one block
                    index = torch.zeros(1, dtype=torch.long, device=frozen.parameter.device)
                    frozen = replace(frozen, index=index)
                keeper.add(frozen)
                if masked or drift:
                    undo.enter_context(_without_gradient(frozen))

        admit()
        if waiting:
            undo.callback(optimizer.register_step_pre_hook(admit).remove)
        if plan and not drift:
            undo.callback(optimizer.register_step_pre_hook(keeper.before).remove)
            undo.callback(optimizer.register_step_post_hook(keeper.after).remove)
            undo.callback(keeper.after)  # for a step that failed half-way
        yield


def _held_by(optimizer: Optimizer) -> set[int]:
    """The ids of the parameters that an optimizer holds."""
    held: set[int] = set()
    for group in optimizer.param_groups:
        held |= set(map(id, group["params"]))
    return held


@contextmanager
def _without_gradient(frozen: Frozen) -> Iterator[None]:
    """Takes the gradient of a frozen part, now and whenever it is accumulated."""
    parameter: Any = frozen.parameter
    frozen.mask(parameter)
    if not parameter.requires_grad:
        yield
        return
    handle = parameter.register_post_accumulate_grad_hook(frozen.mask)
    try:
        yield
    finally:
        handle.remove()


def _checked(optimizer: Optimizer, model: nn.Module) -> Optimizer:
    """The optimizer that takes the steps, if heads can be kept from it."""
    from accelerate.optimizer import AcceleratedOptimizer

    while isinstance(optimizer, AcceleratedOptimizer):
        optimizer = optimizer.optimizer
    if isinstance(optimizer, LBFGS):
        raise HeadwiseError(
            "LBFGS moves all parameters along one direction found from their common history and searches "
            "its length by the loss, so some of them cannot be frozen inside a step: use an optimizer with "
            "per-element state such as AdamW or SGD"
        )
    if _held_by(optimizer).isdisjoint(map(id, model.parameters())):
        raise HeadwiseError(
            f"this {type(optimizer).__name__} holds no parameter of the {type(model).__name__} that Heads "
            "was built on: pass the optimizer that trains it (was the model copied, or the optimizer made "
            "for another one?)"
        )
    return optimizer


_PLANS: "WeakKeyDictionary[Heads, dict[Hashable, list[Frozen]]]" = WeakKeyDictionary()


def _plan(heads: "Heads", head_set: HeadSet, output_projection: bool) -> list[Frozen]:
    """What is frozen; worked out once for each head set, and again if adapters came or went."""
    plans = _PLANS.setdefault(heads, {})
    key = (head_set, output_projection, adapter_names(heads.model))
    if key not in plans:
        plans[key] = []
        for owned in learning_parameters(heads):
            entries = owned.frozen(head_set)
            if (output_projection or not owned.output) and entries.any():
                plans[key].append(_frozen(heads.model, owned, entries))
        if len(plans) > KEPT_PLANS:
            del plans[next(iter(plans))]
    for i, frozen in enumerate(plans[key]):
        parameter = frozen.parameter
        if type(parameter) is not nn.Parameter:
            raise HeadwiseError(
                f"{frozen.name} of a {type(frozen.home).__name__} is a {type(parameter).__name__}, not a "
                "plain parameter (sharded or quantized weights), and one head's part of it cannot be "
                "frozen: train with plain or data-parallel parameters"
            )
        if frozen.index is not None and frozen.index.device != parameter.device:
            plans[key][i] = replace(frozen, index=frozen.index.to(parameter.device))
    return plans[key]


def _frozen(model: nn.Module, owned: Owned, frozen: Tensor) -> Frozen:
    """The entries of a parameter that stay as they are, (entries,) bool, in blocks."""
    path, _, name = owned.name.rpartition(".")
    home = model.get_submodule(path)
    if frozen.all():
        return Frozen(home, name, owned.dim, len(frozen), None, (0, 1))
    runs = [len(list(stretch)) for _, stretch in groupby(frozen.tolist())]
    block = gcd(*runs)
    index = frozen.view(-1, block)[:, 0].nonzero()[:, 0]
    if frozen[0]:
        runs.insert(0, 0)  # the first stretch counts what is free
    return Frozen(home, name, owned.dim, block, index, tuple(run // block for run in runs))
