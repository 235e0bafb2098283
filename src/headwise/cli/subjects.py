"""The model a verb names, and its tasks: as the command names them, and where it is silent as the model remembers them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli.common import own_bars
from headwise.errors import HeadwiseError

Metric = Annotated[
    str | None, typer.Option("--metric", help="One metric for all tasks; default: the one the model was trained with.")
]
MaxLength = Annotated[
    int | None, typer.Option("--max-length", help="Tokens per text or pair; default: as in the model's training, else 256.")
]
Size = Annotated[
    int | None, typer.Option("--size", help="Training examples of a grammar task; default: as in the training, else 2000.")
]


def open_for_tasks(
    model: str,
    names: list[str] | None,
    data: Path | None,
    file: Path | None,
    *,
    size: int | None,
    metric: str | None,
    device: str | None,
) -> tuple[Any, list[Any]]:
    """The model and the tasks a verb names; without names, the tasks the model was trained on."""
    import torch

    from headwise.decoders.memory import as_trained
    from headwise.scoring.subject import as_subject_model

    own_bars()
    found = tasks_for(model, names, data, file, size=size, metric=metric)
    answering = as_subject_model(model, found)
    return answering.to(device or ("cuda" if torch.cuda.is_available() else "cpu")), as_trained(answering, found)


def tasks_for(
    model: str, names: list[str] | None, data: Path | None, file: Path | None, *, size: int | None, metric: str | None
) -> list[Any]:
    """The tasks by name. A model remembers where those it was trained on came from: data, file, size and seed need no repeating.

    Raises:
        HeadwiseError: a task cannot be found, or the data that the model was trained on have gone.
    """
    from headwise import manifest
    from headwise.tasks.naming import as_tasks, find_tasks

    record = manifest.read(model).get("tasks", []) if (Path(model) / manifest.NAME).is_file() else []
    saved = [task for task in record if isinstance(task, dict)]
    origins = {task["name"]: {"name": task["name"], **(task.get("origin") or {})} for task in saved}
    by_name = origins | {origin["name"]: origin for origin in origins.values()}
    if not names and file is not None:
        return find_tasks([], data, file, size=size or 2000, metric=metric)
    wanted = names or [str(origin["name"]) for origin in origins.values()]
    found = []
    for name in wanted:
        origin = by_name.get(name, {"name": name})
        places = {"data": data, "file": file}
        for key, given in places.items():
            if given is None and key in origin:
                places[key] = before = Path(origin[key])
                if not before.exists():
                    option = "--data" if key == "data" else "--tasks-file"
                    raise HeadwiseError(f"{model} learnt {name} from {before}, which has gone: give {option}")
        sizes = {"size": size or origin.get("size", 2000), "seed": origin.get("seed", 0)}
        found += find_tasks([origin["name"]], places["data"], places["file"], metric=metric, **sizes)
    return as_tasks(found) if found else find_tasks([])


def judged(model: Any, tasks: Iterable[Any], max_length: int | None = None) -> str:
    """How tasks are read and judged, in one line: "metric: sst2 accuracy, mrpc F1; texts cut at 128 tokens"."""
    from headwise.decoders.memory import LENGTH, length_of

    tasks = list(tasks)
    lengths = {task.name: length_of(model, task.name, max_length) or LENGTH for task in tasks}
    return said({task.name: task.metric for task in tasks}, lengths)


def said(metrics: dict[str, str], lengths: dict[str, int]) -> str:
    """The same from the two facts by task."""
    metric = ", ".join(f"{name} {metric}" for name, metric in metrics.items())
    if len(set(metrics.values())) == 1 and len(metrics) > 1:
        metric = next(iter(metrics.values()))
    cut = ", ".join(f"{name} {length}" for name, length in lengths.items())
    if len(set(lengths.values())) == 1:
        cut = str(next(iter(lengths.values())))
    return f"metric: {metric}; texts cut at {cut} tokens"
