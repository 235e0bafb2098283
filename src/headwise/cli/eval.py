"""`headwise eval`: compare a changed model with the intact one in lm-evaluation-harness."""

from typing import Annotated

import typer

from headwise.cli.common import Json, of_model, own_bars, show
from headwise.harness import Evaluate


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
    show(run(model, tasks, **settings.given()).section(), as_json, settings.out)
