"""Public names of a room, imported when first used: importing headwise costs nothing of torch, transformers or pydantic."""

import ast
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def lazily(package: str) -> tuple[Callable[[str], Any], list[str]]:
    """`__getattr__` and `__all__` of a room: the names that its `__init__` imports `if TYPE_CHECKING` as themselves (`x as x`).

    Args:
        package: the room's module.
    """
    loader: Any = getattr(sys.modules[package].__spec__, "loader", None)
    where = {
        alias.name: str(node.module)
        for block in ast.parse(loader.get_source(package)).body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if where[name] == package:  # a folder of this room
            return import_module(f"{package}.{name}")
        return getattr(sys.modules.get(where[name]) or import_module(where[name]), name)

    return get, sorted(where)


class ByName(Mapping[str, T]):
    """Objects by name, each imported when it is asked for; asking for names imports nothing.

    Args:
        names: in their order.
        get: gives the object of a name.
    """

    def __init__(self, names: Collection[str], get: Callable[[str], T]) -> None:
        self._names, self._get = names, get

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        return self._get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
