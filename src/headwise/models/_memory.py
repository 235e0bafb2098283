"""What a trained model remembers of its tasks: how it was judged, and at which length their texts were
cut."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from headwise.errors import HeadwiseError
from headwise.models._decoders.output import SavedTask
from headwise.store import manifest
from headwise.tasks import Task, TaskSource, as_tasks, find_tasks

DEFAULT_LENGTH = 256  # where nothing is remembered


class Remembering(Protocol):
    """A model with the facts of its tasks by name."""

    @property
    def tasks(self) -> Mapping[str, SavedTask]: ...


def remember(model: Any, tasks: Sequence[Task], max_length: int) -> None:
    """Notes in a model how it is trained and judged on each task, for whatever is done with it later."""
    for task in tasks:
        facts = {"metric": str(task.metric), "max_length": max_length, "origin": task.origin}
        model.tasks[task.name] = replace(model.tasks[task.name], **facts)


def as_trained(model: Remembering, tasks: Iterable[Task]) -> list[Task]:
    """The tasks with the metric that the model was trained and judged by, where a user has not chosen
    another."""
    trained = []
    for task in tasks:
        saved = model.tasks.get(task.name)
        if saved is not None and saved.kind == task.kind and not task.metric_given:
            task = task.with_metric(saved.metric, by_user=False)
        trained.append(task)
    return trained


def length_of(model: Remembering, task: str, max_length: int | None = None) -> int | None:
    """Tokens at which texts of a task are cut: as asked, else as the model was trained on it; None: neither
    is known."""
    return max_length or (model.tasks[task].max_length if task in model.tasks else None)


def longest(model: Remembering) -> int:
    """The longest texts a model was trained with, in tokens: what a task that is new to it starts from."""
    return max((task.max_length for task in model.tasks.values() if task.max_length), default=DEFAULT_LENGTH)


def remembered_tasks(model: str | Path, source: TaskSource) -> list[Task]:
    """The tasks by name; without names, those the model was trained on. A saved model remembers where its own
    came from, so that data, file, size, seed and held_out need no repeating.

    Raises:
        HeadwiseError: a task cannot be found, or the data that the model was trained on have gone.
    """
    record = []
    if (Path(model) / manifest.NAME).is_file():
        record = manifest.read(model).get("tasks", [])
    saved = [task for task in record if isinstance(task, dict)]
    origins = [{"name": task["name"], **(task.get("origin") or {})} for task in saved]
    # by the name in the model, and by the one under which the task is found
    by_name = {task["name"]: origin for task, origin in zip(saved, origins, strict=True)}
    by_name |= {origin["name"]: origin for origin in origins}
    if not source.names and source.file is not None:
        return source.find()
    if not source.names and not saved:
        if not Path(model).exists():
            raise HeadwiseError(
                f"no task was named, and there is no folder {str(model)!r} that remembers its own: give the "
                "folder of a trained model, or name tasks (--tasks, --tasks-file)"
            )
        if Path(model).is_dir() and not (Path(model) / "config.json").is_file():
            manifest.read(model)  # of a folder of several trainings it says where they are
    tasks = []
    for name in source.names or [str(origin["name"]) for origin in origins]:
        origin = by_name.get(name, {"name": name})
        data = source.data or _learnt_from(model, name, origin, "data", "--data")
        file = source.file or _learnt_from(model, name, origin, "file", "--tasks-file")
        if source.held_out and name in by_name and not origin.get("held_out"):
            raise HeadwiseError(
                f"{model} was trained on all training examples of {name}, so none of them are held out: "
                "train it with held_out (--held-out), or judge it on the validation split"
            )
        options: dict[str, Any] = {key: origin.get(key) for key in ("size", "seed", "held_out")}
        options |= {key: getattr(source, key) for key in options if getattr(source, key) is not None}
        tasks += find_tasks([origin["name"]], data, file, metric=source.metric, **options)
    if not tasks:
        return find_tasks([])
    return as_tasks(tasks)


def _learnt_from(
    model: str | Path, name: str, origin: Mapping[str, Any], key: str, option: str
) -> Path | None:
    """Where the data of a task lie, or the file that describes it, as the model remembers it."""
    if key not in origin:
        return None
    path = Path(origin[key])
    if not path.exists():
        raise HeadwiseError(f"{model} learnt {name} from {path}, which no longer exists: give {option}")
    return path
