"""Hooks on the projections of a model, and the stack of edits they apply.

A tap is one pre-hook per projection module. While any block is open (or after `install`), each call of a projection runs its input
through the edits of the blocks that are open in its thread, oldest first, so blocks nest. Passes of other threads go by untouched.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.heads._errors import HeadsDidNotFire
from headwise.heads._hooks import Hooks
from headwise.heads._sites import Site
from headwise.heads._use.blocks import Block, Edit, Here, aside, holding, in_backward, opened
from headwise.heads._use.module_tree import Tree, entries_of


class Tap:
    """One projection module: which site each of its calls is."""

    def __init__(self, model: nn.Module, sites: Sequence[Site]) -> None:
        self.sites, self.path = {site.call: site for site in sites}, sites[0].path
        self.module = model.get_submodule(self.path)
        self.n_calls = sites[0].n_calls
        self.block = model.get_submodule(sites[0].layer_path)
        # address of the layer's input -> number of the projection's first call, and the blocks then open: for recomputation
        self.by_input: dict[int, tuple[int, tuple[Block, ...]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "by_input": {}}

    def called(self, here: Here) -> Site | None:
        """Which site the present call is; None if the module is used for something else then."""
        if self.n_calls == 1:
            return self.sites[0]
        number = here.calls.get(self.path, 0)
        if number >= self.n_calls:
            raise HeadwiseError(
                f"{self.path} was called more often than the {self.n_calls} times seen when Heads was built: "
                "run the whole model, not its layers, inside this block"
            )
        here.calls[self.path] = number + 1
        return self.sites.get(number)


class Taps:
    """All taps of a model."""

    def __init__(self, model: nn.Module, sites: Sequence[Site]) -> None:
        self.model = model
        self.taps = [Tap(model, [s for s in sites if s.path == path]) for path in dict.fromkeys(s.path for s in sites)]
        self.entries = {entry: list(inspect.signature(entry.forward).parameters) for entry in entries_of(model)}
        self.tree = Tree(model, [tap.path for tap in self.taps])
        self._begin()

    def _begin(self) -> None:
        self.installed = False
        self._hooks = Hooks()
        self._live: list[Block] = []  # of all threads
        self._watching = False  # whether every layer's input is remembered
        self._kept = 0  # reasons to keep the hooks besides: `alone`
        self._lock = threading.RLock()
        self._local = threading.local()

    def __getstate__(self) -> dict[str, Any]:  # copies have no blocks open and no hooks
        return {name: vars(self)[name] for name in ("model", "taps", "entries", "tree")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    @property
    def edits(self) -> list[Edit]:
        """The edits open in this thread or task, oldest first."""
        return [block.edit for block in opened(self)]

    def install(self) -> None:
        """Sets the hooks now and keeps them, for `torch.compile`, which ignores hooks that come later."""
        self.tree.check()
        self.installed = True
        self._hook()

    def uninstall(self) -> None:
        """Takes the hooks off once no context is open."""
        self.installed = False
        self._unhook()

    @contextmanager
    def applying(self, edit: Edit, must_fire: Sequence[Site] = ()) -> Iterator[None]:
        """Applies `edit` to every pass of this thread or task inside.

        Raises:
            HeadsDidNotFire: on leaving, if a pass should have reached a site of `must_fire` and did not.
            HeadwiseError: modules of the model were replaced after Heads was built.
        """
        self.tree.check()
        block, here = Block(self, edit), self._here()
        with self._lock:
            self._live.append(block)
            self._hook()
        try:
            with holding(block):
                here.blocks = opened(self)
                if len(here.blocks) == 1:
                    here.running, here.calls = None, {}
                yield
                self._check_fired(block, must_fire)
        finally:
            here.blocks = tuple(other for other in here.blocks if other.open)
            with self._lock:
                self._live.remove(block)
                self._unhook()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Sets the blocks open here aside, for a pass of the model as it is."""
        here = self._here()
        before = here.blocks, here.running, here.calls
        here.blocks, here.running, here.calls = (), None, {}
        with self._lock:
            self._kept += 1
            self._hook()
        try:
            with aside(self):
                yield
        finally:
            here.blocks, here.running, here.calls = before
            with self._lock:
                self._kept -= 1
                self._unhook()

    def acting(self, edit: Edit) -> bool:
        """Whether `edit` is open in this thread or task: for hooks of its own."""
        return any(block.edit is edit for block in opened(self))

    def _check_fired(self, block: Block, must_fire: Sequence[Site]) -> None:
        """Sites of one stack of layers fire together, unless layers are dropped in training; and some must fire at all."""
        paths = {site.path: site.layer_path.rpartition(".")[0] for site in must_fire}  # projection -> its stack
        alive = {stack for path, stack in paths.items() if block.fired[path]}
        training = any(entry.training for entry in self.entries)
        silent = [
            path for path, stack in paths.items() if not block.fired[path] and (not alive or (stack in alive and not training))
        ]
        if silent:
            raise HeadsDidNotFire(
                f"no forward pass inside this block reached the heads of {silent[0]}{f' and {len(silent) - 1} more' * (len(silent) > 1)}, "
                "so they were not gated or recorded. Run the model that Heads was built on, in the thread that opened the block; if it was "
                "compiled, call heads.install() before torch.compile"
            )

    def _hook(self) -> None:
        with self._lock:
            if self._hooks:
                return
            for entry in self.entries:
                self._hooks.before(entry, self._start_of(), with_kwargs=True)
                self._hooks.after(entry, self._end_of(), always=True)
            for tap in self.taps:
                self._hooks.before(tap.module, self._hook_of(tap))
                if tap.n_calls > 1:
                    self._hooks.before(tap.block, self._remember(tap), with_kwargs=True)

    def _watch_layers(self) -> None:
        """Sets the hooks that recomputation needs, once a pass of any thread could have a backward pass."""
        with self._lock:
            if self._hooks and not self._watching:
                self._watching = True
                for tap in self.taps:
                    if tap.n_calls == 1:
                        self._hooks.before(tap.block, self._remember(tap), with_kwargs=True)

    def _unhook(self) -> None:
        with self._lock:
            if self._live or self._kept:
                return
            for tap in self.taps:
                tap.by_input.clear()
            if not self.installed:
                self._hooks.remove()
                self._watching = False

    def _here(self) -> Here:
        if not hasattr(self._local, "here"):
            self._local.here = Here()
        found: Here = self._local.here
        return found

    def _place(self) -> Here | None:
        """`_here`; None for compiled code in a thread that never opened a block."""
        found: Here | None = getattr(self._local, "here", None)
        return self._here() if found is None and not torch.compiler.is_compiling() else found

    def _acting(self, module: nn.Module, original: nn.Module, here: Here) -> tuple[Block, ...]:
        """The blocks whose edits a call of `module` goes through."""
        if torch.compiler.is_compiling():
            return here.blocks
        if here.again is not None and in_backward():
            return here.again
        found = opened(self)
        if not found and module is not original and vars(module).get("_is_replica"):
            return self._shared()
        return found

    def _shared(self) -> tuple[Block, ...]:
        """The blocks that hold for replicas, which DataParallel runs in threads of its own."""
        found = tuple(self._live)
        if len({block.thread for block in found}) > 1 or not all(getattr(block.edit, "alike", False) for block in found):
            raise HeadwiseError(
                "under DataParallel one thread at a time may gate a model, with gates (layers, heads) or means: the replicas see neither "
                "whole batches nor their order. Run the model itself, or one process per device (accelerate)"
            )
        return found

    def _start_of(self) -> Any:
        def start(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
            here = self._place()
            if not self._watching and not torch.compiler.is_compiling() and torch.is_grad_enabled():
                self._watch_layers()
            blocks = () if here is None else here.blocks if torch.compiler.is_compiling() else opened(self)
            if here is None or kwargs is None or not blocks:
                return
            if kwargs.get("head_mask") is not None:
                raise HeadwiseError(
                    "head_mask= was passed to the model, which transformers 5 silently ignores: "
                    "use `with heads.gated(gates):` or `with heads.silenced(head_set):` instead"
                )
            if here.running is not None or in_backward() or module not in self.entries:
                return
            here.running, here.calls = module, {}
            for block in blocks:
                block.edit.start({**dict(zip(self.entries[module], args, strict=False)), **kwargs})

        return start

    def _end_of(self) -> Any:
        def end(module: nn.Module, args: Any, output: Any) -> None:
            here = self._place()
            if here is not None and here.running is module:
                here.running = None

        return end

    def _hook_of(self, tap: Tap) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> Any:
            here = self._place()
            blocks = () if here is None else self._acting(module, tap.module, here)
            if here is None or not blocks:
                return None
            for block in blocks:
                block.fired[tap.path] = True
            site = tap.called(here)
            if site is None:
                return None
            x = args[0]
            for block in blocks:
                x = block.edit.at(site, x)
            return (x, *args[1:])

        return hook

    def _remember(self, tap: Tap) -> Any:
        """Gradient checkpointing repeats layers during the backward pass, last first, on a GPU in threads of autograd: a layer's input,
        which the checkpoint keeps alive, tells which pass and which of a shared layer's calls is being repeated."""

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
            if torch.compiler.is_compiling() or module is not tap.block:
                return
            here, address = self._here(), _address((*args, *(kwargs or {}).values()))
            here.again = None
            if not in_backward():
                if address is not None:
                    tap.by_input[address] = here.calls.get(tap.path, 0), opened(self)
            elif address in tap.by_input:
                here.calls[tap.path], here.again = tap.by_input[address]
            elif not opened(self) and self._live:
                raise HeadwiseError(
                    f"{tap.path} is repeated during a backward pass, and the thread whose pass it belongs to is unknown: turn gradient "
                    "checkpointing on by model.gradient_checkpointing_enable(), and run forward and backward inside one block"
                )

        return hook


def _address(values: Sequence[Any]) -> int | None:
    """Where the first tensor among `values` lies in memory; None if it lies nowhere (inside vmap)."""
    hidden = next((value for value in values if isinstance(value, Tensor)), None)
    try:
        return None if hidden is None else hidden.data_ptr()
    except RuntimeError:
        return None
