"""The module tree of a model: the ways to its projections, which must stay as they were found, and where
passes come in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import Parameter, signature
from typing import Any

from torch import nn

from headwise.errors import HeadwiseError
from headwise.heads._inputs import root_of

LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)  # of layers, to which others may be added


class Tree:
    """The modules on the ways from a model to some paths in it."""

    def __init__(self, model: nn.Module, paths: Sequence[str]) -> None:
        self.model = model
        self.steps = list({step[-1]: step for path in paths for step in _way(model, path)}.values())
        lists = {
            parent: path.rpartition(".")[0] for parent, _, _, path in self.steps if isinstance(parent, LISTS)
        }
        self.lists = [(layers, len(layers), path) for layers, path in lists.items()]

    def check(self, adapters: bool = False) -> None:
        """Looks whether the modules are those that heads were found in; takes a few microseconds.

        Args:
            adapters: allow adapters around them, which replace projections.

        Raises:
            HeadwiseError: a module was replaced, or layers were added.
        """
        for layers, size, path in self.lists:
            if len(layers) != size:
                raise HeadwiseError(
                    f"{path} of this {type(root_of(self.model)).__name__} had {size} entries when its heads "
                    f"were found, and now it has {len(layers)}: the heads of new layers would be left out. "
                    "Build Heads(model) again"
                )
        for parent, name, child, path in self.steps:
            now: Any = parent._modules.get(name)
            if now is child:
                continue
            inside = [getattr(now, "_orig_mod", None), getattr(now, "base_layer", None) if adapters else None]
            if not any(one is child for one in inside):  # else compiled in its place, or adapted
                raise HeadwiseError(
                    f"{path} of this {type(root_of(self.model)).__name__} was a {_name(child)} when its "
                    "heads were found, and now it is "
                    f"{'gone' if now is None else f'another, a {_name(now)}'}: adapters were added or taken "
                    "out, or a layer was replaced. Gates would reach only part of the model: build "
                    "Heads(model) again"
                )

    def checkpointed(self) -> bool:
        """Whether gradient checkpointing is on somewhere on these ways."""
        return any(
            vars(module).get("gradient_checkpointing") for step in self.steps for module in (step[0], step[2])
        )


def entries_of(model: nn.Module) -> list[nn.Module]:
    """The modules through which a pass may come in: the model, what PEFT wraps, the body of a task model, an
    encoder on its own."""
    root: Any = root_of(model)
    found = [model, root]
    if hasattr(root, "base_model"):
        found.append(root.base_model)
    if hasattr(root, "get_encoder") and root.config.is_encoder_decoder:
        found.append(root.get_encoder())
    return [
        entry
        for i, entry in enumerate(found)
        if isinstance(entry, nn.Module) and all(entry is not other for other in found[:i])
    ]


def positional_names(entry: nn.Module, model: nn.Module) -> list[str]:
    """Names of the arguments of a module's forward; those of the model's if it only hands them on (a PEFT
    model without a task)."""
    parameters = signature(entry.forward).parameters
    if any(parameter.kind == Parameter.VAR_POSITIONAL for parameter in parameters.values()):
        parameters = signature(type(root_of(model)).forward).parameters
        return [name for name in parameters if name != "self"]
    return list(parameters)


def drops_layers(model: nn.Module) -> bool:
    """Whether some layers of a model are left out at random while it trains (a setting called layerdrop)."""
    if not model.training:
        return False
    owners = [
        owner
        for module in model.modules()
        for owner in (module, getattr(module, "config", None))
        if hasattr(owner, "__dict__")
    ]
    values = [
        value
        for owner in owners
        for name, value in vars(owner).items()
        if "layerdrop" in name or name == "layer_drop"
    ]
    return any(isinstance(value, int | float) and value > 0 for value in values)


def _way(model: nn.Module, path: str) -> Iterator[tuple[nn.Module, str, nn.Module, str]]:
    """Each step from the model down to a module: parent, name, child, and the path so far."""
    parent, done = model, ""
    for name in path.split("."):
        child = parent.get_submodule(name)
        done = f"{done}.{name}" if done else name
        yield parent, name, child, done
        parent = child


def _name(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"
