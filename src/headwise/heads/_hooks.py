"""Hooks that a copy of the model does not take along, and that other threads may meet while they are taken
off.

Compiled code (`torch.compile`) knows the hooks that were set when it was made, and no later ones: inside
blocks it runs as it is written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from headwise._base.switches import Switch

COPIER = "__deepcopy__"
KINDS = ("_forward_pre_hooks", "_forward_hooks")
FLAGS = ("_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")


class Hooks:
    """Hooks on the modules of a model, set together and taken off together."""

    def __init__(self) -> None:
        self._handles: list[tuple[nn.Module, RemovableHandle]] = []

    def __bool__(self) -> bool:
        return bool(self._handles)

    def before(self, module: nn.Module, hook: Callable[..., Any], with_kwargs: bool = False) -> None:
        """Calls `hook(module, args)`, or `hook(module, args, kwargs)`, before each call of `module`.

        A hook with kwargs must do without them: torch leaves them out if another thread takes the hook off at
        that moment.
        """
        self._add(module, module.register_forward_pre_hook(_marked(hook), with_kwargs=with_kwargs))

    def after(self, module: nn.Module, hook: Callable[..., Any], always: bool = False) -> None:
        """Calls `hook(module, args, output)` after each call of `module`; `always`: after one that raised,
        too."""
        self._add(module, module.register_forward_hook(_marked(hook), always_call=always))

    def _add(self, module: nn.Module, handle: RemovableHandle) -> None:
        self._handles.append((module, handle))
        if COPIER not in vars(module) and not hasattr(type(module), COPIER):
            vars(module)[COPIER] = partial(_copied, module)

    def remove(self) -> None:
        """Takes them all off."""
        for module, handle in self._handles:
            handle.remove()
            remaining = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
            if not any(map(is_ours, remaining)):
                vars(module).pop(COPIER, None)
        self._handles.clear()


def _marked(hook: Callable[..., Any]) -> Callable[..., Any]:
    hook.headwise = True  # type: ignore[attr-defined]
    return hook


def is_ours(hook: Any) -> bool:
    """Whether a hook is one of a block, which ends by itself."""
    return getattr(hook, "headwise", False) is True


def hook_numbers(module: nn.Module) -> set[int]:
    """The numbers under which torch keeps a module's hooks on its calls."""
    return {*module._forward_pre_hooks, *module._forward_hooks}


def drop_new_hooks(module: nn.Module, numbers: set[int]) -> None:
    """Takes off the hooks that are not among `numbers`, but for those of blocks, which end by themselves."""
    for number in hook_numbers(module) - numbers:
        if not any(is_ours(getattr(module, kind).get(number)) for kind in KINDS):
            for kind in (*KINDS, *FLAGS):
                getattr(module, kind).pop(number, None)


def _copied(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """What `deepcopy` makes of a module while it has hooks of ours: the same without them."""
    state = {name: value for name, value in vars(module).items() if name != COPIER and not is_ours(value)}
    gone = set()
    for kind in KINDS:
        gone |= {number for number, hook in state[kind].items() if is_ours(hook)}
    for kind in (*KINDS, *FLAGS):
        table = state[kind]
        state[kind] = type(table)((number, hook) for number, hook in table.items() if number not in gone)
    copy = type(module).__new__(type(module))
    memo[id(module)] = copy
    copy.__setstate__(deepcopy(state, memo))  # type: ignore[no-untyped-call]
    return copy


def anything_compiled() -> bool:
    """Whether this process has compiled code, of whatever model; where torch does not say, yes."""
    conversion = sys.modules.get("torch._dynamo.convert_frame")
    if conversion is None:
        return False
    input_codes = getattr(conversion, "input_codes", None)
    return bool(getattr(input_codes, "seen", True))


def forget_compiled() -> None:
    """Drops all compiled code of this process, so that it is made again, with the hooks there are now."""
    if anything_compiled():
        torch._dynamo.reset()


def _force_eager() -> Callable[[], object]:
    stance = torch.compiler.set_stance("force_eager")
    return _uncompiled(lambda: stance.__exit__(None, None, None))


def _uncompiled(function: Callable[[], Any]) -> Callable[[], Any]:
    """The function, left alone where code is being compiled: a stance cannot be taken there."""
    plain: Callable[[], Any] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return plain


eagerly = Switch(lambda: _uncompiled(_force_eager)())  # compiled code of this process runs as it is written
