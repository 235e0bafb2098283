"""Public names of a room, imported when first used: importing headwise costs nothing of torch, transformers or pydantic."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__`.

    Args:
        package: the room's module.
        where: the module that defines each public name, relative to the room (`"results"`) or not (`"headwise._base.places"`).
    """

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = where[name]
        if not module:
            return import_module(f"{package}.{name}")
        return getattr(import_module(module if module.startswith("headwise.") else f"{package}.{module}"), name)

    return get
