"""`headwise.train`: one call from a model and tasks to a trained model with its predictions and scores."""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from headwise import command
from headwise.decoders import MultiTaskModel, open_model
from headwise.errors import HeadwiseError
from headwise.opener import fresh, trusting
from headwise.parsing import read_json
from headwise.runs import Checkpoint
from headwise.runs.atomic import write_text
from headwise.runs.timing import timed
from headwise.tasks import Task
from headwise.tasks.naming import as_tasks
from headwise.training.devices import connect
from headwise.training.evaluating import evaluate
from headwise.training.graphs import how_run
from headwise.training.methods import Method, make_method, option_names
from headwise.training.methods.single import SingleTask
from headwise.training.result import DONE, TrainingResult, score_rows
from headwise.training.run import Run
from headwise.training.settings import TrainingSettings

STARTED = "settings.json"  # which training a folder is for
SECONDS = "seconds.json"  # what its attempts have taken so far


def train(
    model: Any,
    tasks: Task | Sequence[Task],
    method: str | Method = "iat",
    *,
    out: str | Path | None = None,
    tokenizer: Any = None,
    pooling: str | None = None,
    also: Mapping[str, Task] | None = None,
    predict: Sequence[str] = (),
    start: str | Path | None = None,
    branches: Mapping[int, Path] | None = None,
    trust_remote_code: bool = False,
    **settings: Any,
) -> TrainingResult:
    """Trains a model on some tasks and evaluates it on their validation splits.

        result = hw.train("bert-base-uncased", [task, other], method="iat", out="runs/first")
        result.table(); result.model; hw.load("runs/first")

    Args:
        model: a hub id or folder, a live transformers model (with or without its own head), or a MultiTaskModel, which is trained
            in place.
        tasks: what it learns.
        method: a name of `training.METHODS`, or a Method.
        out: where model and tables go. The same call again continues an interrupted training there, and returns a finished one.
        tokenizer: of a live transformers model; default: the one beside its weights.
        pooling: "cls", "last" or "mean" for whole-text tasks; default: the family's own.
        also: further tasks to evaluate with a trained task's decoder, {trained task: task}, e.g. {"mnli": mnli_mm}.
        predict: further splits to predict ("test"); they need no labels.
        start, branches: see `Run`; for methods that share their first steps.
        trust_remote_code: run code that a hub id or folder brings along; read it first.
        settings: of `TrainingSettings`, and options of the method (alpha, delta, ...).

    Raises:
        HeadwiseError: a setting is unknown or out of range, the tasks do not fit the model, or `out` holds another training.
    """
    tasks = as_tasks(tasks)
    chosen, settings_ = read_options(method, settings)
    shared: dict[str, Any] = {"also": also or {}, "predict": predict, "tokenizer": tokenizer, "pooling": pooling}
    folder = Path(out) if out is not None else None
    with trusting(trust_remote_code):
        return _train(model, tasks, chosen, settings_, folder, start=start, branches=branches, **shared)


def _train(
    model: Any, tasks: list[Task], method: Method, settings: TrainingSettings, folder: Path | None, **options: Any
) -> TrainingResult:
    """A training that is kept in `folder`: continued if it was interrupted, read back if it is finished."""
    processes = connect(settings)
    described = describe(model, tasks, method, settings)
    if folder is not None and _finished(folder, described):
        return TrainingResult.load(folder)
    noted = folder / SECONDS if folder is not None and processes.is_main_process else None
    with timed(noted) as attempts:
        if isinstance(method, SingleTask):
            result = _each(model, tasks, method, settings, folder, **options)
        else:
            result = _one(model, tasks, method, settings, folder, **options)
        spent = {"seconds": round(sum(attempts()), 1), "attempts": attempts(), "processes": processes.num_processes}
    result.description = {**result.description, **described, "notes": notes_on(settings), **spent, "command": command.given()}
    if folder is not None:
        if processes.is_main_process:
            result.save(folder)
            Checkpoint(folder / "checkpoint").clear()
            (folder / SECONDS).unlink(missing_ok=True)
        processes.wait_for_everyone()
        result.folder = folder
    return result


def notes_on(settings: TrainingSettings) -> list[str]:
    """What a reader of the scores must know of how they came about."""
    if settings.early_stopping is not None and settings.stopping_split == "validation":
        return ["early stopping chose the epoch on validation, the split that is reported, so these scores are too good"]
    return []


def read_options(method: str | Method, given: Mapping[str, Any]) -> tuple[Method, TrainingSettings]:
    """The method and the settings that keyword arguments name; a name that both have is the method's."""
    if isinstance(method, Method):
        return method, TrainingSettings().with_changes(**given)
    own = option_names(method)
    chosen = make_method(method, **{name: value for name, value in given.items() if name in own})
    return chosen, TrainingSettings().with_changes(**{name: value for name, value in given.items() if name not in own})


def describe(model: Any, tasks: Sequence[Task], method: Method, settings: TrainingSettings) -> dict[str, Any]:
    """What decides the outcome of a training, as JSON."""
    hidden = ("progress", "checkpoint_minutes", "trackers", "log_every", "device", "graphs")
    return {
        "model": str(model) if isinstance(model, str | Path) else type(model).__name__,
        "tasks": {task.name: task.split("train").fingerprint for task in tasks},
        **method.describe(),
        "settings": {name: value for name, value in method.settings(settings).to_json().items() if name not in hidden},
    }


def _difference(name: str, before: Any, now: Any) -> str:
    """What differs, in words: of two mappings only the entries that do; contents of tasks are not shown by their checksums."""
    if name == "tasks" and isinstance(before, dict) and isinstance(now, dict):
        if list(before) != list(now):
            return f"its tasks are {', '.join(before)}, and this one's {', '.join(now)}"
        return f"the data of {', '.join(task for task in now if before[task] != now[task])} were different"
    if isinstance(before, dict) and isinstance(now, dict):
        return ", ".join(
            f"{key} was {before.get(key)!r} and is {now.get(key)!r}"
            for key in {**before, **now}
            if before.get(key) != now.get(key)
        )
    return f"{name} was {before!r} and is {now!r}"


def _finished(folder: Path, described: Mapping[str, Any]) -> bool:
    """Whether `folder` holds this training already; notes in it which training it is for, if it is new.

    Raises:
        HeadwiseError: it is for another training.
    """
    note = folder / STARTED
    if note.is_file():
        before = read_json(note)
        for name, value in json.loads(json.dumps(described)).items():
            if before.get(name) != value:
                raise HeadwiseError(
                    f"{folder} holds another training: {_difference(name, before.get(name), value)}; choose another folder, or remove it"
                )
        return (folder / DONE).is_file()
    folder.mkdir(parents=True, exist_ok=True)
    write_text(note, json.dumps(described, indent=1) + "\n")
    return False


def _one(
    model: Any,
    tasks: Sequence[Task],
    method: Method,
    settings: TrainingSettings,
    folder: Path | None,
    *,
    also: Mapping[str, Task],
    predict: Sequence[str],
    tokenizer: Any,
    pooling: str | None,
    start: str | Path | None = None,
    branches: Mapping[int, Path] | None = None,
) -> TrainingResult:
    """One training through the loop, and the evaluation after it."""
    answering = _start(model, tasks, tokenizer, pooling, settings)
    run = Run(answering, tasks, method, settings, folder=folder, start=start, branches=branches)
    run.train()
    found = []
    for task in tasks:
        both = [task, *([also[task.name]] if task.name in also else [])]
        asked = [(other, split) for other in both for split in ("validation", *predict) if split in other.splits]
        for other, split in asked:
            options: Any = {"max_length": settings.max_length, "accelerator": run.accelerator, "progress": settings.progress}
            found.append(evaluate(answering, other, split, decoder=task.name, **options))
    names = np.array(run.names)[run.plan]
    history = pd.DataFrame({"step": np.arange(len(run.plan)), "task": names, "loss": run.losses})
    tables = pd.concat([evaluation.table() for evaluation in found], ignore_index=True) if found else pd.DataFrame()
    heads = getattr(method, "heads", None) or getattr(method, "masks", None) or {}
    return TrainingResult(
        score_rows(found), tables, history, {"method": method.name, "steps": how_run(run)}, heads, {"": answering}
    )


def _start(model: Any, tasks: Sequence[Task], tokenizer: Any, pooling: str | None, settings: TrainingSettings) -> Any:
    """The model a training begins with: what the user brings, with random weights and decoders of other shapes where asked for."""
    if not (settings.random_weights or settings.decoder_options):
        return open_model(model, tasks, need="trains", tokenizer=tokenizer, pooling=pooling, seed=settings.seed)
    unknown = sorted(set(settings.decoder_options) - {task.name for task in tasks})
    if unknown:
        raise HeadwiseError(f"decoder_options name the task {unknown[0]!r}, which is not trained")
    found = open_model(model, need="encoder", tokenizer=tokenizer, pooling=pooling)
    if found.tasks:
        raise HeadwiseError("random_weights and decoder_options are for an encoder without decoders, and this model has some")
    if settings.random_weights:
        found = MultiTaskModel(fresh(found.encoder, settings.seed), found.tokenizer, (), found.pooling)
    torch.manual_seed(settings.seed)
    for task in tasks:
        found.add_task(task, **settings.decoder_options.get(task.name, {}))
    return found


def _each(
    model: Any, tasks: list[Task], method: SingleTask, settings: TrainingSettings, folder: Path | None, **options: Any
) -> TrainingResult:
    """Single-task trainings of all tasks, each from the same weights and in a folder of its own."""
    parts = {}
    for task in tasks:
        own = model if isinstance(model, str | Path) else deepcopy(model)
        decoder = {name: value for name, value in settings.decoder_options.items() if name == task.name}
        chosen = settings.with_changes(decoder_options=decoder)
        parts[task.name] = _train(own, [task], method.each(), chosen, folder and folder / task.name, **options)

    def together(name: str) -> pd.DataFrame:
        return pd.concat([getattr(part, name) for part in parts.values()], ignore_index=True)

    models = {name: part.model for name, part in parts.items()} if folder is None else {}
    return TrainingResult(together("scores"), together("predictions"), together("history"), {}, models=models)
