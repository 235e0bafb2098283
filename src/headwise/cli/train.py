"""`headwise train`: models on tasks, by one or several methods and seeds."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headwise import training
from headwise.cli.common import Json, model_option, show
from headwise.cli.verbs import flag, help_of, options_of
from headwise.errors import HeadwiseError
from headwise.tasks import TaskSource
from headwise.training import Train
from headwise.training.methods import METHODS


def train(
    source: TaskSource,
    settings: Train,
    model: Annotated[str, model_option("A model folder or hub id; 'demo' is the embedded MiniLM.")],
    out: Annotated[Path, typer.Option("--out", "-o", help=help_of(Train, "out"))],
    method: Annotated[
        list[str] | None,
        typer.Option(
            help=f"One or more methods to compare: {', '.join(METHODS)}. [default: iat, important-head "
            "training]"
        ),
    ] = None,
    alpha: Annotated[
        list[float] | None,
        typer.Option(
            help="Fraction of heads that a task updates (iat) or prunes (prune) (α); several: a sweep."
        ),
    ] = None,
    delta: Annotated[
        list[float] | None,
        typer.Option(
            help="Fraction of training, at the end, during which alpha applies (δ); several: a sweep."
        ),
    ] = None,
    variant: Annotated[
        str | None, typer.Option(help="How iat and others score heads: eq4 (default), michel, iap, iat, ...")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds, counted from --seed.", min=1)] = 1,
    as_json: Json = False,
) -> None:
    """Trains a model on tasks by one or several methods, and prints tasks × methods, mean ± sd over seeds.

    headwise train --model bert-base-uncased --data DIR --tasks sst2 mrpc rte --method iat --alpha 0.3 --seeds
    3 --out runs/glue
    """
    # a cluster that takes the machine back is Ctrl-C too
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for name in settings.options:
        if name in options_of(Train):
            raise HeadwiseError(
                f"--set {name}: it is not an option of a method but a setting: {flag(name, Train)}"
            )
    tasks, single_tasks = source.find_trained()
    options = dict(settings.options)
    if variant is not None:
        options["variant"] = variant
    result = training.compare(
        model,
        tasks,
        method or ["iat"],
        seeds=seeds,
        sweep={name: values for name, values in (("alpha", alpha), ("delta", delta)) if values},
        **settings.with_changes(out=out, also=single_tasks, options=options).given(),
    )
    if not training.is_first_process():
        return
    files = []
    if "test" in settings.predict:
        files = [str(path) for path in training.write_submissions(result, out)]
    section = result.section()
    every_task = [*tasks, *single_tasks.values()]
    lacking = [task.name for task in every_task if not set(settings.predict) <= set(task.splits)]
    if lacking:
        note = f"not predicted because they lack that split: {', '.join(lacking)}"
        section = replace(section, notes=[*section.notes, note])
    show(section, as_json, out, files=files)
