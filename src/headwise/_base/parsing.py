"""JSON, TOML and whole numbers from files and requests: whatever is wrong with them is one line that says
where."""

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwise._base.names import shown
from headwise.errors import HeadwiseError

DEEPEST = (
    100  # levels of lists and tables within each other; nothing that headwise reads needs more than a dozen
)
LONGEST = 18  # digits of a whole number


@contextmanager
def reading(path: str | Path, what: str) -> Iterator[None]:
    """Around a library that reads a file: whatever it raises over what the file holds is one line that names
    the file.

    Libraries that read tables, arrays, weights and compressed text each have errors of their own, and a
    hostile file finds more.
    """
    try:
        yield
    except (HeadwiseError, ImportError):
        raise
    except Exception as error:
        raise HeadwiseError(
            f"{path} could not be read as {what}: {type(error).__name__}: {one_line(error)}"
        ) from error


def parse_json(content: str | bytes, where: str, unique: bool = False) -> Any:
    """A JSON value.

    Args:
        content: the text.
        where: what it is, for messages.
        unique: whether an object may hold a name but once; otherwise the last value counts, as in all of
            JSON.

    Raises:
        HeadwiseError: it is not UTF-8, not JSON, nested too deeply, or holds a number that is too long, or a
            name twice.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise HeadwiseError(
                f"{where} has the name {shown(twice)} twice in one object: rename or remove all but one"
            )
        return table

    try:
        text = _decoded(content)
        value = json.loads(text, object_pairs_hook=once if unique else None)
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError as error:  # of decoding, of JSON, of a number of thousands of digits
        raise HeadwiseError(f"{where} is not valid JSON: {one_line(error)}") from None
    if text.count("[") + text.count("{") > DEEPEST:
        _check_depth(value, where)
    return value


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object that a file of headwise holds.

    Raises:
        HeadwiseError: it cannot be read, or is not a whole JSON object.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise HeadwiseError(f"{path} cannot be read: {error.strerror or error}") from None
    value = parse_json(content, str(path))
    if not isinstance(value, dict):
        raise HeadwiseError(f"{path} is damaged: it holds no JSON object")
    return value


def parse_toml(content: str | bytes, where: str) -> dict[str, Any]:
    """TOML tables.

    Raises:
        HeadwiseError: it is not UTF-8, not TOML, nested too deeply, or holds a number that is too long.
    """
    try:
        value = tomllib.loads(_decoded(content).replace("\r\n", "\n"))
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError as error:
        raise HeadwiseError(f"{where} is not valid TOML: {one_line(error)}") from None
    _check_depth(value, where)
    return value


def whole_number(text: str) -> int | None:
    """The number that decimal digits 0 to 9 write, at most 18 of them; None for anything else ("²" and "٣"
    are digits too)."""
    if text.isascii() and text.isdigit() and len(text) <= LONGEST:
        return int(text)
    return None


def one_line(error: BaseException) -> str:
    """What an error says, its first line, cut where it is long; its type where it says nothing."""
    text = str(error).encode("utf-8", "backslashreplace").decode()  # it may quote half a character
    lines = text.strip().splitlines() or [type(error).__name__]
    return lines[0][:200].rstrip(" .:")


def _decoded(content: str | bytes) -> str:
    """Text without the mark with which some editors begin a file."""
    if isinstance(content, bytes):
        return content.decode("utf-8-sig")
    return content.removeprefix("\ufeff")


def _too_deep(where: str) -> HeadwiseError:
    return HeadwiseError(
        f"{where} is nested too deeply: more than {DEEPEST} levels of lists or tables within each other"
    )


def _check_depth(value: Any, where: str) -> None:
    level = [value]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for nested in level:
            if isinstance(nested, dict):
                inner += nested.values()
            elif isinstance(nested, list):
                inner += nested
        level = inner
        if not level:
            return
    raise _too_deep(where)
