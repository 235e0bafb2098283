"""Where a pass may begin. Entering a model in the middle is right only if blocks hand on nothing but their
output.

The upper layers of Gemma 3n and Gemma 4 read keys and values that lower ones computed; a pass that begins in
between lacks them. So every block in which passes are to begin is tried, on one real example, before any of
them is relied on.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

# as torch.func and transformers use it
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from headwise._passes.stack import Stack, find_stack, recording, skipping
from headwise.errors import HeadwiseError
from headwise.heads import Heads

# What models raise where something is missing that a block below would have made.
MISSING = (
    AttributeError,
    HeadwiseError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)
STATES = 1e-3  # share by which the last state may differ, where rounding alone does not make it differ more


class Unlike(ValueError):
    """Two passes differ in a way that leaves open which axis of a state holds the rows of the batch."""


@dataclass(frozen=True)
class Entrances:
    """The blocks in which passes may begin.

    Attributes:
        stack: the model's blocks; None if it has no list of blocks.
        begins: for each block that was asked about, the highest one up to it in which a pass may begin; 0:
            whole passes only.
        axes: for each block, which axis of each part of what it returns holds the rows of the batch; None:
            none does.
        note: why lower layers are not shared, or not by all passes; "" if they are.
    """

    stack: Stack | None = None
    begins: dict[int, int] = field(default_factory=dict)
    axes: dict[int, list[int | None]] = field(default_factory=dict)
    note: str = ""

    def begin(self, site: int) -> int:
        """The block in which a pass may begin that changes nothing below a site; 0: it must be whole."""
        if self.stack is None:
            return 0
        return self.begins.get(self.stack.block_of[site], 0)

    def recording(self) -> AbstractContextManager[dict[int, Any]]:
        """Keeps what the blocks below the beginnings return in a pass: {block: output}."""
        return recording(self.stack, sorted({block - 1 for block in self.begins.values() if block}))

    def entered(self, block: int, outputs: dict[int, Any], times: int = 1) -> AbstractContextManager[None]:
        """Inside, passes over a batch repeated `times` times begin in `block`, with what the block below once
        returned."""
        if self.stack is None or block == 0:
            return nullcontext()
        return skipping(self.stack, block, repeat(outputs[block - 1], times, self.axes[block - 1]))

    def open_gates(self, block: int, gates: Tensor) -> Tensor:
        """Gates (..., layers, heads) with those of layers below `block` at 1: what does not run cannot be
        gated."""
        if self.stack is None or block == 0:
            return gates
        gates = gates.clone()
        gates[..., [layer for layer, lies_in in enumerate(self.stack.block_of) if lies_in < block], :] = 1
        return gates


# A whole pass over one example: how often it is repeated, and what makes of gates those of a pass that begins
# higher up (other gates
# may not be set); returns a number for each copy.
Run = Callable[[int, Callable[[Tensor], Tensor]], Tensor]


def find_entrances(heads: Heads, run: Run, blocks: Iterable[int] | None = None) -> Entrances:
    """Tries in which blocks passes may begin.

    Args:
        heads: of the model.
        run: a pass over one example.
        blocks: in which passes are wanted to begin; default: all.
    """
    stack = find_stack(heads)
    if isinstance(stack, str):
        return Entrances(note=f"lower layers are not shared: {stack}")
    if blocks is None:
        blocks = range(1, len(stack.blocks))
    targets = sorted(set(blocks) - {0})
    if not targets:
        return Entrances(stack)
    trial = _whole_passes(stack, run)
    holds = cache(lambda block: block == 0 or trial.holds(block))
    begins = {}
    for block in targets:
        begins[block] = next(lower for lower in range(block, -1, -1) if holds(lower))
    moved = [block for block, begin in begins.items() if begin < block]
    if not moved:
        return Entrances(stack, begins, trial.axes)
    how = "lower layers were not shared"
    if any(begins.values()):
        how = f"passes for block {moved[0]} of {len(stack.blocks)} begin below it"
    return Entrances(
        stack, begins, trial.axes, f"{how}: starting in the middle of this model changed its result"
    )


@dataclass(frozen=True)
class _Trial:
    """What whole passes gave, to compare with passes that begin in the middle.

    Attributes:
        stack: the model's blocks.
        run: makes a pass.
        axes: of what each block returns, by block.
        once, twice: what each block returned for one example and for two copies of it.
        answers: for one.
        noise: how much the copies' last state differs from the one's: copies are computed in other shapes.
    """

    stack: Stack
    run: Run
    axes: dict[int, list[int | None]]
    once: dict[int, Any]
    twice: dict[int, Any]
    answers: Tensor
    noise: float

    def holds(self, block: int) -> bool:
        """Whether two copies started in `block` give what whole passes give: their answers, and what the last
        block returns."""
        last = len(self.stack.blocks) - 1
        if block - 1 not in self.axes:
            return False
        copies = repeat(self.once[block - 1], 2, self.axes[block - 1])
        try:
            with skipping(self.stack, block, copies), recording(self.stack, [last]) as started:
                answers = self.run(2, partial(Entrances(self.stack).open_gates, block))
            difference = _difference(started[last], self.twice[last])
        except torch.OutOfMemoryError:
            raise
        except MISSING:
            return False
        expected = self.answers.float().repeat(2)
        same = expected.shape == answers.shape and torch.allclose(
            expected, answers.float(), rtol=1e-3, atol=1e-4
        )
        return same and difference <= max(STATES, 4 * self.noise)


def _whole_passes(stack: Stack, run: Run) -> _Trial:
    with recording(stack) as once:
        answers = run(1, _same)
    with recording(stack) as twice:
        run(2, _same)
    axes: dict[int, list[int | None]] = {}
    for block in once:
        with suppress(Unlike):
            axes[block] = row_axes(once[block], twice[block])
    last = len(stack.blocks) - 1
    noise = 0.0
    if last in axes:
        noise = _difference(repeat(once[last], 2, axes[last]), twice[last])
    return _Trial(stack, run, axes, once, twice, answers, noise)


def _same(gates: Tensor) -> Tensor:
    return gates


def row_axes(once: Any, twice: Any) -> list[int | None]:
    """For each part of a block's output, the axis that has twice as many entries for twice the rows; None:
    none has, or it is no tensor.

    Raises:
        Unlike: the outputs differ otherwise.
    """
    (leaves_once, structure), (leaves_twice, structure_twice) = tree_flatten(once), tree_flatten(twice)
    if structure != structure_twice:
        raise Unlike
    return [_row_axis(*leaves) for leaves in zip(leaves_once, leaves_twice, strict=True)]


def _row_axis(once: Any, twice: Any) -> int | None:
    if not isinstance(once, Tensor) or not isinstance(twice, Tensor):
        return None
    if once.ndim != twice.ndim:
        raise Unlike
    longer = [axis for axis in range(once.ndim) if once.shape[axis] != twice.shape[axis]]
    if len(longer) > 1 or (longer and twice.shape[longer[0]] != 2 * once.shape[longer[0]]):
        raise Unlike
    return longer[0] if longer else None


def repeat(value: Any, times: int, axes: list[int | None]) -> Any:
    """A block's output for a batch repeated `times` times, whole batch after whole batch; `axes` as
    `row_axes` finds them."""
    if times == 1:
        return value
    leaves, structure = tree_flatten(value)
    repeated = []
    for leaf, axis in zip(leaves, axes, strict=True):
        if axis is not None:
            sizes = [1] * leaf.ndim
            sizes[axis] = times
            leaf = leaf.repeat(*sizes)
        repeated.append(leaf)
    return tree_unflatten(repeated, structure)


def _difference(output: Any, expected: Any) -> float:
    """The largest difference between the tensors of two outputs of a block, as a share of their norm."""
    pairs = zip(tree_leaves(output), tree_leaves(expected), strict=True)
    shares = [
        (a.float() - b.float()).norm() / b.float().norm().clamp(min=1e-12)
        for a, b in pairs
        if isinstance(a, Tensor)
    ]
    return max(map(float, shares), default=0.0)
