"""Paths of data in settings and recipes."""

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo


def _existing(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, str | Path):
        return value  # pydantic's own message says what is allowed
    path = placed(value, info)
    if not os.path.exists(path):  # pathlib's own raises where a name is too long
        near: list[str] = []
        if os.path.isdir(path.parent):
            near = get_close_matches(path.name, os.listdir(path.parent), n=1)
        raise ValueError("; there is ".join([f"looked for {path}, which does not exist", *near]))
    return str(path)


def placed(value: str | Path, info: ValidationInfo) -> Path:
    """A path; a relative one starts at the recipe's folder, or at the current one if `--set` gave it or there
    is no recipe."""
    context = info.context or {}
    base = context.get("base", Path())
    # texts, not fields, are known as typed: pydantic does not say which field it reads
    if str(value) in context.get("typed", ()):
        base = Path()
    return Path(os.path.normpath(base / os.path.expanduser(value))).absolute()


DataPath = Annotated[Path, BeforeValidator(_existing)]
"""A file or folder that must exist, relative to the recipe or the current folder; counts by its content."""
