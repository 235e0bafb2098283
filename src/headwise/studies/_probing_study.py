"""Probing as a study: every model × task, then the papers' tables over all of them (Tables 3 and 5, Figs. 3,
5, 6, 7)."""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field

from headwise import engine
from headwise.errors import HeadwiseError
from headwise.probing import SENTEVAL, Probe, Probes, ProbingTasks, Source, senteval_name
from headwise.store import load
from headwise.studies._sections.grids import of_probing
from headwise.tasks import Task


class ProbingRecipe(engine.Recipe):
    """`models` names what is probed: a label for tables, and a folder or hub id."""

    kind: Literal["probing"]
    models: dict[str, engine.ModelName] = Field(min_length=1)
    tasks: ProbingTasks = ProbingTasks()
    probing: Probe = Probe()


@engine.step(version=2)
def probe_task(
    out: engine.Out, *, model: engine.ModelName, task: str, tasks: ProbingTasks, probing: Probe
) -> None:
    """All probes of one model on one task."""
    from headwise.probing import probe

    (opened,) = open_tasks(tasks, [task])
    probes = probe(str(model), opened, **probing.given())
    for name in ("test", "validation", "stderr", "control", "random_encoder"):
        if name in probes.data:
            out.array(name.replace("_", "-"), probes.data[name].squeeze("task", drop=True))
    metric = str(probes.data["metric"].item())  # the model's own where it was trained on the task
    embeddings = probes.embeddings.drop(columns="task").assign(metric=metric, synthetic=opened.synthetic)
    out.table("embeddings", embeddings)
    out.table("sweep", probes.sweep.drop(columns="task"))
    out.model("probes", probes)


@engine.step(version=2)
def summarise(out: engine.Out, *, probed: list[engine.Result]) -> None:
    """One model's tables over its tasks."""
    probes = Probes.join([load(result.model("probes")) for result in probed])
    out.table("probing", probes.table().assign(metric=probes.data["metric"].to_series()).reset_index())
    sizes = probes.embeddings.groupby("task")["examples"].first().rename("test examples")
    out.table("controls", probes.controls().join(sizes).reset_index())
    if probes.has_syntactic_and_semantic:
        out.table("syntactic-semantic", probes.syntactic_semantic())


def probing_cell(
    label: str, model: engine.ModelName, task: str, tasks: ProbingTasks, probing: Probe
) -> engine.Cell:
    """The probes of one model on one task."""
    arguments = {"model": model, "task": task, "tasks": tasks, "probing": probing}
    coords = {"model": label, "task": task}
    return engine.Cell(probe_task, arguments, coords, seed=probing.seed, megabytes=10)


def cells(recipe: ProbingRecipe) -> Iterator[engine.Cell]:
    """One cell per model and task, and one per model over its tasks."""
    names = task_names(recipe.tasks)
    for label, model in recipe.models.items():
        probed = [probing_cell(label, model, name, recipe.tasks, recipe.probing) for name in names]
        yield from probed
        yield engine.Cell(summarise, {"probed": probed}, {"model": label})


def check(recipe: ProbingRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types."""
    tasks = recipe.tasks
    if meant := set(tasks.names) & set(get_args(Source)):
        yield (
            f"tasks.names: {min(meant)!r} is a source of tasks: write source = {min(meant)!r}, on the "
            f"command line --source {min(meant)}"
        )
    elif tasks.origin in ("senteval", "treebank") and tasks.data is None:
        yield f"tasks.data: a folder is needed for source = {tasks.origin!r}"
    elif tasks.origin == "tasks" and not tasks.names and tasks.file is None:
        yield "tasks.names: name presets, or give tasks.file, a TOML file that defines tasks"
    else:
        try:
            task_names(tasks)
            if tasks.origin in ("senteval", "tasks"):
                # a name that is misspelt, or not in the folder, fails here rather than in a cell
                open_tasks(tasks)
        except HeadwiseError as error:
            if tasks.origin == "tasks":
                yield f"tasks: {error}"
            else:
                yield f"tasks: {error}; presets and tables of a tasks file need source = 'tasks'"


probing_study = engine.Study(ProbingRecipe, cells, check, of_probing)


@cache
def task_names(tasks: ProbingTasks) -> tuple[str, ...]:
    """The names of the tasks that a recipe asks for."""
    if tasks.origin == "tasks" and tasks.names:
        return tasks.names
    if tasks.names:
        return tuple(map(senteval_name, tasks.names))
    if tasks.origin == "grammar":
        return tuple(SENTEVAL)
    return tuple(task.name for task in open_tasks(tasks))


def open_tasks(tasks: ProbingTasks, names: Iterable[str] | None = None) -> list[Task]:
    """The tasks themselves; some of them by name, or all the recipe asks for."""
    opened = _open_tasks(tasks, names)
    if tasks.held_out and tasks.origin != "tasks":
        opened = [task.held_out() for task in opened]
    if tasks.metric is None:
        return opened
    return [task.with_metric(tasks.metric) for task in opened]


def _open_tasks(tasks: ProbingTasks, names: Iterable[str] | None) -> list[Task]:
    task_list: list[str] | None
    if names is None:
        task_list = list(tasks.names) or None
    else:
        task_list = list(names)
    if tasks.origin == "tasks":
        return tasks.find(task_list or [])
    if tasks.origin == "grammar":
        from headwise.probing import grammar_tasks

        return grammar_tasks(tasks.size, task_list, seed=tasks.seed or 0)
    if tasks.data is None:
        raise HeadwiseError(f"tasks.data: a folder is needed for source = {tasks.origin!r}")
    if tasks.origin == "treebank":
        from headwise.probing import treebank_tasks

        return treebank_tasks(tasks.data, task_list, skip_bad=True, seed=tasks.seed or 0)
    from headwise.probing import senteval_tasks

    return senteval_tasks(tasks.data, task_list)


def probes_of(run: str | Path, model: str | None = None) -> Probes:
    """What a finished probing study found for one of its models."""
    where = {} if model is None else {"model": model}
    results = list(engine.open(run).results("probe-task", **where))
    labels = {task["coords"]["model"] for task, _ in results}
    if len(labels) != 1:
        raise HeadwiseError(
            f"{run} holds probes of {', '.join(sorted(labels)) or 'no model'}: name one with model="
        )
    return Probes.join([load(result.model("probes")) for _, result in results])
