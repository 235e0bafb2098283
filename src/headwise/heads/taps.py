"""Hooks on the projections of a model, and the stack of edits they apply.

A tap is one pre-hook per projection module. While any context is open (or after `install`), each call of a projection runs
its input through the open contexts' edits, oldest first, so contexts nest. With no edit open the input passes untouched.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headwise.errors import HeadwiseError
from headwise.heads.errors import HeadsDidNotFire
from headwise.heads.inputs import root_of
from headwise.heads.sites import Site


class Edit(Protocol):
    """What a context does to a site's head outputs."""

    def at(self, site: Site, x: Tensor) -> Tensor:
        """Takes the projection's input (..., heads × head_dim) and returns what to go on with."""

    def start(self, arguments: dict[str, Any]) -> None:
        """A forward pass begins; `arguments` are the named arguments of the model's forward."""


class Tap:
    """One projection module: which site each of its calls is, and which call comes next."""

    def __init__(self, model: nn.Module, sites: Sequence[Site]) -> None:
        self.sites, self.path = {site.call: site for site in sites}, sites[0].path
        self.module = model.get_submodule(self.path)
        self.n_calls = sites[0].n_calls
        self.block = model.get_submodule(sites[0].layer_path) if self.n_calls > 1 else None
        self.next = 0
        self.fired = False
        self.by_input: dict[int, int] = {}  # address of a shared layer's input -> number of its first call, for recomputation

    def called(self) -> Site | None:
        """Which site the present call is; None if the module is used for something else then."""
        if self.n_calls == 1:
            return self.sites[0]
        if self.next >= self.n_calls:
            raise HeadwiseError(
                f"{self.path} was called more often than the {self.n_calls} times seen when Heads was built: "
                "run the whole model, not its layers, inside this block"
            )
        self.next += 1
        return self.sites.get(self.next - 1)


class Taps:
    """All taps of a model."""

    def __init__(self, model: nn.Module, sites: Sequence[Site]) -> None:
        self.model = model
        self.taps = [Tap(model, [s for s in sites if s.path == path]) for path in dict.fromkeys(s.path for s in sites)]
        self.edits: list[Edit] = []
        self.handles: list[RemovableHandle] = []
        self.installed = False
        self.entries = {entry: list(inspect.signature(entry.forward).parameters) for entry in entries_of(model)}
        self.running: nn.Module | None = None  # the entry through which the present pass came in

    def install(self) -> None:
        """Sets the hooks now and keeps them, for `torch.compile`, which ignores hooks that come later."""
        self.installed = True
        self._hook()

    def uninstall(self) -> None:
        """Takes the hooks off once no context is open."""
        self.installed = False
        self._unhook()

    @contextmanager
    def applying(self, edit: Edit, must_fire: Sequence[Site] = ()) -> Iterator[None]:
        """Applies `edit` to every pass inside.

        Raises:
            HeadsDidNotFire: on leaving, if a pass should have reached a site of `must_fire` and did not.
        """
        self._hook()
        before = [tap.fired for tap in self.taps]
        for tap in self.taps:
            tap.fired = False
        self.edits.append(edit)
        try:
            yield
            self._check_fired(must_fire)
        finally:
            self.edits.remove(edit)
            for tap, fired in zip(self.taps, before, strict=True):
                tap.fired = tap.fired or fired
            self._unhook()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Sets the open contexts aside, for a pass of the model as it is."""
        edits, running, installed = self.edits, self.running, self.installed
        states = [(tap.next, tap.fired) for tap in self.taps]
        self.edits, self.running, self.installed = [], None, True  # installed: blocks inside must not take off our hooks
        self._hook()
        try:
            yield
        finally:
            self.edits, self.running, self.installed = edits, running, installed
            for tap, (call, fired) in zip(self.taps, states, strict=True):
                tap.next, tap.fired = call, fired
            self._unhook()

    def _check_fired(self, must_fire: Sequence[Site]) -> None:
        """Sites of one stack of layers fire together, unless layers are dropped in training; and some must fire at all."""
        paths = {site.path: site.layer_path.rpartition(".")[0] for site in must_fire}  # projection -> its stack
        fired = {tap.path: tap.fired for tap in self.taps if tap.path in paths}
        alive = {stack for path, stack in paths.items() if fired[path]}
        training = any(entry.training for entry in self.entries)
        silent = [path for path, stack in paths.items() if not fired[path] and (not alive or (stack in alive and not training))]
        if silent:
            raise HeadsDidNotFire(
                f"no forward pass inside this block reached the heads of {silent[0]}{f' and {len(silent) - 1} more' * (len(silent) > 1)}, "
                "so they were not gated or recorded. Run the model that Heads was built on; if it was compiled, call heads.install() "
                "before torch.compile"
            )

    def _hook(self) -> None:
        if self.handles:
            return
        for entry in self.entries:
            self.handles.append(entry.register_forward_pre_hook(self._start, with_kwargs=True))
            self.handles.append(entry.register_forward_hook(self._end, always_call=True))
        for tap in self.taps:
            self.handles.append(tap.module.register_forward_pre_hook(self._hook_of(tap)))
            if tap.block is not None:
                self.handles.append(tap.block.register_forward_pre_hook(_remember(tap), with_kwargs=True))

    def _unhook(self) -> None:
        if self.edits:
            return
        for tap in self.taps:
            tap.by_input.clear()
        if not self.installed:
            for handle in self.handles:
                handle.remove()
            self.handles.clear()
            self.running = None

    def _start(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs.get("head_mask") is not None:
            raise HeadwiseError(
                "head_mask= was passed to the model, which transformers 5 ignores without a word: "
                "use `with heads.gated(gates):` or `with heads.silenced(head_set):` instead"
            )
        if self.running is not None or in_backward():
            return
        self.running = module
        for tap in self.taps:
            tap.next = 0
        for edit in self.edits:
            edit.start({**dict(zip(self.entries[module], args, strict=False)), **kwargs})

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        if self.running is module:
            self.running = None

    def _hook_of(self, tap: Tap) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> Any:
            tap.fired = True
            site = tap.called()
            if not self.edits or site is None:
                return None
            x = args[0]
            for edit in self.edits:
                x = edit.at(site, x)
            return (x, *args[1:])

        return hook


def entries_of(model: nn.Module) -> list[nn.Module]:
    """The modules through which a pass may come in: the model, what PEFT wraps, the body of a task model, an encoder on its own."""
    root: Any = root_of(model)
    found = [model, root]
    if hasattr(root, "base_model"):
        found.append(root.base_model)
    if hasattr(root, "get_encoder") and root.config.is_encoder_decoder:
        found.append(root.get_encoder())
    return [
        entry for i, entry in enumerate(found) if isinstance(entry, nn.Module) and all(entry is not other for other in found[:i])
    ]


def in_backward() -> bool:
    """Whether autograd is running: what runs forward then is gradient checkpointing repeating a layer."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def _remember(tap: Tap) -> Any:
    """Gradient checkpointing repeats shared layers during the backward pass, last first: a layer's input, which the
    checkpoint keeps alive, tells which of the calls is being repeated."""

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.compiler.is_compiling():
            return
        hidden = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        if hidden is None:
            return
        if in_backward():
            tap.next = tap.by_input[hidden.data_ptr()]
        else:
            tap.by_input[hidden.data_ptr()] = tap.next

    return hook
