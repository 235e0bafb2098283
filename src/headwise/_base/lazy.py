"""Names that are imported when first used: importing headwise costs nothing of torch, transformers or
pydantic.

A room names what it offers once, as imports that type checkers and editors read, and these lines are read
here, too (all rooms: 2 ms). lazy_loader's stubs are read the same way, but are a second file in every room
and know no names that are for other rooms alone; with a plain dict every name would stand twice.
"""

import ast
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, TypeVar, cast

from headwise.errors import HeadwiseError, did_you_mean

T = TypeVar("T")


def lazily(package: str) -> tuple[Callable[[str], Any], list[str]]:
    """`__getattr__` and `__all__` of a room, from what its `__init__` imports `if TYPE_CHECKING`.

    Names imported as themselves (`x as x`) are for users and stand in `__all__`; the others are for other
    rooms alone.

    Args:
        package: the room's module.
    """
    loader: Any = getattr(sys.modules[package].__spec__, "loader", None)
    origins: dict[str, tuple[str, str]] = {}
    public = []
    for module, alias in _deferred_imports(loader.get_source(package)):
        origins[alias.asname or alias.name] = (module, alias.name)
        if alias.asname == alias.name:
            public.append(alias.name)

    def get(name: str) -> Any:
        if name not in origins:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = origins[name]
        if module == package:  # a folder or module of this room
            return import_module(f"{package}.{original}")
        return getattr(sys.modules.get(module) or import_module(module), original)

    return get, sorted(public)


def _deferred_imports(source: str) -> Iterator[tuple[str, ast.alias]]:
    """The module and name of every import that stands under `if TYPE_CHECKING`."""
    for block in ast.parse(source).body:
        if (
            isinstance(block, ast.If)
            and isinstance(block.test, ast.Name)
            and block.test.id == "TYPE_CHECKING"
        ):
            for node in block.body:
                if isinstance(node, ast.ImportFrom):
                    for alias in node.names:
                        yield str(node.module), alias


def resolve(target: str | T) -> T:
    """The object that "module:name" names; an object is itself."""
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    return cast(T, getattr(import_module(module), name))


class Registry(MutableMapping[str, T]):
    """Things of one sort by name; anyone adds to them by one assignment: `METHODS["mine"] = Mine`. Names
    alone import nothing.

    Args:
        sort: what they are, for messages.
        entries: the things of headwise, or "module:name" of those that are imported when asked for.
    """

    def __init__(self, sort: str, entries: Mapping[str, str | T]) -> None:
        self.sort, self._entries = sort, dict(entries)

    def __getitem__(self, name: str) -> T:
        return resolve(self._entries[name])

    def __setitem__(self, name: str, entry: str | T) -> None:
        if name in self._entries:
            raise HeadwiseError(f"there is a {self.sort} {name!r} already: choose another name")
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def check(self, name: str) -> str:
        """The name, if something has it.

        Raises:
            HeadwiseError: nothing has.
        """
        if name not in self:
            raise HeadwiseError(
                f"{self.sort} {name!r} is unknown{did_you_mean(name, self)}; there are: {', '.join(self)}"
            )
        return name
