"""`headwise train`: models on tasks, by one or several methods and seeds."""

import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli.common import Resumable, Trust, emit, own_bars, print_table
from headwise.errors import HeadwiseError
from headwise.training.methods import METHODS


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("train", cls=Resumable)(train)


def train(
    model: Annotated[str, typer.Option("--model", "-m", help="A model folder or hub id; 'demo' is the embedded MiniLM.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where results go; the same command again continues.")],
    tasks: Annotated[list[str] | None, typer.Option(help="Presets (sst2 mrpc), grammar:topic, names in --tasks-file.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder that holds the presets' data sets; default: the hub.")] = None,
    tasks_file: Annotated[Path | None, typer.Option(help="TOML file that defines tasks.")] = None,
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
    seeds: Annotated[int, typer.Option(help="How many seeds (0, 1, ...).")] = 1,
    epochs: Annotated[int | None, typer.Option(help="Epochs (default 5).")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per step (default 32).")] = None,
    learning_rate: Annotated[float | None, typer.Option("--learning-rate", "--lr", help="Default 2e-5.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Tokens per text or pair (default 256).")] = None,
    max_examples: Annotated[int | None, typer.Option(help="Most training examples of each task.")] = None,
    precision: Annotated[str | None, typer.Option(help="no, bf16 or fp16.")] = None,
    pooling: Annotated[str | None, typer.Option(help="cls, last or mean; default: the model family's own.")] = None,
    metric: Annotated[str | None, typer.Option(help="One metric for all tasks, e.g. accuracy.")] = None,
    size: Annotated[int, typer.Option(help="Training examples of a grammar task.")] = 2000,
    predict: Annotated[
        list[str] | None, typer.Option(help="Splits to predict; 'test' also writes GLUE submission files.")
    ] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Any other setting or method option: --set warmup=0.06")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    trust_remote_code: Trust = False,
) -> None:
    """Trains a model on tasks by one or several methods, and prints tasks × methods, mean ± sd over seeds.

    headwise train --model bert-base-uncased --data DIR --tasks sst2 mrpc rte --method iat --alpha 0.3 --seeds 3 --out runs/glue
    """
    from accelerate import PartialState

    from headwise.tasks.naming import find_tasks
    from headwise.training.grid import compare
    from headwise.training.submission import write_submissions

    own_bars()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a cluster that takes the machine back is Ctrl-C too
    found = find_tasks(tasks or [], data, tasks_file, size=size, metric=metric)
    # MNLI's second validation set is asked of the same decoder, not trained on again
    mismatched = [task for task in found if task.name == "mnli_mm" and any(other.name == "mnli" for other in found)]
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
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None} | dict(map(_pair, sets or []))
    methods = method or ["iat"]
    result = compare(
        model,
        [task for task in found if task not in mismatched],
        methods,
        seeds=seeds,
        out=out,
        also=dict.fromkeys(["mnli"], mismatched[0]) if mismatched else None,
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
    synthetic = [task.name for task in found if task.synthetic]
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
    without = [task.name for task in found if any(split not in task.splits for split in predict or [])]
    if without:
        typer.echo(f"not predicted, for want of such a split: {', '.join(without)}", err=True)
    typer.echo(f"results in {out}" + (f", {len(files)} submission files" if files else ""))


def _pair(text: str) -> tuple[str, Any]:
    """One `key=value`; values are read as TOML where they can be, else as text."""
    from headwise.runs.recipe import set_value

    name, equals, value = text.partition("=")
    if not equals:
        raise HeadwiseError(f"--set {text}: write it as key=value, e.g. --set warmup=0.06")
    read = set_value(value)
    return name.strip().replace("-", "_"), tuple(read) if isinstance(read, list) else read
