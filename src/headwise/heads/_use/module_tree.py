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
        steps: dict[str, tuple[nn.Module, str, nn.Module, str]] = {}
        lists: dict[str, Any] = {}
        for path in paths:
            for parent, name, child, child_path in _way(model, path):
                steps[child_path] = parent, name, child, child_path
                if isinstance(parent, LISTS):
                    lists[child_path.rpartition(".")[0]] = parent
        self.steps = list(steps.values())
        self.lists = [(layers, len(layers), path) for path, layers in lists.items()]

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
                    f"{path} of this {self._family()} had {size} entries when its heads "
                    f"were found, and now it has {len(layers)}: the heads of new layers would be left out. "
                    "Build Heads(model) again"
                )
        for parent, name, child, path in self.steps:
            module: Any = parent._modules.get(name)
            if module is child or getattr(module, "_orig_mod", None) is child:  # compiled in its place
                continue
            if adapters and getattr(module, "base_layer", None) is child:
                continue
            replacement = "gone" if module is None else f"another, a {_name(module)}"
            raise HeadwiseError(
                f"{path} of this {self._family()} was a {_name(child)} when its heads were found, and now it "
                f"is {replacement}: adapters were added or taken out, or a layer was replaced. Gates would "
                "reach only part of the model: build Heads(model) again"
            )

    def _family(self) -> str:
        return type(root_of(self.model)).__name__

    def checkpointed(self) -> bool:
        """Whether gradient checkpointing is on somewhere on these ways."""
        modules = {self.model, *(child for _, _, child, _ in self.steps)}
        return any(vars(module).get("gradient_checkpointing") for module in modules)


def entries_of(model: nn.Module) -> list[nn.Module]:
    """The modules through which a pass may come in: the model, what PEFT wraps, the body of a task model, an
    encoder on its own."""
    root: Any = root_of(model)
    entries = [model, root]
    if hasattr(root, "base_model"):
        entries.append(root.base_model)
    if hasattr(root, "get_encoder") and root.config.is_encoder_decoder:
        entries.append(root.get_encoder())
    return list(dict.fromkeys(entry for entry in entries if isinstance(entry, nn.Module)))


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
    for module in model.modules():
        for owner in (module, getattr(module, "config", None)):
            for name, rate in getattr(owner, "__dict__", {}).items():
                drops = "layerdrop" in name or name == "layer_drop"
                if drops and isinstance(rate, int | float) and rate > 0:
                    return True
    return False


def _way(model: nn.Module, path: str) -> Iterator[tuple[nn.Module, str, nn.Module, str]]:
    """Each step from the model down to a module: parent, name, child, and the path so far."""
    parent, names = model, path.split(".")
    for depth, name in enumerate(names, 1):
        child = parent.get_submodule(name)
        yield parent, name, child, ".".join(names[:depth])
        parent = child


def _name(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"
