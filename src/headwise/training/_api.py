"""`headwise.train`: one call from a model and tasks to a trained model with its predictions and scores."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from headwise._base import command
from headwise._base.memory import release_gpu
from headwise._base.opener import fresh, trusting
from headwise.errors import HeadwiseError
from headwise.settings import operation
from headwise.store import Decision, Entry, claimed_folder, decision, model_parts, timed_attempts
from headwise.tasks import METRICS, Task, as_tasks, metric_label, metrics_of_kind
from headwise.training._result import TrainingResult, score_rows
from headwise.training._settings import Train
from headwise.training.methods import Method, method_of
from headwise.training.methods.single import SingleTask

SECONDS = "seconds.json"  # what its attempts have taken so far
# live model -> folder it was trained into, its content before, its content after
_trained_models: Any = WeakKeyDictionary()


@operation(Train, "method")
def train(
    model: Any, tasks: Task | Sequence[Task], method: str | Method = "iat", *, settings: Train
) -> TrainingResult:
    """Trains a model on some tasks and evaluates it on their validation splits.

        result = hw.train("bert-base-uncased", [task, other], method="iat", alpha=0.3, out="runs/first")
        result.table(); result.model; hw.load("runs/first")

    Args:
        model: a hub id or folder, a live transformers model (with or without its own head), or a
            MultiTaskModel, which is trained in place.
        tasks: what it learns.
        method: a name of `training.METHODS`, whose own options (alpha, delta, ...) may stand beside the
            settings; or a Method.

    Returns:
        the trained model, its scores, and every example's prediction.

    Raises:
        HeadwiseError: a setting is unknown or out of range, the tasks do not fit the model, or `out` holds
            another training.
    """
    tasks = as_tasks(tasks)
    method = method_of(method, settings)
    with trusting(settings.trust_remote_code):
        return _train(model, tasks, method, settings)


def _train(model: Any, tasks: list[Task], method: Method, settings: Train) -> TrainingResult:
    """A training that is kept in `out`: resumed if it was interrupted, read back, without torch, if it is
    finished."""
    for task in tasks:
        if not METRICS[task.metric].share:
            raise HeadwiseError(
                f"task {task.name!r} is judged by {metric_label(task.metric)}, but trainings are compared in "
                "percent, where higher is better: choose another metric, one of "
                f"{', '.join(name for name in metrics_of_kind(task.kind) if METRICS[name].share)}"
            )
    folder = None if settings.out is None else Path(settings.out)
    if folder is not None:
        content = _content_before(model, settings.tokenizer, folder)
        decided = decide(content, tasks, method, settings)
        if (entry := Entry(folder, decided)).finished:
            return _shown(entry)
    from headwise.training._devices import connect

    processes = connect(settings)
    described = describe(model, tasks, method, settings)
    if folder is None:
        return _attempt(model, tasks, method, settings, described, None, processes)
    with claimed_folder(folder, processes.is_main_process):
        if (entry := Entry(folder, decided)).finished:  # another process has finished it meanwhile
            return _shown(entry)
        if processes.is_main_process:
            entry.begin()
        try:
            return _attempt(model, tasks, method, settings, described, entry, processes)
        finally:
            if not isinstance(model, str | Path):
                _trained_models[model] = (
                    folder.absolute(),
                    content,
                    model_parts(model, settings.tokenizer, training=True),
                )


def _shown(entry: Entry) -> TrainingResult:
    """A finished result, with what has changed around it since."""
    result = TrainingResult.load(entry.folder)
    result.description["notes"] = [*result.description.get("notes", []), *entry.notes]
    return result


def _content_before(model: Any, tokenizer: Any, folder: Path) -> dict[str, Any]:
    """The content of a model; of a live one that this process has trained into `folder`, what it was
    before."""
    now = model_parts(model, tokenizer, training=True)
    if isinstance(model, str | Path) or model not in _trained_models:
        return now
    trained_into, before, after = _trained_models[model]
    if trained_into == folder.absolute() and after == now:
        return dict(before)
    return now


def decide(model: Any, tasks: Sequence[Task], method: Method, settings: Train) -> Decision:
    """What decides the result of a training."""
    return decision(
        "train",
        {
            "method": method.decides(),
            "training": _deciding(method, settings),
            "pooling": settings.pooling,
            "predict": list(settings.predict),
        },
        model=model,
        tasks=tasks,
        splits=("train", "validation", *settings.predict),
        also=settings.also,
    )


def _attempt(
    model: Any,
    tasks: list[Task],
    method: Method,
    settings: Train,
    described: dict[str, Any],
    entry: Entry | None,
    processes: Any,
) -> TrainingResult:
    """A training that is not finished yet."""
    folder = entry.folder if entry is not None else None
    seconds_file = folder / SECONDS if folder is not None and processes.is_main_process else None
    with timed_attempts(seconds_file) as attempts:
        try:
            if isinstance(method, SingleTask):
                result = _train_separately(model, tasks, method, settings)
            else:
                result = _train_together(model, tasks, method, settings)
        finally:
            release_gpu()
        spent = {
            "seconds": round(sum(attempts()), 1),
            "attempts": attempts(),
            "processes": processes.num_processes,
        }
    result.description = {
        **result.description,
        **described,
        "notes": notes_on(settings),
        **spent,
        "command": command.given(),
    }
    if entry is not None and folder is not None:
        if processes.is_main_process:
            from headwise.store import Checkpoint

            result.save(folder, begun=True)
            entry.finish()
            Checkpoint(folder / "checkpoint").clear()
            (folder / SECONDS).unlink(missing_ok=True)
        processes.wait_for_everyone()
        result.folder = folder
    return result


def notes_on(settings: Train) -> list[str]:
    """What a reader of the scores must know of how they came about."""
    if settings.early_stopping is not None and settings.stopping_split == "validation":
        return [
            "early stopping chose the epoch on validation, the split that is reported, so these scores are "
            "optimistic"
        ]
    return []


def describe(model: Any, tasks: Sequence[Task], method: Method, settings: Train) -> dict[str, Any]:
    """Model, tasks, method and settings of a training, for its readers."""
    return {
        "model": str(model) if isinstance(model, str | Path) else type(model).__name__,
        "tasks": {task.name: task.split("train").fingerprint for task in tasks},
        "synthetic": [task.name for task in tasks if task.synthetic],
        "held_out": [task.name for task in tasks if task.holds_out],
        **method.describe(),
        **({"label": settings.label} if settings.label else {}),
        "settings": _deciding(method, settings),
    }


def _deciding(method: Method, settings: Train) -> dict[str, Any]:
    """The settings of the loop that decide a result, as JSON."""
    apart = {"pooling", "predict", "options"}  # noted by themselves
    loop_settings = method.settings(settings)
    return loop_settings.model_dump(mode="json", include=set(loop_settings.decides()) - apart)


def _train_together(model: Any, tasks: Sequence[Task], method: Method, settings: Train) -> TrainingResult:
    """One training through the loop, and the evaluation after it."""
    from headwise.training._evaluation import evaluate
    from headwise.training._graphs import how_run
    from headwise.training._loop import TrainingRun

    answering = _start(model, tasks, settings)
    run = TrainingRun(
        answering,
        tasks,
        method,
        settings,
        folder=settings.out,
        start=settings.start,
        branches=settings.branches,
    )
    further_tasks = settings.also or {}
    run.train()
    options: Any = {
        "max_length": settings.max_length,
        "accelerator": run.accelerator,
        "quiet": settings.quiet,
    }
    evaluations = []
    for task in tasks:
        answered = [task]
        if task.name in further_tasks:
            answered.append(further_tasks[task.name])
        for judged_task in answered:
            for split in ("validation", *settings.predict):
                if split in judged_task.splits:
                    evaluations.append(evaluate(answering, judged_task, split, decoder=task.name, **options))
    names = np.array(run.names)[run.plan]
    history = pd.DataFrame({"step": np.arange(len(run.plan)), "task": names, "loss": run.losses})
    predictions = pd.DataFrame()
    if evaluations:
        predictions = pd.concat([evaluation.table() for evaluation in evaluations], ignore_index=True)
    return TrainingResult(
        score_rows(evaluations),
        predictions,
        history,
        {"method": method.name, "steps": how_run(run)},
        method.heads,
        {"": answering},
    )


def _start(model: Any, tasks: Sequence[Task], settings: Train) -> Any:
    """The model a training begins with: what the user brings, with random weights and decoders of other
    shapes where asked for."""
    import torch

    from headwise.models import MultiTaskModel, open_model

    options: dict[str, Any] = {"tokenizer": settings.tokenizer, "pooling": settings.pooling}
    if not (settings.random_weights or settings.decoder_options):
        return open_model(model, tasks, need="trains", seed=settings.seed, **options)
    unknown = sorted(set(settings.decoder_options) - {task.name for task in tasks})
    if unknown:
        raise HeadwiseError(f"decoder_options name the task {unknown[0]!r}, which is not trained")
    started = open_model(model, need="encoder", **options)
    if started.tasks:
        raise HeadwiseError(
            "random_weights and decoder_options apply to an encoder without decoders; this model has decoders"
        )
    if settings.random_weights:
        started = MultiTaskModel(
            fresh(started.encoder, settings.seed), started.tokenizer, (), started.pooling
        )
    torch.manual_seed(settings.seed)
    for task in tasks:
        started.add_task(task, **settings.decoder_options.get(task.name, {}))
    return started


def _train_separately(model: Any, tasks: list[Task], method: SingleTask, settings: Train) -> TrainingResult:
    """Single-task trainings of all tasks, each from the same weights and in a folder of its own."""
    results = {}
    for task in tasks:
        own_model = model if isinstance(model, str | Path) else deepcopy(model)
        decoder = {name: value for name, value in settings.decoder_options.items() if name == task.name}
        folder = Path(settings.out) / task.name if settings.out is not None else None
        results[task.name] = _train(
            own_model, [task], method.each(), settings.with_changes(decoder_options=decoder, out=folder)
        )

    def together(name: str) -> pd.DataFrame:
        return pd.concat([getattr(result, name) for result in results.values()], ignore_index=True)

    models = {name: result.model for name, result in results.items()} if settings.out is None else {}
    ran = "; ".join(f"{name}: {result.description.get('steps')}" for name, result in results.items())
    return TrainingResult(
        together("scores"), together("predictions"), together("history"), {"steps": ran}, models=models
    )
