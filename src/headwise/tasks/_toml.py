"""Tasks as text: one TOML block a task, no code needed.

[reviews]
path = "reviews.csv"
text = "review"
label = "stars"

[glue.rte]
preset = "rte"
path = "data"
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from headwise._base.names import shown
from headwise._base.parsing import parse_toml
from headwise.errors import HeadwiseError, did_you_mean
from headwise.tasks._checks import check_settings
from headwise.tasks._presets import preset
from headwise.tasks._sources import SAVED_SPLITS, SENTENCES, is_saved
from headwise.tasks._tables import TABLES, stem, suffix
from headwise.tasks._task import Task

SETTINGS = tuple(name for name in inspect.signature(Task).parameters if name not in ("name", "data"))


def read_toml(source: str | Path) -> list[Task]:
    """The tasks a TOML file (or TOML text) defines, in its order.

    A table with `path`, `hub`, `preset` or `grammar` is a task, named by its key (`[tasks.reviews]` is "reviews"); its other keys are
    the arguments of `Task`. Relative paths start at the file.

    Args:
        source: a file, or the text itself (anything with a line break).

    Raises:
        HeadwiseError: no TOML, an unknown key (the nearest one is suggested), or no task in it.
    """
    is_text = isinstance(source, str) and "\n" in source
    where = "the TOML text" if is_text else str(source)
    base = Path() if is_text else Path(source).parent
    try:
        content = str(source) if is_text else Path(source).read_bytes()
    except (OSError, ValueError) as error:
        raise HeadwiseError(
            f"the tasks file {where} could not be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    if not is_text and suffix(Path(source)) in TABLES:
        raise HeadwiseError(
            f"{where} holds data; a tasks file is TOML that says where the data is: {table_for(Path(source))}"
        )
    tables = parse_toml(content, where)
    found = [task_of(name, table, base, where) for name, table in _tables(tables)]
    if not found:
        raise HeadwiseError(f"{where} defines no task; a task is a table with path, hub, preset or grammar")
    return found


def table_for(path: Path) -> str:
    """What a tasks file says of a data file, for messages."""
    return f'write a file tasks.toml with the lines [{stem(path)}] and path = "{path.name}", and give it as --tasks-file tasks.toml'


def data_files(source: str | Path, names: Sequence[str]) -> dict[str, Any]:
    """By task, the files that a tasks file reads its data from: of the tasks called `names`, or of all. Files that do not exist are left
    out: reading them says so."""
    found: dict[str, Any] = {}
    for name, table, paths in _paths(source, names):
        found[name] = {
            split: _read_of(place, "preset" in table) for split, place in paths.items() if place.exists()
        }
    return {name: files for name, files in found.items() if files}


def missing_files(source: str | Path, names: Sequence[str]) -> list[Path]:
    """The files and folders that a tasks file reads its data from, and that do not exist."""
    return [place for _, _, paths in _paths(source, names) for place in paths.values() if not place.exists()]


def _paths(
    source: str | Path, names: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Any], dict[str, Path]]]:
    """Name, table and paths by split of the tasks called `names`, or of all."""
    for name, table in _tables(parse_toml(Path(source).read_bytes(), str(source))):
        path = table.get("path")
        places = path if isinstance(path, Mapping) else {"": path}
        if not names or name in names:
            yield (
                name,
                table,
                {
                    split: Path(source).parent / place
                    for split, place in places.items()
                    if isinstance(place, str)
                },
            )


def _read_of(place: Path, whole: bool) -> Any:
    """The files of a folder that a task reads: all of a preset's or of a saved Dataset, else those that hold data."""
    if whole or not place.is_dir() or is_saved(place) or (place / SAVED_SPLITS).is_file():
        return place
    return {file.name: file for file in sorted(place.iterdir()) if suffix(file) in (*TABLES, *SENTENCES)}


def _tables(tables: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, value in tables.items():
        if isinstance(value, Mapping):
            if {"path", "hub", "preset", "grammar"} & set(value):
                yield name, value
            else:
                yield from _tables(value)


def task_of(name: str, table: Mapping[str, Any], base: Path = Path(), where: str = "the table") -> Task:
    """One task of a table of settings."""
    settings = {key: value for key, value in table.items() if value is not None}
    extra = ("preset", "grammar", "size")
    for key in settings:
        if key not in (*SETTINGS, *extra):
            choices = [*SETTINGS, *extra]
            hint = did_you_mean(key, choices) or f"; expected some of {', '.join(choices)}"
            raise HeadwiseError(f"{where}, task {name!r}: unknown key {key!r}{hint}")
    check_settings(name, settings)
    if "path" in settings:
        path = settings["path"]
        settings["path"] = (
            {split: base / file for split, file in path.items()} if isinstance(path, Mapping) else base / path
        )
    if "grammar" in settings:
        others = [key for key in settings if key not in ("grammar", "size", "seed", "metric")]
        if others:
            raise HeadwiseError(
                f"{where}, task {shown(name)}: a grammar task has size, seed and metric, but no {others[0]!r}"
            )
        return synthetic_task(settings.pop("grammar"), **settings).renamed(name)
    if "size" in settings:
        raise HeadwiseError(
            f"{where}, task {shown(name)}: only a grammar task has a size; cut others with splits or max_examples"
        )
    if "preset" in settings:
        return preset(settings.pop("preset"), settings.pop("path", None), **settings).renamed(name)
    return Task(name, **settings)


def synthetic_task(name: str, **settings: Any) -> Task:
    """A task of the synthetic language, whose room lies above this one and is opened by its name."""
    return cast(Task, import_module("headwise.grammar").task(name, **settings))
