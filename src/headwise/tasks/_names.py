"""Tasks by name, as the command line and recipes give them: presets, the grammar's own, and tables of a TOML file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError, did_you_mean
from headwise.tasks._presets import PRESETS, preset
from headwise.tasks._tables import TABLES, stem, suffix
from headwise.tasks._task import Task
from headwise.tasks._toml import read_toml, synthetic_task, table_for


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
        names: of tables in `file`; of presets ("sst2"); or "grammar:topic" for a synthetic task of the embedded grammar;
            or "treebank:dep" for a layer (pos, xpos, ner, dep, tree-dep, con, srl) of the annotated sentences in `data`.
            Without names, every task of `file`.
        data: the folder that holds the presets' sets; None: the hub.
        file: a TOML file that defines tasks.
        size: training examples of a grammar task; default: 2000.
        seed: of splits that have to be made, and of the grammar; default: 0.
        metric: overrides every task's own metric ("accuracy" for Eq. 5).
        held_out: judge on a tenth of the training examples in place of the validation split (`Task.held_out`).

    Raises:
        HeadwiseError: a name is unknown, or two tasks have the same one.
    """
    size, seed = 2000 if size is None else size, seed or 0
    defined = {task.name: task for task in read_toml(file)} if file is not None else {}
    if not names and not defined:
        raise HeadwiseError(
            "no task was named: give presets (sst2), grammar tasks (grammar:topic), or a TOML file that defines tasks"
        )
    found = []
    for name in names or defined:
        if name in defined:
            found.append(defined[name] if metric is None else defined[name].with_metric(metric))
        elif name.startswith("grammar:"):
            found.append(synthetic_task(name.removeprefix("grammar:"), size=size, seed=seed, metric=metric))
        elif name.startswith("treebank:"):
            from headwise.tasks._structured import structured

            if data is None:
                raise HeadwiseError(f"{name}: the data folder is the treebank, and none is given")
            (layer,) = structured(data, [name.removeprefix("treebank:")], seed=seed)
            found.append(layer if metric is None else layer.with_metric(metric))
        elif defined and name not in PRESETS and did_you_mean(name, defined):
            raise HeadwiseError(
                f"{file} defines no task {name!r}{did_you_mean(name, defined)}; it has: {', '.join(defined)}"
            )
        elif suffix(Path(name)) in TABLES:
            raise HeadwiseError(f"{name} is a file, not the name of a task: {table_for(Path(name))}")
        else:
            found.append(preset(name, data, metric=metric, seed=seed))
        places = {"data": data, "file": file if name in defined else None}
        where: dict[str, Any] = {
            key: str(Path(place).absolute()) for key, place in places.items() if place is not None
        }
        if held_out:
            found[-1] = found[-1].held_out()
            where["held_out"] = True
        found[-1].origin = {"name": name, "size": size, "seed": seed, **where}
    seen: set[str] = set()
    for task in found:
        if task.name in seen:
            raise HeadwiseError(f"the task {task.name!r} is named twice")
        seen.add(task.name)
    return found


def _call_for(name: str) -> str:
    """The call that makes a task of a name, for messages."""
    if name.endswith(".toml"):
        return f"headwise.tasks.read_toml({name!r})"
    if suffix(Path(name)) in TABLES:
        return f"headwise.Task({stem(Path(name))!r}, path={name!r}, text=COLUMN, label=COLUMN)"
    return f"headwise.tasks.find_tasks([{name!r}], data=FOLDER)"


def as_tasks(given: Any) -> list[Task]:
    """One task or several, as a list.

    Raises:
        HeadwiseError: a name stands where a task should, or two tasks share one name.
    """
    tasks: list[Any] = [given] if isinstance(given, str | Task) else list(given)
    for task in tasks:
        if isinstance(task, str):
            raise HeadwiseError(f"{task!r} is a name, but a Task is required: use {_call_for(task)}")
        if not isinstance(task, Task):
            raise HeadwiseError(f"expected a headwise Task, got {type(task).__name__}: {str(task)[:80]}")
    names = [task.name for task in tasks]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise HeadwiseError(f"two tasks are called {twice[0]!r}; give each its own name")
    return tasks
