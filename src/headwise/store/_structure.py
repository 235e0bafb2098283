"""What a live model computes beside its weights: the classes of its modules, their attributes, the buffers it
does not save, and hooks."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_modules

from headwise.errors import HeadwiseError
from headwise.store._code import digest, is_foreign, name_of
from headwise.store._contents import Contents, passes_by

Parts = dict[str, dict[str, str]]  # part of the structure -> what it holds, by name -> a hash

OF_TORCH = frozenset(vars(nn.Module())) | {
    "forward"
}  # what torch keeps of every module; `forward` is read by itself
HOOKS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
}
EVERYWHERE = [f"_global{name}" for name in HOOKS]  # of all modules of the process
COUNTING = ("torch", "headwise")  # hooks of other libraries move tensors about and collect outputs
OPEN_BLOCKS: list[
    Callable[[nn.Module], bool]
] = []  # ask whether interventions are open on a model in this thread or task


def structure(
    model: nn.Module,
    config: Any = None,
    settled: Mapping[int, Mapping[str, Any]] | None = None,
    leave: frozenset[str] = frozenset(),
    root: bool = True,
) -> Parts:
    """What a model computes beside its weights, in four parts.

    Modes, devices, gradient checkpointing, compilation, the caches and hooks that passes leave behind, and
    hooks of `Heads` do not count.

    Args:
        model: its children count, too.
        config: its configuration, which counts elsewhere.
        settled: values that take the place of a configuration's own, by its `id`.
        leave: names of attributes that something else decides.
        root: whether the attributes of `model` itself count.

    Returns:
        "classes", "attributes", "buffers" and "hooks": each by class, attribute, buffer or kind of hook, so
            that what changed has a name.
    """
    return _Survey(model, config, settled, leave, root).read(model)


def refuse_code(model: nn.Module, contexts: Mapping[str, Any]) -> None:
    """Raises a HeadwiseError if code that no library holds is hooked into a model, or a block of `Heads` is
    open on it."""
    if any(is_open(model) for is_open in OPEN_BLOCKS):
        raise HeadwiseError(
            f"a block (gated, silenced, patched, ...) is open on this {type(model).__name__}, so a result "
            "kept in a folder would be shown again without it: leave the block, or leave out out="
        )
    foreign = next(_code_of_the_users(model, contexts), None)
    if foreign is not None:
        description, where = foreign
        raise HeadwiseError(
            f"code of your own hangs on {where} ({description}): what it does cannot be compared, so a "
            "result kept in a folder would be shown again after it has changed. Take it off "
            "(handle.remove(), or del module.forward), make it a module of the model, or leave out out="
        )


class _Survey:
    """One reading of a model and the modules that its attributes hold."""

    def __init__(
        self,
        model: nn.Module,
        config: Any,
        settled: Mapping[int, Mapping[str, Any]] | None,
        leave: frozenset[str],
        root: bool,
    ) -> None:
        self.paths: dict[int, str] = {}
        self.leave, self.root = leave, root
        names: dict[int, list[str]] = defaultdict(list)
        for name, parameter in model.named_parameters(remove_duplicate=False):
            names[id(parameter)].append(bare(name))
        self.ties = sorted(aliases for aliases in names.values() if len(aliases) > 1)
        self.contents = Contents(
            self._module, {number: min(aliases) for number, aliases in names.items()}, settled
        )
        self.config = self.contents.read(config)

    def read(self, model: nn.Module, prefix: str = "") -> Parts:
        """The structure of a model whose paths begin with `prefix`."""
        listed: dict[str, dict[str, list[Any]]] = {
            aspect: defaultdict(list) for aspect in ("classes", "attributes", "buffers", "hooks")
        }
        modules = list(_walk(model, prefix))
        for path, module in modules:
            self.paths.setdefault(id(module), path)
        for path, module in modules:
            first = self.paths[id(module)]
            kind = type(module)
            if first != path:
                listed["classes"][kind.__name__].append([path, "is", first])
                continue
            listed["classes"][kind.__name__].append([path, self.contents.read(kind)])
            for name, value in _attributes(module, self.leave) if path or self.root else ():
                held = self.contents.read(value)
                if name != "config" or held != self.config:
                    listed["attributes"][name].append([path, held])
            for name, buffer in _unsaved(module):
                listed["buffers"][name].append([path, self.contents.read(buffer)])
            for name, code in _library_code(module):
                ours = name_of(code).startswith(
                    "headwise."
                )  # whose state other parts of the model tell, and passes change
                listed["hooks"][name].append([path, name_of(code) if ours else self.contents.read(code)])
        if self.ties and not prefix:
            listed["classes"]["shared parameters"] = [self.ties]
        hashes: Parts = {}
        for aspect, rows_by_name in listed.items():
            hashes[aspect] = {name: digest(rows) for name, rows in sorted(rows_by_name.items())}
        return hashes

    def _module(self, module: nn.Module) -> Any:
        """A module that an attribute holds: one of the model's own, or another, whose weights `state_dict`
        does not have."""
        module = getattr(module, "_orig_mod", module)
        if id(module) in self.paths:
            return {"module": self.paths[id(module)]}
        from headwise.store._fingerprints import canonical

        held = self.read(module, f"beside {len(self.paths)}: ")
        return {
            "beside": [held, {name: canonical(value) for name, value in sorted(module.state_dict().items())}]
        }


def bare(name: str) -> str:
    """A name without what torch.compile puts into it."""
    return name.replace("_orig_mod.", "")


def is_replaced(name: str) -> bool:
    """Whether this is not a hook but a function in a method's place."""
    return name == "forward"


def _walk(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """All modules with their paths, shared ones once for each path."""
    if type(module).__name__ == "OptimizedModule":
        module = module.get_submodule("_orig_mod")
    yield path, module
    for name, child in module._modules.items():
        if child is not None:
            yield from _walk(child, f"{path}.{name}" if path else name)


def _attributes(module: nn.Module, leave: frozenset[str]) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(module).items()):
        if name in OF_TORCH or name in leave or passes_by(name):
            continue
        if callable(value) and (value := _beneath(value)) is None:
            continue
        yield name, value


def _beneath(function: Any) -> Any:
    """What stood in a method's place before `Heads` put something there for a block; None: the class's
    method."""
    while getattr(function, "headwise", False) is True:
        function = getattr(function, "before", None)
    return function


def _unsaved(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Buffers that `state_dict` leaves out; of rotary embeddings that grow with the text what they began
    with."""
    for name in module._non_persistent_buffers_set:
        buffer = module._buffers.get(name)
        prefix = name.removesuffix("inv_freq")
        original = module._buffers.get(f"{prefix}original_inv_freq") if prefix != name else None
        yield name, original if original is not None and _grown(module, prefix, buffer) else buffer


def _grown(module: Any, prefix: str, buffer: Any) -> bool:
    """Whether a pass, and not the user, has put other frequencies into a rotary embedding: it does for long
    texts."""
    kind = (
        module.rope_type
        if isinstance(getattr(module, "rope_type", ""), str)
        else module.rope_type.get(prefix[:-1], "")
    )
    if kind == "longrope":
        long = getattr(module, f"{prefix}long_inv_freq", None)
        return long is not None and torch.equal(long.to(buffer), buffer)
    return "dynamic" in kind and bool(
        getattr(module, f"{prefix}max_seq_len_cached", module.max_seq_len_cached)
        > module.original_max_seq_len
    )


def _hooks(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """What is called before and after a module or in its place, by kind."""
    for store, kind in HOOKS.items():
        for hook in list(getattr(module, store).values()):  # which other threads may put on and take off
            yield kind, hook
    forward = _beneath(vars(module).get("forward"))
    if forward is not None and hasattr(
        module, "_hf_hook"
    ):  # of accelerate, which moves tensors between devices
        hook = module._hf_hook
        for inner_hook in getattr(hook, "hooks", (hook,)):
            yield "hook of accelerate", inner_hook
        forward = _beneath(module._old_forward)
    if forward is not None and getattr(forward, "__func__", None) is not type(module).forward:
        yield "forward", forward


def _library_code(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for kind, code in _hooks(module):
        lasting = "<locals>" not in name_of(code)  # else of a block or a pass, perhaps of another thread
        if is_replaced(kind) or (name_of(code).startswith(COUNTING) and lasting):
            yield kind, code


def _code_of_the_users(model: nn.Module, contexts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What no library has put there, and where."""
    for store in EVERYWHERE:
        for hook in getattr(torch_modules, store).values():
            if is_foreign(hook):
                yield f"hook {name_of(hook)}", "all modules of torch"
    for path, module in _walk(model, ""):
        for kind, code in _hooks(module):
            if is_foreign(code):
                yield f"{kind} {name_of(code)}", path or type(module).__name__
    for name, parameter in model.named_parameters():
        held = {
            **(parameter._backward_hooks or {}),
            **(getattr(parameter, "_post_accumulate_grad_hooks", None) or {}),
        }
        for hook in held.values():
            if is_foreign(hook):
                yield f"gradient hook {name_of(hook)}", name
    for task, context in contexts.items():
        if is_foreign(context):
            yield f"context {name_of(context)}", f"the passes of task {task!r}"
