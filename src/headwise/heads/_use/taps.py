"""Hooks on the projections of a model, and the stack of edits they apply.

A tap is one pre-hook per projection module. While any block is open (or after `install`), each call of a
projection runs its input through the edits of the blocks that are open in its thread, oldest first, so blocks
nest. Passes of other threads go by untouched.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from headwise.errors import HeadwiseError
from headwise.heads._errors import HeadsDidNotFire
from headwise.heads._hooks import Hooks, anything_compiled, eagerly, forget_compiled
from headwise.heads._sites import Site
from headwise.heads._use.blocks import (
    Block,
    Edit,
    Here,
    aside,
    check_readable,
    holding,
    in_backward,
    opened,
    opened_on,
)
from headwise.heads._use.module_tree import Tree, drops_layers, entries_of, positional_names
from headwise.heads._use.repetition import Repetition, unknown_pass, watch_backward
from headwise.heads._use.soft_prompts import text_arguments


class Tap:
    """One projection module: which site each of its calls is."""

    def __init__(self, model: nn.Module, sites: Sequence[Site]) -> None:
        self.sites, self.path = {site.call: site for site in sites}, sites[0].path
        self.module = model.get_submodule(self.path)
        self.n_calls = sites[0].n_calls
        self.repetition = Repetition(self.path, model.get_submodule(sites[0].layer_path))

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


def taps_on(module: nn.Module) -> list[tuple[Taps, Tap]]:
    """Every `Heads` of a model that has a hook on a projection, first the one whose hook torch calls first;
    it acts for all, and their blocks act in the order they were opened in."""
    return [hook.tap for hook in module._forward_pre_hooks.values() if hasattr(hook, "tap")]


class Taps:
    """All taps of a model."""

    def __init__(self, model: nn.Module, sites: Sequence[Site]) -> None:
        self.model = model
        by_path: dict[str, list[Site]] = {}
        for site in sites:
            by_path.setdefault(site.path, []).append(site)
        self.taps = [Tap(model, calls) for calls in by_path.values()]
        self.entries = {entry: positional_names(entry, model) for entry in entries_of(model)}
        self.tree = Tree(model, [tap.path for tap in self.taps])
        self._begin()

    def _begin(self) -> None:
        self.installed = False
        self._hooks = Hooks()
        self.live: list[Block] = []  # of all threads
        self._watching = False  # whether every layer's input is remembered
        self._needs = 0  # reasons for hooks besides open blocks: `alone`, `follow`
        self.followed: tuple[Taps, ...] = ()  # whose blocks hold here, too
        self._lock = threading.RLock()
        self._local = threading.local()

    def __getstate__(self) -> dict[str, Any]:  # copies have no blocks open and no hooks
        return {name: vars(self)[name] for name in ("model", "taps", "entries", "tree")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    @property
    def edits(self) -> list[Edit]:
        """The edits open on this model in this thread or task, of whatever `Heads`, oldest first."""
        return [block.edit for block in opened_on(self.modules)]

    @property
    def modules(self) -> set[nn.Module]:
        """The projections, and those of the models that this one is a twin of."""
        modules: set[nn.Module] = set()
        for taps in (self, *self.followed):
            modules.update(tap.module for tap in taps.taps)
        return modules

    def install(self) -> None:
        """Sets the hooks now and keeps them, for `torch.compile`, which ignores hooks that come later."""
        self.tree.check()
        if not self.installed:
            forget_compiled()
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
            self.live.append(block)
            self._hook()
        try:
            with holding(block), nullcontext() if self.installed or not anything_compiled() else eagerly():
                here.blocks = opened(self)
                if len(here.blocks) == 1:
                    here.running, here.calls = None, {}
                yield
                self.tree.check()
                self._check_fired(block, must_fire)
        finally:
            here.blocks = tuple(outer for outer in here.blocks if outer.open)
            with self._lock:
                self.live.remove(block)
                self._unhook()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Sets the blocks open here aside, for a pass of the model as it is."""
        here = self._here()
        before = here.blocks, here.running, here.calls
        here.blocks, here.running, here.calls = (), None, {}
        with self._lock:
            self._needs += 1
            self._hook()
        try:
            with aside(self):
                yield
        finally:
            here.blocks, here.running, here.calls = before
            with self._lock:
                self._needs -= 1
                self._unhook()

    def follow(self, taps: Taps) -> None:
        """From now on blocks of `taps`, those of the model that this one is a twin of, hold for passes of
        this one, too."""
        self.followed = (taps, *taps.followed)
        self._needs += 1
        self._hook()

    def acting(self, edit: Edit) -> bool:
        """Whether `edit` is open in this thread or task: for hooks of its own."""
        return any(block.edit is edit for block in opened(self))

    def _check_fired(self, block: Block, must_fire: Sequence[Site]) -> None:
        """Sites of one stack of layers fire together, unless layers are dropped at random; and some must fire
        at all."""
        stacks = {site.path: site.layer_path.rpartition(".")[0] for site in must_fire}  # by projection
        alive = {stack for path, stack in stacks.items() if block.fired[path]}
        silent = []
        for path, stack in stacks.items():
            if not block.fired[path] and (not alive or stack in alive):
                silent.append(path)
        if silent and not (alive and drops_layers(self.model)):
            heads = f"the heads of {silent[0]}"
            if len(silent) > 1:
                heads += f" and {len(silent) - 1} more"
            raise HeadsDidNotFire(
                f"no forward pass inside this block reached {heads}, so they were not gated or "
                "recorded. Run the model that Heads was built on, in the thread that opened the block; if "
                "it was compiled, call heads.install() before torch.compile"
            )

    def _hook(self) -> None:
        with self._lock:
            if self._hooks:
                return
            for entry in self.entries:
                self._hooks.before(entry, self._start_hook(), with_kwargs=True)
                self._hooks.after(entry, self._end_hook(), always=True)
            for tap in self.taps:
                self._hooks.before(tap.module, self._tap_hook(tap))
                if tap.n_calls > 1:
                    self._watch(tap)

    def _watch_layers(self) -> None:
        """Sets the hooks that recomputation needs, once a pass of any thread could have a backward pass."""
        with self._lock:
            if self._hooks and not self._watching:
                self._watching = True
                for tap in self.taps:
                    if tap.n_calls == 1:
                        self._watch(tap)

    def _watch(self, tap: Tap) -> None:
        for module, hook in tap.repetition.hooks(self):
            self._hooks.before(module, hook, with_kwargs=True)

    def _unhook(self) -> None:
        with self._lock:
            if self.live or self._needs:
                return
            for tap in self.taps:
                tap.repetition.passes.clear()
            if not self.installed:
                self._hooks.remove()
                self._watching = False

    def _here(self) -> Here:
        if not hasattr(self._local, "here"):
            self._local.here = Here()
        here: Here = self._local.here
        return here

    def _here_unless_compiled(self) -> Here | None:
        """`_here`; None for compiled code in a thread that never opened a block."""
        here: Here | None = getattr(self._local, "here", None)
        if here is None and not torch.compiler.is_compiling():
            here = self._here()
        return here

    def _acting_blocks(self, module: nn.Module, tap: Tap, here: Here) -> tuple[Block, ...]:
        """The blocks whose edits a call of `module` goes through."""
        if torch.compiler.is_compiling():
            return here.blocks
        repeating = in_backward()
        if repeating and tap.path in here.repeated:
            return here.repeated[tap.path]
        blocks = opened(self)
        if not blocks and module is not tap.module and vars(module).get("_is_replica"):
            return self._replica_blocks()
        if not blocks and repeating and self.live:
            raise unknown_pass(tap.path)
        return blocks

    def _replica_blocks(self) -> tuple[Block, ...]:
        """The blocks that hold for replicas, which DataParallel runs in threads of its own."""
        blocks = tuple(self.live)
        alike = all(getattr(block.edit, "alike", False) for block in blocks)
        if not alike or len({block.thread for block in blocks}) > 1:
            raise HeadwiseError(
                "under DataParallel one thread at a time may gate a model, with gates (layers, heads) or "
                "means: the replicas see neither whole batches nor their order. Run the model itself, or one "
                "process per device (accelerate)"
            )
        return blocks

    def _start_hook(self) -> Any:
        def start(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
            here = self._here_unless_compiled()
            if not self._watching and not torch.compiler.is_compiling() and torch.is_grad_enabled():
                self._watch_layers()
            if here is None or kwargs is None:
                return
            blocks = here.blocks if torch.compiler.is_compiling() else opened(self)
            if not blocks:
                return
            if kwargs.get("head_mask") is not None:
                raise HeadwiseError(
                    "head_mask= was passed to the model, which transformers 5 silently ignores: "
                    "use `with heads.gated(gates):` or `with heads.silenced(head_set):` instead"
                )
            if here.running is not None or in_backward() or module not in self.entries:
                return
            here.running, here.calls = module, {}
            arguments = {**dict(zip(self.entries[module], args, strict=False)), **kwargs}
            arguments = text_arguments(self.model, module, arguments, blocks)
            for block in blocks:
                block.start(arguments)

        return start

    def _end_hook(self) -> Any:
        def end(module: nn.Module, args: Any, output: Any) -> None:
            here = self._here_unless_compiled()
            if here is not None and here.running is module:
                here.running = None
                blocks = () if torch.compiler.is_compiling() else opened(self)
                for block in blocks:
                    block.end(output)
                if blocks and torch.is_grad_enabled() and self.tree.checkpointed():
                    watch_backward(output, blocks)

        return end

    def _tap_hook(self, tap: Tap) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> Any:
            pairs = [(self, tap)]
            if len(module._forward_pre_hooks) > 1 and not torch.compiler.is_compiling():
                pairs = taps_on(module)
                if pairs[0][0] is not self:
                    return None
            acting: list[tuple[Block, Site]] = []
            for taps, its_tap in pairs:
                acting += taps._acting_edits(module, its_tap)
            if len(pairs) > 1:
                acting.sort(key=lambda pair: pair[0].number)
            if not acting:
                return None
            x = args[0]
            for block, site in acting:
                x = block.edit.apply(site, x)
            return (x, *args[1:])

        hook.tap = self, tap  # type: ignore[attr-defined]
        return hook

    def _acting_edits(self, module: nn.Module, tap: Tap) -> list[tuple[Block, Site]]:
        """The blocks whose edits a call of `module` goes through, and which site it is."""
        here = self._here_unless_compiled()
        if here is None:
            return []
        blocks = self._acting_blocks(module, tap, here)
        if not blocks:
            return []
        if here.running is None and not in_backward():
            check_readable(self.model, tap.path, blocks)
        for block in blocks:
            block.fired[tap.path] = True
        site = tap.called(here)
        if site is None:
            return []
        return [(block, site) for block in blocks]
