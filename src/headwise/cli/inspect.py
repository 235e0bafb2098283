"""`headwise inspect`: the anatomy of a model."""

from typing import Annotated

import typer

from headwise.cli.common import Json, Trust, own_bars, show


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
    from headwise.heads import Heads
    from headwise.models import open_model

    own_bars()
    show(Heads(open_model(model, need="heads"), partial=partial).section(), as_json, model=model)
