"""A twin of a model: new module objects around the same tensors, in evaluation mode, with frozen weights if
that is asked for.

A model is read by running its twin, so that nothing of the model itself is switched: its mode,
`requires_grad`, hooks and attributes are its user's, and other threads may be training it. Parameters share
their memory; buffers, which a pass may write into, are copied.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import CallableProxyType, ProxyType, ref

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from headwise.heads._hooks import COPIER, FLAGS, KINDS, is_ours

NUMBERS = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    range,
    slice,
    torch.dtype,
    torch.device,
    torch.Size,
    torch.layout,
)
ATOMS = frozenset((*NUMBERS, type, BuiltinFunctionType, ModuleType, torch.Generator))
LISTS = (list, tuple, set, frozenset, deque)
DICTS = (dict, OrderedDict, defaultdict)
# What `torch.compile` puts on the module that it wraps another in
COMPILED = ("forward", "_forward", "dynamo_ctx")
# Classes of objects that are copied if they hold on to modules
COPIED = ("headwise.", "torch.nn.modules.module._WrappedHook")


class Bound(Exception):
    """Something that a twin cannot have of its own holds on to modules of the model: a pass of the twin would
    run those."""


class Twins:
    """Makes twins of models, of `Heads` and of what else belongs to them; what they share, their twins share.

    Args:
        models: whose modules are in evaluation mode in their twins; others that they refer to keep their
            mode.
        frozen: whether no weight of the twins asks for a gradient. Else each asks as its own does, since
            torch rounds some products with it differently then, without gradients too.
    """

    def __init__(self, models: Iterable[nn.Module], frozen: bool = False) -> None:
        self._frozen = frozen
        self._tree = {id(module) for model in models for module in model.modules()}
        # By id, what there is a twin of, kept so that its id stays its own; the twin
        self._made: dict[int, tuple[Any, Any]] = {}
        self._plain: dict[int, Any] = {}  # by id, what holds on to no module

    def holds(self, module: nn.Module) -> bool:
        """Whether a module belongs to the models."""
        return id(module) in self._tree

    def of(self, value: Any) -> Any:
        """The twin of a value; the value itself, if it holds on to none of the modules.

        Raises:
            Bound: it cannot have one.
        """
        kind = type(value)
        if kind in ATOMS:
            return value
        if id(value) in self._made:
            return self._made[id(value)][1]
        if isinstance(value, Tensor):
            return self._parameter(value) if isinstance(value, nn.Parameter) else value
        if kind in (ProxyType, CallableProxyType):
            raise Bound(f"a proxy of a {value.__class__.__name__}")
        if isinstance(value, nn.Module):
            return self._module(value)
        if kind in DICTS or kind in LISTS:
            return self._container(value)
        if kind is MethodType:
            owner = self.of(value.__self__)
            return value if owner is value.__self__ else self._keep(value, MethodType(value.__func__, owner))
        if kind is partial:
            inner = self.of(value.func), self.of(value.args), self.of(value.keywords)
            made = partial(inner[0], *inner[1], **inner[2])
            vars(made).update(self.of(vars(value)))
            return self._keep(value, made)
        if kind is ref:
            made = self.of(value()) if isinstance(value(), nn.Module) else value()
            return value if made is value() else self._keep(value, ref(made))
        if isinstance(value, PreTrainedConfig):
            return self._config(value)
        if f"{kind.__module__}.{kind.__qualname__}".startswith(COPIED):
            return self._object(value) if self._refers(value, configured=True) else value
        if self._refers(value):
            raise Bound(f"a {kind.__module__}.{kind.__qualname__}")
        return value

    def _keep(self, value: Any, twin: Any) -> Any:
        self._made[id(value)] = value, twin
        return twin

    def _container(self, value: Any) -> Any:
        if isinstance(value, dict):
            twin: Any = self._keep(value, value.copy())
            twin.clear()
            for key, item in list(value.items()):  # a list at once: another thread may be adding to it
                twin[self.of(key)] = self.of(item)
            return twin
        if isinstance(value, list):
            listed = self._keep(value, [])
            listed.extend(map(self.of, list(value)))
            return listed
        items = list(value)
        twins = list(map(self.of, items))
        if isinstance(value, tuple | frozenset) and all(
            one is other for one, other in zip(items, twins, strict=True)
        ):
            return value
        return self._keep(
            value, deque(twins, value.maxlen) if isinstance(value, deque) else type(value)(twins)
        )

    def _parameter(self, value: nn.Parameter) -> Any:
        if type(value) is not nn.Parameter and not value.is_floating_point():
            # Packed weights: more than their numbers, and they never ask for gradients
            return self._keep(value, value)
        try:
            # torch gives inference tensors no gradients
            asks = value.requires_grad and not (self._frozen or value.is_inference())
            twin = nn.Parameter(value.detach(), requires_grad=asks)
        except (NotImplementedError, TypeError) as error:
            raise Bound(f"weights of type {type(value).__name__}") from error
        vars(twin).update(vars(value))
        return self._keep(value, twin)

    def _config(self, value: PreTrainedConfig) -> PreTrainedConfig:
        """Of its own, since attention is switched there; what it holds is shared but for configurations of
        parts."""
        twin: PreTrainedConfig = self._keep(value, object.__new__(type(value)))
        for name, item in list(vars(value).items()):
            vars(twin)[name] = self.of(item) if isinstance(item, PreTrainedConfig) else item
        return twin

    def _object(self, value: Any) -> Any:
        """Of an object of ours, as `copy.deepcopy` makes one."""
        twin = self._keep(value, object.__new__(type(value)))
        custom = any("__getstate__" in vars(kind) for kind in type(value).__mro__[:-1])
        state = {
            name: self.of(item)
            for name, item in (value.__getstate__() if custom else dict(vars(value))).items()
        }
        if hasattr(twin, "__setstate__"):
            twin.__setstate__(state)
        else:
            vars(twin).update(state)
        return twin

    def _module(self, module: nn.Module) -> nn.Module:
        kind = type(module)
        if "_hf_hook" in vars(module):
            raise Bound(
                "accelerate's hooks, which bring weights to where they are used and take them away again"
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise Bound("a compiled script, whose modes lie in C++")
        twin: nn.Module = self._keep(module, object.__new__(kind))
        state, compiled = vars(twin), "dynamo_ctx" in vars(module)
        for name, value in list(vars(module).items()):
            if type(value) in ATOMS:
                state[name] = value
            elif name in TABLES and not value:  # most are empty
                state[name] = value.copy()
            elif name in (COPIER, "_compiled_call_impl") or (compiled and name in COMPILED):
                continue
            elif name == "_buffers":
                state[name] = {key: self._buffer(buffer) for key, buffer in list(value.items())}
            elif name in KINDS:
                state[name] = OrderedDict(
                    (n, self.of(hook)) for n, hook in list(value.items()) if not is_ours(hook)
                )
            elif getattr(type(value), "headwise", False):  # stands in for a method while a block is open
                if value.before is not None:
                    state[name] = self.of(value.before)
            else:
                state[name] = self.of(value)
        for name in FLAGS:
            if state[name]:
                state[name] = OrderedDict(
                    (n, flag) for n, flag in state[name].items() if n in _numbers(state)
                )
        if id(module) in self._tree:
            state["training"] = False
        if compiled:  # it runs as it is written
            state["forward"] = self.of(module._modules["_orig_mod"])
        elif (
            written := getattr(kind.forward, "_torchdynamo_orig_callable", None)
        ) is not None and "forward" not in state:
            state["forward"] = MethodType(written, twin)
        return twin

    def _buffer(self, buffer: Tensor | None) -> Tensor | None:
        if buffer is None or id(buffer) in self._made:
            return None if buffer is None else self._made[id(buffer)][1]
        copied: Tensor = self._keep(
            buffer, buffer if buffer.device.type == "meta" else buffer.detach().clone()
        )
        return copied

    def _refers(self, value: Any, configured: bool = False) -> bool:
        """Whether a value, or what it holds on to, is a module of the models (or their configuration, if
        asked)."""
        waiting, seen = [value], {} if configured else self._plain
        while waiting:
            one = waiting.pop()
            kind = type(one)
            if kind in ATOMS or id(one) in seen or isinstance(one, Tensor | PreTrainedTokenizerBase):
                continue
            seen[id(one)] = one
            if isinstance(one, nn.Module):
                if id(one) in self._tree or id(one) in self._made:
                    seen.clear()  # what was passed on the way here does refer
                    return True
            elif isinstance(one, PreTrainedConfig):
                if configured:
                    return True
            elif isinstance(one, type):
                continue
            else:
                waiting += _held(one)
        return False


TABLES = frozenset(name for name, value in vars(nn.Module()).items() if isinstance(value, dict | set))


def _numbers(state: dict[str, Any]) -> set[int]:
    return {number for kind in KINDS for number in state[kind]}


def _held(value: Any) -> list[Any]:
    """What a value holds on to."""
    if isinstance(value, dict):
        return [*list(value.keys()), *list(value.values())]
    if isinstance(value, LISTS):
        return list(value)
    if isinstance(value, ref):
        return [target] if isinstance(target := value(), nn.Module) else []
    held: list[Any] = list(vars(value).values()) if hasattr(value, "__dict__") else []
    if isinstance(value, FunctionType):
        return [*held, *_enclosed(value), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if isinstance(value, MethodType):
        return [*held, value.__self__, value.__func__]
    if isinstance(value, partial):
        return [*held, value.func, value.args, value.keywords]
    slots = [slot for kind in type(value).__mro__ for slot in _slots(kind)]
    return [*held, *(getattr(value, slot) for slot in slots if hasattr(value, slot))]


def _enclosed(function: FunctionType) -> list[Any]:
    """What a function takes from around it: variables of functions, and global ones that are modules of
    torch."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    world = function.__globals__
    return cells + [
        world[name] for name in function.__code__.co_names if isinstance(world.get(name), nn.Module)
    ]


def _slots(kind: type) -> tuple[str, ...]:
    names = vars(kind).get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(names)
