"""Probing as a study: every model × task, then the papers' tables over all of them (Tables 3 and 5, Figs. 3, 5, 6, 7)."""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import Field

from headwise import engine
from headwise.errors import HeadwiseError
from headwise.probing._fits import STRENGTHS
from headwise.probing._results import Probes
from headwise.probing._senteval import SENTEVAL, canonical
from headwise.settings import option
from headwise.studies._sections.grids import of_probing
from headwise.tasks._source import TaskSource
from headwise.tasks._task import Task


class ProbingTasks(TaskSource):
    """Which tasks, and where they come from; without `names`, all there are."""

    source: Literal["senteval", "treebank", "grammar", "tasks"] = option(
        "senteval",
        "senteval: SentEval's files in the data folder; treebank: generated from its CoNLL-U or bracketed trees; grammar: generated from "
        "synthetic sentences; tasks: presets, or tables of the tasks file.",
    )
    size: int = option(6000, "Sentences of the grammar.", ge=100)


class Probing(engine.Settings):
    """Settings of the probes; see `headwise.probing.probe`."""

    pooling: Literal["cls", "last", "mean"] | None = None
    strengths: tuple[float, ...] = STRENGTHS
    folds: int | None = Field(None, ge=2)
    top: int | None = Field(None, ge=1)
    sweep: tuple[int, ...] = ()
    controls: tuple[Literal["labels", "encoder"], ...] = ("labels",)
    pairs: Literal["compare", "together"] = "compare"
    examples: int | None = Field(None, ge=10)
    max_length: int | None = Field(None, ge=8)
    batch_size: int | None = Field(None, ge=1)
    dtype: Literal["float16", "float32"] = "float16"
    tolerance: float = Field(1e-3, gt=0)


class ProbingRecipe(engine.Recipe):
    """`models` names what is probed: a label for tables, and a folder or hub id."""

    kind: Literal["probing"]
    models: dict[str, engine.ModelName] = Field(min_length=1)
    tasks: ProbingTasks = ProbingTasks()
    probing: Probing = Probing()
    seed: int = 0


class ProbeConfig(engine.Settings):
    model: engine.ModelName
    task: str
    tasks: ProbingTasks
    probing: Probing


@engine.step(version=2)
def probe_task(config: ProbeConfig, inputs: dict[str, Any], out: engine.Out) -> None:
    """All probes of one model on one task."""
    from headwise.probing._probes import probe

    (task,) = open_tasks(config.tasks, [config.task])
    found = probe(str(config.model), task, seed=out.seed, quiet=False, **config.probing.model_dump())
    for name in ("test", "validation", "stderr", "control", "random_encoder"):
        if name in found.data:
            out.array(name.replace("_", "-"), found.data[name].squeeze("task", drop=True))
    metric = str(found.data["metric"].item())  # the model's own where it was trained on the task
    out.table("embeddings", found.embeddings.drop(columns="task").assign(metric=metric, synthetic=task.synthetic))
    out.table("sweep", found.sweep.drop(columns="task"))
    out.model("probes", found.write)


@engine.step()
def summarise(config: dict[str, Any], inputs: dict[str, Any], out: engine.Out) -> None:
    """One model's tables over its tasks."""
    from headwise.store._loading import load

    found = Probes.join([load(result.model("probes")) for result in inputs["tasks"]])
    out.table("probing", found.table().assign(metric=found.data["metric"].to_series()).reset_index())
    if found.has_syntactic_and_semantic:
        out.table("syntactic-semantic", found.syntactic_semantic())


def cells(recipe: ProbingRecipe) -> Iterator[engine.Cell]:
    """One cell per model and task, and one per model over its tasks."""
    names = task_names(recipe.tasks)
    for label, model in recipe.models.items():
        parts = []
        for name in names:
            config = ProbeConfig(model=model, task=name, tasks=recipe.tasks, probing=recipe.probing)
            parts.append(engine.Cell(probe_task, config, {"model": label, "task": name}, seed=recipe.seed, megabytes=10))
        yield from parts
        yield engine.Cell(summarise, {}, {"model": label}, {"tasks": parts})


def check(recipe: ProbingRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types."""
    tasks = recipe.tasks
    if tasks.source in ("senteval", "treebank") and tasks.data is None:
        yield f"tasks.data: a folder is needed for source = {tasks.source!r}"
    elif tasks.source == "tasks" and not tasks.names and tasks.file is None:
        yield "tasks.names: name presets, or give tasks.file, a TOML file that defines tasks"
    else:
        try:
            task_names(tasks)
            if tasks.source in ("senteval", "tasks"):
                open_tasks(tasks)  # a name that is misspelt, or not in the folder, fails here rather than in a cell
        except HeadwiseError as error:
            yield f"tasks: {error}"


study = engine.Study(ProbingRecipe, cells, check, of_probing)


@cache
def task_names(tasks: ProbingTasks) -> tuple[str, ...]:
    """The names of the tasks that a recipe asks for."""
    if tasks.source == "tasks" and tasks.names:
        return tasks.names
    if tasks.names:
        return tuple(canonical(name) for name in tasks.names)
    if tasks.source == "grammar":
        return tuple(SENTEVAL)
    return tuple(task.name for task in open_tasks(tasks))


def open_tasks(tasks: ProbingTasks, names: Iterable[str] | None = None) -> list[Task]:
    """The tasks themselves; some of them by name, or all the recipe asks for."""
    found = _open_tasks(tasks, names)
    return found if tasks.metric is None else [task.with_metric(tasks.metric) for task in found]


def _open_tasks(tasks: ProbingTasks, names: Iterable[str] | None) -> list[Task]:
    wanted = list(names) if names is not None else list(tasks.names) or None
    if tasks.source == "tasks":
        return tasks.find(wanted or [])
    if tasks.source == "grammar":
        from headwise.probing._generation import grammar_tasks

        return grammar_tasks(tasks.size, wanted)
    if tasks.data is None:
        raise HeadwiseError(f"tasks.data: a folder is needed for source = {tasks.source!r}")
    if tasks.source == "treebank":
        from headwise.probing._generation import treebank_tasks

        return treebank_tasks(tasks.data, wanted, skip_bad=True)
    from headwise.probing._senteval import senteval_tasks

    return senteval_tasks(tasks.data, wanted)


def probes_of(run: str | Path, model: str | None = None) -> Probes:
    """What a finished probing study found for one of its models."""
    from headwise.store._loading import load

    where = {} if model is None else {"model": model}
    found = list(engine.open(run).results("probe-task", **where))
    labels = {task["coords"]["model"] for task, _ in found}
    if len(labels) != 1:
        raise HeadwiseError(f"{run} holds probes of {', '.join(sorted(labels)) or 'no model'}: name one with model=")
    return Probes.join([load(result.model("probes")) for _, result in found])


def table_of(run: str | Path) -> pd.DataFrame:
    """Last layer, best layer and top-n heads of every model and task (Tables 3 and 5)."""
    return engine.open(run).table("probing")
