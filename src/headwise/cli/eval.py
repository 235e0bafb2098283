"""`headwise eval`: compare a changed model with the intact one in lm-evaluation-harness."""

from typing import Annotated

import typer

from headwise import harness
from headwise.cli.common import Json, model_option, show
from headwise.harness import Evaluate


def evaluate(
    settings: Evaluate,
    model: Annotated[str, model_option("A language model: a folder, hub id or GGUF file.")],
    tasks: Annotated[list[str], typer.Option("--tasks", help="Tasks of lm-evaluation-harness.")],
    as_json: Json = False,
) -> None:
    """Runs lm-evaluation-harness on a changed model and on the intact one: paired differences, with intervals
    over examples.

    headwise eval --model gpt2 --silence heads.json --tasks blimp hellaswag --limit 200 --out
    runs/gpt2-silenced
    """
    show(harness.run_harness(model, tasks, **settings.given()).section(), as_json, settings.out)
