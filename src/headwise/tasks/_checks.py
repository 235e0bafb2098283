"""What the arguments of `Task` may be, so that a wrong one in a TOML file or a recipe is named at once and
not met far inside.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headwise._base.names import shown, writable
from headwise.errors import HeadwiseError

Check = tuple[str, Callable[[Any], bool]]  # what is expected, in words, and whether a value is that


def _text(value: Any) -> bool:
    return isinstance(value, str) and writable(value) and "\0" not in value


def _texts(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and all(map(_text, value))


def _table(value: Any, inner: Callable[[Any], bool]) -> bool:
    return isinstance(value, Mapping) and all(map(_text, value)) and all(map(inner, value.values()))


def _path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) and _text(str(value))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


TEXT: Check = ("text", _text)
FLAG: Check = ("true or false", lambda value: isinstance(value, bool))
SEED: Check = (
    "a whole number of at most 64 bits",
    lambda value: type(value) is int and -(2**63) <= value < 2**63,
)
COLUMNS: Check = ("the name of a column, or a list of them", lambda value: _text(value) or _texts(value))
EXPECTED: dict[str, Check] = {
    "path": (
        "a file or folder, or a table of files by split",
        lambda value: _path(value) or _table(value, _path),
    ),
    "text": COLUMNS,
    **dict.fromkeys(
        ("hub", "subset", "revision", "label", "kind", "metric", "split_column", "together", "group"), TEXT
    ),
    "classes": ("a list of texts", _texts),
    "splits": ("a table of texts", lambda value: _table(value, _text)),
    "fractions": ("a table of numbers", lambda value: _table(value, _number)),
    "seed": SEED,
    **dict.fromkeys(("skip_unlabelled", "drop_empty", "skip_bad", "synthetic"), FLAG),
    "reading": ("a table", lambda value: isinstance(value, Mapping) and all(map(_text, value))),
    "preset": TEXT,
    "grammar": TEXT,
    "size": ("a whole number of at most ten million", lambda value: type(value) is int and value <= 10**7),
}
# their defaults are values, so None is not one
NEVER_NONE = ("text", "fractions", "seed", "skip_unlabelled", "drop_empty", "skip_bad", "synthetic")
READING: dict[str, Check] = {"columns": ("a list of texts", _texts), "scheme": TEXT, "mentions": TEXT}


def check_settings(task: str, settings: Mapping[str, Any], expected: Mapping[str, Check] = EXPECTED) -> None:
    """Refuses a value of a type that its setting cannot have; None stands for the default where a setting has
    none of its own.

    Raises:
        HeadwiseError: by task, setting and value.
    """
    for name, value in settings.items():
        if name not in expected or (value is None and name not in NEVER_NONE):
            continue
        description, fits = expected[name]
        if not fits(value):
            raise HeadwiseError(f"task {shown(task)}: {name} is {shown(value)}; expected {description}")
    reading = settings.get("reading") or {}
    for name in reading:
        if name not in READING:
            raise HeadwiseError(
                f"task {shown(task)}: reading has no option {shown(name)}; it has: {', '.join(READING)}"
            )
    if reading:
        check_settings(task, reading, READING)
