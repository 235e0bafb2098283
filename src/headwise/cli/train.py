"""`headwise train`: models on tasks, by one or several methods and seeds."""

import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli.common import Json, Resumable, Trust, emit, own_bars, print_table
from headwise.cli.verbs import pair, verb
from headwise.tasks._source import TaskSource
from headwise.training.methods import METHODS


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    verb(app, "train", train, Resumable)


def train(
    source: TaskSource,
    model: Annotated[str, typer.Option("--model", "-m", help="A model folder or hub id; 'demo' is the embedded MiniLM.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where results go; the same command again continues.")],
    method: Annotated[
        list[str] | None, typer.Option(help=f"One or more methods, which are compared (default: iat): {', '.join(METHODS)}.")
    ] = None,
    alpha: Annotated[
        list[float] | None, typer.Option(help="Share of heads a task updates (iat) or does without (prune); several: a sweep.")
    ] = None,
    delta: Annotated[
        list[float] | None, typer.Option(help="Share of the steps, at the end, in which it does; several: a sweep.")
    ] = None,
    variant: Annotated[str | None, typer.Option(help="How importance is computed: eq4 (default), michel, iap, iat, ...")] = None,
    sampling: Annotated[str | None, typer.Option(help="proportional, square-root, annealed, temperature, uniform, ...")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds (0, 1, ...).", min=1)] = 1,
    epochs: Annotated[int | None, typer.Option(help="Epochs (default 5).")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per step (default 32).")] = None,
    learning_rate: Annotated[float | None, typer.Option("--learning-rate", "--lr", help="Default 2e-5.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens per text or pair (default 256).")] = None,
    max_examples: Annotated[int | None, typer.Option(help="Most training examples of each task.")] = None,
    precision: Annotated[str | None, typer.Option(help="no, bf16 or fp16.")] = None,
    pooling: Annotated[str | None, typer.Option(help="cls, last or mean; default: the model family's own.")] = None,
    predict: Annotated[
        list[str] | None, typer.Option(help="Splits to predict; 'test' also writes GLUE submission files.")
    ] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Any other setting or method option: --set warmup=0.06")] = None,
    as_json: Json = False,
    trust_remote_code: Trust = False,
) -> None:
    """Trains a model on tasks by one or several methods, and prints tasks × methods, mean ± sd over seeds.

    headwise train --model bert-base-uncased --data DIR --tasks sst2 mrpc rte --method iat --alpha 0.3 --seeds 3 --out runs/glue
    """
    from accelerate import PartialState

    from headwise.training._grid import compare
    from headwise.training._submission import write_submissions

    own_bars()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a cluster that takes the machine back is Ctrl-C too
    found, also = source.find_trained()
    given = {
        "variant": variant,
        "sampling": sampling,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "max_length": max_length,
        "max_examples": max_examples,
        "precision": precision,
    }
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None} | dict(map(pair, sets or []))
    methods = method or ["iat"]
    result = compare(
        model,
        found,
        methods,
        seeds=seeds,
        out=out,
        also=also,
        predict=predict or [],
        pooling=pooling,
        sweep={name: values for name, values in (("alpha", alpha), ("delta", delta)) if values},
        **settings,
    )
    if not PartialState().is_main_process:
        return
    files = [str(path) for path in write_submissions(result, out)] if predict and "test" in predict else []
    table = result.table()
    if emit(
        {
            "out": str(out),
            "scores": result.scores.to_dict("records"),
            "table": table.to_dict(),
            "notes": result.notes,
            "files": files,
        },
        as_json,
    ):
        return
    synthetic = [task.name for task in (*found, *also.values()) if task.synthetic]
    caption = f"validation, percent{f', mean ± sd over {seeds} seeds' if seeds > 1 else ''}"
    caption += f"; synthetic text: {', '.join(synthetic)}" if synthetic else ""
    asked = result.scores[result.scores["split"] == "validation"].drop_duplicates("task").set_index("task")
    rows = [
        [task, *([asked["metric"][task], f"{100 * asked['chance'][task]:.1f}"] if task in asked.index else ["", ""]), *values]
        for task, values in zip(table.index, table.to_numpy().tolist(), strict=True)
    ]
    caption += "; at chance: a guess that ignores the text could do as well" if table.stack().str.contains("chance").any() else ""
    print_table(f"{Path(model).name}: {', '.join(methods)}", ["task", "metric", "chance", *table.columns], rows, caption)
    for note in result.notes:
        typer.echo(f"note: {note}")
    without = [task.name for task in (*found, *also.values()) if any(split not in task.splits for split in predict or [])]
    if without:
        typer.echo(f"not predicted, since they have no such split: {', '.join(without)}", err=True)
    typer.echo(f"results in {out}" + (f", {len(files)} submission files" if files else ""))
