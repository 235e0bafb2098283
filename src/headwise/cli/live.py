"""`headwise app`: a local page for lesion studies by hand."""

from pathlib import Path
from typing import Annotated

import typer

from headwise import app, models
from headwise.cli.common import Trust
from headwise.tasks import TaskSource


def serve(
    tasks: TaskSource,
    source: Annotated[
        str,
        typer.Argument(
            metavar="MODEL_OR_RUN",
            help="A model folder, a hub id, a run of `headwise train` or of `headwise steer`.",
        ),
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 8050,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; the default accepts connections from this machine only."),
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Additional host names to accept in requests.")
    ] = None,
    steer: Annotated[
        Path | None, typer.Option(help="Steering of a language model: a folder of `headwise steer --out`.")
    ] = None,
    trust_remote_code: Trust = False,
) -> None:
    """Serves a page on this machine: silence heads, drag gates, and watch predictions change.

    headwise app runs/first --tasks sst2 mrpc --data DIR
    """
    examples = models.remembered_tasks(source, tasks) if tasks.names or tasks.file else []
    session = app.open_session(source, examples, steer)
    server = app.Server(session, host, port, tuple(allow_host or ()))
    typer.echo(f"headwise app for {session.name}: {server.url} (press Ctrl-C to stop)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        typer.echo("ended")
    finally:
        server.server_close()
