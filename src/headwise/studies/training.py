"""The training study: models × samplings × seeds, each with several methods, and the tables of tasks × methods over all of them.

Tables 5, 12 and 13 of the first paper: plain multi-task training and important-head training on GLUE, for five models.
"""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import pandas as pd
from pydantic import AfterValidator, Field, create_model

from headwise import runs
from headwise.errors import HeadwiseError
from headwise.training.methods import known_method
from headwise.training.samplers import SAMPLINGS
from headwise.training.settings import TrainingSettings

APART = ("seed", "sampling", "progress", "trackers", "device")  # settings that the study itself sets


def _method(name: str) -> str:
    try:
        return known_method(name)
    except HeadwiseError as error:
        raise ValueError(str(error)) from None  # so that the recipe's other mistakes are told too


MethodName = Annotated[str, AfterValidator(_method)]
"""The name of a method in a recipe, one of `headwise.training.METHODS`."""
_HINTS = get_type_hints(TrainingSettings)
_FIELDS: dict[str, Any] = {f.name: (_HINTS[f.name], f.default) for f in fields(TrainingSettings) if f.name not in APART}
TrainingBlock: Any = create_model("TrainingBlock", __base__=runs.Settings, **_FIELDS)
"""The `[training]` table of a recipe: every setting of `TrainingSettings` with its default."""


class StudyTasks(runs.Settings):
    """Which tasks, and where their data lies; "mnli_mm" beside "mnli" is evaluated with its decoder, not trained."""

    names: tuple[str, ...] = Field((), description="presets, grammar:..., or names in file")
    data: runs.DataPath | None = None
    file: runs.DataPath | None = None
    size: int = Field(2000, ge=10)
    metric: str | None = None


class TrainingRecipe(runs.Recipe):
    """What is trained and compared."""

    kind: Literal["training"]
    models: tuple[runs.ModelName, ...] = Field(min_length=1)
    tasks: StudyTasks
    methods: tuple[MethodName, ...] = ("multi-task", "iat")
    samplings: tuple[str, ...] = ("proportional",)
    alpha: float = Field(0.3, ge=0, le=1)
    delta: float = Field(0.1, ge=0, le=1)
    seeds: int = Field(3, ge=1)
    predict: tuple[str, ...] = ()
    keep_models: bool = True
    training: TrainingBlock = TrainingBlock()


class CellConfig(runs.Settings):
    model: runs.ModelName
    tasks: StudyTasks
    methods: tuple[str, ...]
    sampling: str
    alpha: float
    delta: float
    predict: tuple[str, ...]
    keep_models: bool
    training: dict[str, Any]


@runs.step(name="training")
def train_methods(config: CellConfig, inputs: dict[str, Any], out: runs.Out) -> None:
    """All methods of one model, sampling and seed; those that share their beginning share it."""
    from headwise.tasks import find_tasks
    from headwise.training.grid import compare
    from headwise.training.submission import write_submissions

    given = config.tasks
    found = find_tasks(given.names, given.data, given.file, size=given.size, metric=given.metric)
    trained, also = set_apart(found)
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in config.training.items()
    }
    options |= {"alpha": config.alpha, "delta": config.delta} if _uses_heads(config.methods) else {}
    work = out.checkpoint().folder / "work"  # outlives a killed process
    result = compare(
        str(config.model.folder()),
        trained,
        config.methods,
        seeds=[out.seed],
        out=work,
        also=also,
        predict=config.predict,
        sampling=config.sampling,
        **options,
    )
    out.table("scores", result.scores.drop(columns="seed"))
    predictions = [part.predictions.assign(method=method) for (method, _), part in result.results.items()]
    out.table("predictions", pd.concat(predictions, ignore_index=True))
    files = write_submissions(result, work, "test") if "test" in config.predict else []
    for (method, _), part in result.results.items():
        assert part.folder is not None
        folder = part.folder
        if config.keep_models:
            out.model(method, partial(_copy, folder))
        elif files and (folder / "glue").is_dir():
            out.model(f"glue-{method}", partial(_copy, folder / "glue"))


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("checkpoint", "tickets"))


def _uses_heads(methods: Iterable[str]) -> bool:
    return any(method in ("iat", "random-heads", "prune") for method in methods)


def set_apart(found: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The tasks to train, and those that another task's decoder answers: MNLI's mismatched set."""
    names = {task.name: task for task in found}
    also = {"mnli": names["mnli_mm"]} if {"mnli", "mnli_mm"} <= set(names) else {}
    return [task for task in found if task not in also.values()], also


@runs.step(name="training-table")
def summarise(config: dict[str, Any], inputs: dict[str, Any], out: runs.Out) -> None:
    """Mean, standard deviation and number of seeds of every model, sampling, method and task, with the average over tasks."""
    frames = [result.table("scores").assign(**place) for result, place in zip(inputs["cells"], config["places"], strict=True)]
    scores = pd.concat(frames, ignore_index=True)
    out.table("training", table_of(scores))


def table_of(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per model, sampling, method, split and task, scores in percent; the task "average" is the mean over tasks.

    Args:
        scores: one row per model, sampling, method, seed, split and task.
    """
    keys = ["model", "sampling", "method", "split"]
    labelled = scores.dropna(subset="score")
    average = labelled.groupby([*keys, "seed"], sort=False)["score"].mean().reset_index().assign(task="average")
    rows = pd.concat([labelled, average], ignore_index=True)
    grouped = (100 * rows.set_index([*keys, "task"])["score"]).groupby(level=[*keys, "task"], sort=False)
    return grouped.agg(mean="mean", sd="std", seeds="count").reset_index()


def cells(recipe: TrainingRecipe) -> Iterator[runs.Cell]:
    """One cell per model, sampling and seed for the methods that branch from plain training, one more for each other method."""
    branching = tuple(m for m in recipe.methods if m in ("multi-task", "iat", "random-heads", "prune"))
    groups = [group for group in (branching, *((m,) for m in recipe.methods if m not in branching)) if group]
    settings = recipe.training.model_dump(mode="json")
    found, places = [], []
    for model in recipe.models:
        for sampling in recipe.samplings:
            for seed in range(recipe.seeds):
                for group in groups:
                    shared = {name: getattr(recipe, name) for name in ("tasks", "alpha", "delta", "predict", "keep_models")}
                    config = CellConfig(model=model, methods=group, sampling=sampling, training=settings, **shared)
                    place: dict[str, str | int | float | bool] = {"model": str(model), "sampling": sampling, "seed": seed}
                    found.append(runs.Cell(train_methods, config, {**place, "group": "+".join(group)}, seed=seed))
                    places.append(place)
    yield from found
    yield runs.Cell(summarise, {"places": places}, {}, {"cells": found})


def check(recipe: TrainingRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types."""
    from headwise.tasks import find_tasks

    for sampling in recipe.samplings:
        if sampling not in SAMPLINGS:
            yield f"samplings: {sampling!r} is unknown; choose from {', '.join(SAMPLINGS)}"
    try:
        TrainingSettings.from_json(recipe.training.model_dump(mode="json"))
    except HeadwiseError as error:
        yield f"training: {error}"
    try:
        find_tasks(recipe.tasks.names, recipe.tasks.data, recipe.tasks.file, size=recipe.tasks.size)
    except HeadwiseError as error:
        yield f"tasks: {error}"


study = runs.Study(TrainingRecipe, cells, check)
