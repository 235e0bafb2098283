"""`headwise eval`: compare a changed model with the intact one in lm-evaluation-harness."""

from typing import Annotated

import typer

from headwise._base.least import EXPLAINED
from headwise.cli.common import Json, emit, of_model, own_bars, print_table
from headwise.harness._settings import Evaluate


def evaluate(
    settings: Evaluate,
    model: Annotated[str, of_model("A language model: a folder, hub id or GGUF file.")],
    tasks: Annotated[list[str], typer.Option("--tasks", help="Tasks of lm-evaluation-harness.")],
    as_json: Json = False,
) -> None:
    """Runs lm-evaluation-harness on a changed model and on the intact one: paired differences, with intervals over examples.

    headwise eval --model gpt2 --silence heads.json --tasks blimp hellaswag --limit 200 --out runs/gpt2-silenced
    """
    from headwise.harness import run_harness as run

    own_bars()
    result = run(model, tasks, **settings.given())
    record = {
        "table": result.table.to_dict("records"),
        "notes": result.notes,
        "settings": result.settings,
        "out": str(settings.out) if settings.out else None,
    }
    if emit(record, as_json):
        return
    caption = (
        f"{result.settings['change']}; {100 * result.settings['level']:.3g} % interval of the paired difference over examples"
    )
    print_table("Intact and changed", list(result.table.columns), result.table.to_numpy().tolist(), caption)
    for note in result.notes:
        typer.echo(f"note: {note}")
    typer.echo(EXPLAINED)
    if settings.out is not None:
        typer.echo(f"tables and examples in {settings.out}")
