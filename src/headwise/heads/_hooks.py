"""Hooks that a copy of the model does not take along, and that other threads may meet while they are taken
off."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

COPIER = "__deepcopy__"
KINDS = ("_forward_pre_hooks", "_forward_hooks")
FLAGS = ("_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")


class Hooks:
    """Hooks on the modules of a model, set together and taken off together."""

    def __init__(self) -> None:
        self._set: list[tuple[nn.Module, RemovableHandle]] = []

    def __bool__(self) -> bool:
        return bool(self._set)

    def before(self, module: nn.Module, hook: Callable[..., Any], with_kwargs: bool = False) -> None:
        """Calls `hook(module, args)`, or `hook(module, args, kwargs)`, before each call of `module`.

        A hook with kwargs must do without them: torch leaves them out if another thread takes the hook off at
            that moment.
        """
        self._keep(module, hook, module.register_forward_pre_hook(_ours(hook), with_kwargs=with_kwargs))

    def after(self, module: nn.Module, hook: Callable[..., Any], always: bool = False) -> None:
        """Calls `hook(module, args, output)` after each call of `module`; `always`: after one that raised,
        too."""
        self._keep(module, hook, module.register_forward_hook(_ours(hook), always_call=always))

    def _keep(self, module: nn.Module, hook: Callable[..., Any], handle: RemovableHandle) -> None:
        self._set.append((module, handle))
        if COPIER not in vars(module) and not hasattr(type(module), COPIER):
            vars(module)[COPIER] = partial(_copied, module)

    def remove(self) -> None:
        """Takes them all off."""
        for module, handle in self._set:
            handle.remove()
            left = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
            if not left or not any(map(is_ours, left)):
                vars(module).pop(COPIER, None)
        self._set.clear()


def _ours(hook: Callable[..., Any]) -> Callable[..., Any]:
    hook.headwise = True  # type: ignore[attr-defined]
    return hook


def is_ours(hook: Any) -> bool:
    """Whether a hook is one of a block, which ends by itself."""
    return getattr(hook, "headwise", False) is True


def hook_numbers(module: nn.Module) -> set[int]:
    """The numbers under which torch keeps a module's hooks on its calls."""
    return {number for kind in KINDS for number in getattr(module, kind)}


def drop_new_hooks(module: nn.Module, numbers: set[int]) -> None:
    """Takes off the hooks that are not among `numbers`, but for those of blocks, which end by themselves."""
    new = {
        number
        for kind in KINDS
        for number, hook in getattr(module, kind).items()
        if number not in numbers and not is_ours(hook)
    }
    for kind in (*KINDS, *FLAGS) if new else ():
        for number in new:
            getattr(module, kind).pop(number, None)


def _copied(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """What `deepcopy` makes of a module while it has hooks of ours: the same without them."""
    state = {name: value for name, value in vars(module).items() if name != COPIER and not is_ours(value)}
    gone = set()
    for kind in KINDS:
        gone |= {number for number, hook in state[kind].items() if is_ours(hook)}
    for kind in (*KINDS, *FLAGS):
        state[kind] = type(state[kind])(
            (number, value) for number, value in state[kind].items() if number not in gone
        )
    copy = type(module).__new__(type(module))
    memo[id(module)] = copy
    copy.__setstate__(deepcopy(state, memo))  # type: ignore[no-untyped-call]
    return copy
