"""Tasks by name, as the command line and recipes give them: presets, synthetic ones, and tables of a TOML
file.

One TOML block a task, no code needed:

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
from headwise.tasks._presets import PRESETS, preset
from headwise.tasks._sources import SAVED_SPLITS, holds_data, is_saved
from headwise.tasks._structured import structured
from headwise.tasks._tables import TABLES, stem, suffix
from headwise.tasks._task import Task

SETTINGS = tuple(name for name in inspect.signature(Task).parameters if name not in ("name", "data"))
KEYS = (*SETTINGS, "preset", "grammar", "size")  # of a task's table


def find_tasks(
    names: Sequence[str],
    data: str | Path | None = None,
    file: str | Path | None = None,
    *,
    size: int | None = None,
    seed: int | None = None,
    metric: str | None = None,
    held_out: bool | None = None,
) -> list[Task]:
    """The tasks called `names`.

    Args:
        names: of tables in `file`; of presets ("sst2"); or "grammar:topic" for a synthetic task of the
            embedded grammar; or "treebank:dep" for a layer (pos, xpos, ner, dep, tree-dep, con, srl) of the
            annotated sentences in `data`. Without names, every task of `file`.
        data: the folder that holds the presets' sets; None: the hub.
        file: a TOML file that defines tasks.
        size: training examples of a grammar task; default: 2000.
        seed: of splits that have to be made, and of the grammar; default: 0.
        metric: overrides every task's own metric ("accuracy" for Eq. 5).
        held_out: judge on a tenth of the training examples in place of the validation split
            (`Task.held_out`).

    Raises:
        HeadwiseError: a name is unknown, or two tasks have the same one.
    """
    size, seed = 2000 if size is None else size, seed or 0
    defined = {} if file is None else {task.name: task for task in read_toml(file)}
    if not names and not defined:
        raise HeadwiseError(
            "no task was named: give presets (sst2), grammar tasks (grammar:topic), or a TOML file that "
            "defines tasks"
        )
    tasks: dict[str, Task] = {}
    for name in names or defined:
        origin: dict[str, Any] = {"name": name, "size": size, "seed": seed}
        if data is not None:
            origin["data"] = str(Path(data).absolute())
        if name in defined:
            task = defined[name]
            if metric is not None:
                task = task.with_metric(metric)
            origin["file"] = str(Path(str(file)).absolute())
        elif defined and name not in PRESETS and did_you_mean(name, defined):
            raise HeadwiseError(
                f"{file} defines no task {name!r}{did_you_mean(name, defined)}; it has: {', '.join(defined)}"
            )
        else:
            task = _named_task(name, data, size, seed, metric)
        if held_out:
            task = task.held_out()
            origin["held_out"] = True
        task.origin = origin
        if task.name in tasks:
            raise HeadwiseError(f"the task {task.name!r} is named twice")
        tasks[task.name] = task
    return list(tasks.values())


def _named_task(name: str, data: str | Path | None, size: int, seed: int, metric: str | None) -> Task:
    """A synthetic task, a layer of a treebank, or a preset."""
    if name.startswith("grammar:"):
        return synthetic_task(name.removeprefix("grammar:"), size=size, seed=seed, metric=metric)
    if name.startswith("treebank:"):
        if data is None:
            raise HeadwiseError(f"{name}: the data folder is the treebank, and none is given")
        (task,) = structured(data, [name.removeprefix("treebank:")], seed=seed)
        return task if metric is None else task.with_metric(metric)
    if suffix(Path(name)) in TABLES:
        raise HeadwiseError(f"{name} is a file, not the name of a task: {table_for(Path(name))}")
    return preset(name, data, metric=metric, seed=seed)


def synthetic_task(name: str, **settings: Any) -> Task:
    """A task of the synthetic language, whose room lies above this one and is opened by its name."""
    return cast(Task, import_module("headwise.grammar").task(name, **settings))


def as_tasks(tasks: Any) -> list[Task]:
    """One task or several, as a list.

    Raises:
        HeadwiseError: a name stands where a task should, or two tasks share one name.
    """
    task_list: list[Any] = [tasks] if isinstance(tasks, str | Task) else list(tasks)
    for task in task_list:
        if isinstance(task, str):
            raise HeadwiseError(f"{task!r} is a name, but a Task is required: use {_call_for(task)}")
        if not isinstance(task, Task):
            raise HeadwiseError(f"expected a headwise Task, got {type(task).__name__}: {str(task)[:80]}")
    names = [task.name for task in task_list]
    for name in names:
        if names.count(name) > 1:
            raise HeadwiseError(f"two tasks are called {name!r}; give each its own name")
    return task_list


def _call_for(name: str) -> str:
    """The call that makes a task of a name, for messages."""
    if name.endswith(".toml"):
        return f"headwise.tasks.read_toml({name!r})"
    if suffix(Path(name)) in TABLES:
        return f"headwise.Task({stem(Path(name))!r}, path={name!r}, text=COLUMN, label=COLUMN)"
    return f"headwise.tasks.find_tasks([{name!r}], data=FOLDER)"


def read_toml(source: str | Path) -> list[Task]:
    """The tasks a TOML file (or TOML text) defines, in its order.

    A table with `path`, `hub`, `preset` or `grammar` is a task, named by its key (`[tasks.reviews]` is
    "reviews"); its further keys are the arguments of `Task`. Relative paths start at the file.

    Args:
        source: a file, or the text itself (anything with a line break).

    Raises:
        HeadwiseError: no TOML, an unknown key (the nearest one is suggested), or no task in it.
    """
    if isinstance(source, str) and "\n" in source:
        content: str | bytes = source
        where, base = "the TOML text", Path()
    else:
        where, base = str(source), Path(source).parent
        try:
            content = Path(source).read_bytes()
        except (OSError, ValueError) as error:
            raise HeadwiseError(
                f"the tasks file {where} could not be read: {getattr(error, 'strerror', None) or error}"
            ) from None
        if suffix(Path(source)) in TABLES:
            raise HeadwiseError(
                f"{where} holds data; a tasks file is TOML that says where the data is: "
                f"{table_for(Path(source))}"
            )
    tables = parse_toml(content, where)
    tasks = [task_from_table(name, table, base, where) for name, table in _task_tables(tables)]
    if not tasks:
        raise HeadwiseError(f"{where} defines no task; a task is a table with path, hub, preset or grammar")
    return tasks


def table_for(path: Path) -> str:
    """What a tasks file says of a data file, for messages."""
    return (
        f'write a file tasks.toml with the lines [{stem(path)}] and path = "{path.name}", '
        "and give it as --tasks-file tasks.toml"
    )


def data_files(source: str | Path, names: Sequence[str]) -> dict[str, Any]:
    """By task, the files that a tasks file reads its data from: of the tasks called `names`, or of all.

    Files that do not exist are left out: reading them says so.
    """
    files_by_task = {}
    for name, table, paths in _paths(source, names):
        is_preset = "preset" in table
        files = {split: _files_at(path, is_preset) for split, path in paths.items() if path.exists()}
        if files:
            files_by_task[name] = files
    return files_by_task


def missing_files(source: str | Path, names: Sequence[str]) -> list[Path]:
    """The files and folders that a tasks file reads its data from, and that do not exist."""
    missing = []
    for _, _, paths in _paths(source, names):
        missing += [path for path in paths.values() if not path.exists()]
    return missing


def _paths(
    source: str | Path, names: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Any], dict[str, Path]]]:
    """Name, table and paths by split of the tasks called `names`, or of all."""
    base = Path(source).parent
    for name, table in _task_tables(parse_toml(Path(source).read_bytes(), str(source))):
        if names and name not in names:
            continue
        paths = table.get("path")
        if not isinstance(paths, Mapping):
            paths = {"": paths}
        yield name, table, {split: base / path for split, path in paths.items() if isinstance(path, str)}


def _files_at(path: Path, is_preset: bool) -> Any:
    """The files of a folder that a task reads: all of a preset's or of a saved Dataset, else those that hold
    data.
    """
    if is_preset or not path.is_dir() or is_saved(path) or (path / SAVED_SPLITS).is_file():
        return path
    return {file.name: file for file in sorted(path.iterdir()) if holds_data(file)}


def _task_tables(tables: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, value in tables.items():
        if isinstance(value, Mapping):
            if {"path", "hub", "preset", "grammar"} & set(value):
                yield name, value
            else:
                yield from _task_tables(value)


def task_from_table(
    name: str, table: Mapping[str, Any], base: Path = Path(), where: str = "the table"
) -> Task:
    """One task of a table of settings."""
    settings = {key: value for key, value in table.items() if value is not None}
    for key in settings:
        if key not in KEYS:
            hint = did_you_mean(key, KEYS) or f"; expected some of {', '.join(KEYS)}"
            raise HeadwiseError(f"{where}, task {name!r}: unknown key {key!r}{hint}")
    check_settings(name, settings)
    path = settings.get("path")
    if isinstance(path, Mapping):
        settings["path"] = {split: base / file for split, file in path.items()}
    elif path is not None:
        settings["path"] = base / path
    if "grammar" in settings:
        misplaced = [key for key in settings if key not in ("grammar", "size", "seed", "metric")]
        if misplaced:
            raise HeadwiseError(
                f"{where}, task {shown(name)}: a grammar task has size, seed and metric, but no "
                f"{misplaced[0]!r}"
            )
        return synthetic_task(settings.pop("grammar"), **settings).renamed(name)
    if "size" in settings:
        raise HeadwiseError(
            f"{where}, task {shown(name)}: only a grammar task has a size; "
            "cut others with splits or max_examples"
        )
    if "preset" in settings:
        return preset(settings.pop("preset"), settings.pop("path", None), **settings).renamed(name)
    return Task(name, **settings)
