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
    """One projection module: its sites in the order of its calls, and which call comes next."""

    def __init__(self, module: nn.Module, sites: Sequence[Site], block: nn.Module | None) -> None:
        self.module, self.sites, self.block = module, tuple(sites), block
        self.next = 0
        self.fired = False
        self.by_input: dict[int, int] = {}  # address of a shared layer's input -> its first call number, for recomputation


class Taps:
    """All taps of a model."""

    def __init__(self, model: nn.Module, sites: Sequence[Site]) -> None:
        self.model, self.root = model, root_of(model)
        paths = dict.fromkeys(site.path for site in sites)
        self.taps = [_tap(model, [site for site in sites if site.path == path]) for path in paths]
        self.edits: list[Edit] = []
        self.handles: list[RemovableHandle] = []
        self.installed = False
        self.signature = inspect.signature(self.root.forward)

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
            HeadsDidNotFire: on leaving, if no pass reached one of the sites in `must_fire`.
        """
        self._hook()
        outer = [tap.fired for tap in self.taps]
        for tap in self.taps:
            tap.fired = False
        self.edits.append(edit)
        try:
            yield
            self._check_fired(must_fire)
        finally:
            self.edits.remove(edit)
            for tap, before in zip(self.taps, outer, strict=True):
                tap.fired = tap.fired or before
            self._unhook()

    def _check_fired(self, must_fire: Sequence[Site]) -> None:
        paths = {site.path for site in must_fire}
        silent = [tap.sites[0].path for tap in self.taps if not tap.fired and tap.sites[0].path in paths]
        if silent and len(silent) == len(paths):
            raise HeadsDidNotFire(
                f"no forward pass reached the heads inside this block (first silent site: {silent[0]}), so nothing was gated. "
                "Run the model that Heads was built on; if it was compiled, call heads.install() before torch.compile"
            )

    def _hook(self) -> None:
        if self.handles:
            return
        self.handles.append(self.root.register_forward_pre_hook(self._start, with_kwargs=True))
        for tap in self.taps:
            self.handles.append(tap.module.register_forward_pre_hook(self._hook_of(tap)))
            if tap.block is not None:
                self.handles.append(tap.block.register_forward_pre_hook(_remember(tap), with_kwargs=True))

    def _unhook(self) -> None:
        if not self.installed and not self.edits:
            for handle in self.handles:
                handle.remove()
            self.handles.clear()

    def _start(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs.get("head_mask") is not None:
            raise HeadwiseError(
                "head_mask= was passed to the model, which transformers 5 ignores without a word: "
                "use `with heads.gated(gates):` or `with heads.silenced(head_set):` instead"
            )
        for tap in self.taps:
            tap.next = 0
            tap.by_input.clear()
        if self.edits:
            arguments = self.signature.bind_partial(*args, **kwargs).arguments
            for edit in self.edits:
                edit.start(arguments)

    def _hook_of(self, tap: Tap) -> Any:
        single = tap.sites[0] if len(tap.sites) == 1 else None

        def hook(module: nn.Module, args: tuple[Any, ...]) -> Any:
            tap.fired = True
            if not self.edits:
                if single is None:
                    tap.next += 1
                return None
            site = single if single is not None else _called(tap)
            x = args[0]
            for edit in self.edits:
                x = edit.at(site, x)
            return (x, *args[1:])

        return hook


def _tap(model: nn.Module, sites: Sequence[Site]) -> Tap:
    shared = len(sites) > 1
    block = model.get_submodule(sites[0].layer_path) if shared and sites[0].layer_path else None
    return Tap(model.get_submodule(sites[0].path), sites, block)


def _called(tap: Tap) -> Site:
    """Which site the present call of a shared module is."""
    if tap.next >= len(tap.sites):
        raise HeadwiseError(
            f"{tap.sites[0].path} was called more often than the {len(tap.sites)} times seen when Heads was built: "
            "run the whole model, not its layers, inside this block"
        )
    tap.next += 1
    return tap.sites[tap.next - 1]


def _remember(tap: Tap) -> Any:
    """Gradient checkpointing runs shared layers again during the backward pass, last first: a layer's input, which the
    checkpoint keeps alive, tells which of the calls is being repeated."""

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hidden = next((a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)), None)
        if hidden is None:
            return
        if torch._C._current_graph_task_id() != -1:  # inside a backward pass
            tap.next = tap.by_input[hidden.data_ptr()]
        elif torch.is_grad_enabled():
            tap.by_input[hidden.data_ptr()] = tap.next

    return hook
