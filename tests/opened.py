"""Counts the files that a block opens: what is quick because it does little is tested by how little it does, not by a clock."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_lists: list[list[str]] = []
_hooked: list[bool] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _lists and isinstance(arguments[0], str):
        for paths in _lists:
            paths.append(arguments[0])


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """The paths that Python opens inside the block, in order; modules that are imported then are left out."""
    if not _hooked:
        sys.addaudithook(_note)  # an audit hook stays for ever: one, with nothing to do outside of blocks
        _hooked.append(True)
    paths: list[str] = []
    _lists.append(paths)
    try:
        yield paths
    finally:
        _lists.remove(paths)
        paths[:] = [path for path in paths if not path.endswith((".py", ".pyc"))]
