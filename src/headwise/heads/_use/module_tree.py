"""The module tree of a model: the ways to its projections, which must stay as they were found, and where passes come in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from headwise.errors import HeadwiseError
from headwise.heads._inputs import root_of


class Tree:
    """The modules on the ways from a model to some paths in it."""

    def __init__(self, model: nn.Module, paths: Sequence[str]) -> None:
        self.model = model
        self.steps = list({step[-1]: step for path in paths for step in _way(model, path)}.values())

    def check(self) -> None:
        """Raises a HeadwiseError if a module is no longer the one it was (adapters replace projections); a few microseconds."""
        for parent, name, child, path in self.steps:
            now: Any = parent._modules.get(name)
            if now is child:
                continue
            if getattr(now, "_orig_mod", None) is not child:  # else compiled in its place
                raise HeadwiseError(
                    f"{path} of this {type(root_of(self.model)).__name__} was a {_name(child)} when its heads were found, and now it is "
                    f"{'gone' if now is None else f'another, a {_name(now)}'}: adapters were added or taken out, or a layer was replaced. "
                    "Gates would reach only part of the model: build Heads(model) again"
                )


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
