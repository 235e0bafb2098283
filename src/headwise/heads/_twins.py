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
from operator import is_
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import CallableProxyType, ProxyType, ref

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from headwise.heads._hooks import COPIER, FLAGS, KINDS, hook_numbers, is_ours

NUMBERS = (bool, int, float, complex, str, bytes, type(None), range, slice)
TORCH_NUMBERS = (torch.dtype, torch.device, torch.Size, torch.layout, torch.Generator)
ATOMS = {*NUMBERS, *TORCH_NUMBERS, type, BuiltinFunctionType, ModuleType}
LISTS = (list, tuple, set, frozenset, deque)
DICTS = (dict, OrderedDict, defaultdict)
CALLED = (FunctionType, MethodType, partial)
# What `torch.compile` puts on the module that it wraps another in
COMPILED = ("forward", "_forward", "dynamo_ctx")
# Classes of objects that are copied if they hold on to modules
COPIED = ("headwise.", "torch.nn.modules.module._WrappedHook")
TABLES = frozenset(name for name, table in vars(nn.Module()).items() if isinstance(table, dict | set))


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
        # By id: an original, held so that its id stays its own, and its twin
        self._twins: dict[int, tuple[Any, Any]] = {}
        self._unbound: dict[int, Any] = {}  # by id, what holds on to no module

    def holds(self, module: nn.Module) -> bool:
        """Whether a module belongs to the models."""
        return id(module) in self._tree

    def twin(self, value: Any) -> Any:
        """The twin of a value; the value itself, if it holds on to none of the modules.

        Raises:
            Bound: it cannot have one.
        """
        kind = type(value)
        if kind in ATOMS:
            return value
        if id(value) in self._twins:
            return self._twins[id(value)][1]
        if isinstance(value, nn.Parameter):
            return self._parameter(value)
        if isinstance(value, Tensor):
            return value
        if kind in (ProxyType, CallableProxyType):
            raise Bound(f"a proxy of a {value.__class__.__name__}")
        if isinstance(value, nn.Module):
            return self._module(value)
        if kind in DICTS:
            return self._dict(value)
        if kind in LISTS:
            return self._list(value)
        if kind is MethodType:
            owner = self.twin(value.__self__)
            if owner is value.__self__:
                return value
            return self._keep(value, MethodType(value.__func__, owner))
        if kind is partial:
            call = partial(self.twin(value.func), *self.twin(value.args), **self.twin(value.keywords))
            vars(call).update(self.twin(vars(value)))
            return self._keep(value, call)
        if kind is ref:
            target = value()
            if not isinstance(target, nn.Module) or self.twin(target) is target:
                return value
            return self._keep(value, ref(self.twin(target)))
        if isinstance(value, PreTrainedConfig):
            return self._config(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name.startswith(COPIED):
            return self._object(value) if self._refers(value, configured=True) else value
        if self._refers(value):
            raise Bound(f"a {name}")
        return value

    def _keep(self, value: Any, twin: Any) -> Any:
        self._twins[id(value)] = value, twin
        return twin

    def _dict(self, value: Any) -> Any:
        twin: Any = self._keep(value, value.copy())
        twin.clear()
        for key, member in list(value.items()):  # a list at once: another thread may be adding to it
            twin[self.twin(key)] = self.twin(member)
        return twin

    def _list(self, value: Any) -> Any:
        if isinstance(value, list):
            twin = self._keep(value, [])
            twin.extend(map(self.twin, list(value)))
            return twin
        members = list(value)
        twins = list(map(self.twin, members))
        if isinstance(value, deque):
            return self._keep(value, deque(twins, value.maxlen))
        if not isinstance(value, set) and all(map(is_, twins, members)):
            return value
        return self._keep(value, type(value)(twins))

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
        """A configuration of its own, since attention is switched there; what it holds is shared but for the
        configurations in it."""
        twin: PreTrainedConfig = self._keep(value, object.__new__(type(value)))
        for name, member in list(vars(value).items()):
            if isinstance(member, PreTrainedConfig):
                member = self.twin(member)
            vars(twin)[name] = member
        return twin

    def _object(self, value: Any) -> Any:
        """An object of ours, as `copy.deepcopy` makes one."""
        twin = self._keep(value, object.__new__(type(value)))
        attributes = dict(vars(value))
        if any("__getstate__" in vars(kind) for kind in type(value).__mro__[:-1]):
            attributes = value.__getstate__()
        state = {name: self.twin(member) for name, member in attributes.items()}
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
                hooks = [(number, hook) for number, hook in list(value.items()) if not is_ours(hook)]
                state[name] = OrderedDict((number, self.twin(hook)) for number, hook in hooks)
            elif getattr(type(value), "headwise", False):  # stands in for a method while a block is open
                if value.before is not None:
                    state[name] = self.twin(value.before)
            else:
                state[name] = self.twin(value)
        for name in FLAGS:
            for number in state[name].keys() - hook_numbers(twin):
                del state[name][number]
        if id(module) in self._tree:
            state["training"] = False
        if compiled:  # it runs as it is written
            state["forward"] = self.twin(module._modules["_orig_mod"])
        elif "forward" not in state and hasattr(kind.forward, "_torchdynamo_orig_callable"):
            state["forward"] = MethodType(kind.forward._torchdynamo_orig_callable, twin)
        return twin

    def _buffer(self, buffer: Tensor | None) -> Tensor | None:
        if buffer is None or id(buffer) in self._twins:
            return self.twin(buffer)
        copy: Tensor = self._keep(buffer, buffer if buffer.device.type == "meta" else buffer.detach().clone())
        return copy

    def _refers(self, value: Any, configured: bool = False) -> bool:
        """Whether a value, or what it holds on to, is a module of the models (or a configuration, if that
        counts)."""
        waiting = [value]
        seen = {} if configured else self._unbound
        while waiting:
            holder = waiting.pop()
            if type(holder) in ATOMS or id(holder) in seen:
                continue
            if isinstance(holder, Tensor | PreTrainedTokenizerBase):
                continue
            seen[id(holder)] = holder
            if isinstance(holder, nn.Module):
                if id(holder) in self._tree or id(holder) in self._twins:
                    seen.clear()  # what was passed on the way here does refer
                    return True
            elif isinstance(holder, PreTrainedConfig):
                if configured:
                    return True
            elif not isinstance(holder, type):
                waiting += _members(holder)
        return False


def _members(value: Any) -> list[Any]:
    """What a value holds on to."""
    if isinstance(value, dict):
        return [*list(value.keys()), *list(value.values())]
    if isinstance(value, LISTS):
        return list(value)
    if isinstance(value, ref):
        return [value()] if isinstance(value(), nn.Module) else []
    members: list[Any] = []
    if hasattr(value, "__dict__"):
        members += vars(value).values()
    if isinstance(value, FunctionType):
        defaults = value.__kwdefaults__ or {}
        members += [*_enclosed(value), *(value.__defaults__ or ()), *defaults.values()]
    elif isinstance(value, MethodType):
        members += [value.__self__, value.__func__]
    elif isinstance(value, partial):
        members += [value.func, value.args, value.keywords]
    else:
        for kind in type(value).__mro__:
            members += [getattr(value, slot) for slot in _slots(kind) if hasattr(value, slot)]
    return members


def _enclosed(function: FunctionType) -> list[Any]:
    """What a function takes from around it: variables of functions; and global ones that may lead to a model,
    which is not all of them: a logger alone leads to every library."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    variables = map(function.__globals__.get, _names(function.__code__))
    return cells + [variable for variable in variables if _leads_on(variable, function)]


def _names(code: CodeType) -> set[str]:
    """Global names and attributes that a function uses, those of functions written inside it too."""
    inside = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names, inside))


def _leads_on(value: Any, function: FunctionType) -> bool:
    """Whether a global value may hold on to modules: by its type, or since its class stands beside the function."""
    return isinstance(value, CALLED + LISTS + DICTS + (nn.Module, ref)) or (
        not isinstance(value, type) and type(value).__module__ == function.__module__
    )


def _slots(kind: type) -> tuple[str, ...]:
    names = vars(kind).get("__slots__", ())
    if isinstance(names, str):
        return (names,)
    return tuple(names)
