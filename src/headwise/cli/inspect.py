"""`headwise inspect`: the anatomy of a model."""

from typing import Annotated

import typer

from headwise import heads, models
from headwise.cli.common import Json, Trust, show


def inspect(
    model: Annotated[
        str, typer.Argument(help="A model folder, a hub id, or 'demo' for the embedded MiniLM.")
    ],
    partial: Annotated[
        bool, typer.Option("--partial", help="Allow attention layers that headwise cannot reach.")
    ] = False,
    as_json: Json = False,
    trust_remote_code: Trust = False,
) -> None:
    """Finds every attention layer of a model and prints what it is made of.

    headwise inspect bert-base-uncased
    """
    opened = models.open_model(model, need="heads")
    show(heads.Heads(opened, partial=partial).section(), as_json, model=model)
