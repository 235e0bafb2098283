"""`headwise app`: a local page for lesion studies by hand."""

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.common import Trust, Verb, own_bars


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("app", cls=Verb)(serve)


def serve(
    source: Annotated[
        str, typer.Argument(metavar="MODEL_OR_RUN", help="A model folder, a hub id, or a run of `headwise train`.")
    ],
    tasks: Annotated[
        list[str] | None, typer.Option(help="Tasks with data: presets, grammar:topic, names in --tasks-file.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the presets' data sets.")] = None,
    tasks_file: Annotated[Path | None, typer.Option(help="TOML file that defines tasks.")] = None,
    metric: Annotated[str | None, typer.Option(help="One metric for all tasks; default: as the model was trained.")] = None,
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8050,
    host: Annotated[str, typer.Option(help="Where to listen; other machines only reach it if you change this.")] = "127.0.0.1",
    allow_host: Annotated[list[str] | None, typer.Option(help="Further host names that requests may name.")] = None,
    trust_remote_code: Trust = False,
) -> None:
    """Serves a page on this machine: silence heads, drag gates, and watch predictions change.

    headwise app runs/first --tasks sst2 mrpc --data DIR
    """
    from headwise.app import Server, open_session
    from headwise.decoders.memory import remembered_tasks

    own_bars()
    found = remembered_tasks(source, tasks, data, tasks_file, metric=metric) if tasks or tasks_file else []
    session = open_session(source, found)
    server = Server(session, host, port, tuple(allow_host or ()))
    typer.echo(f"headwise app for {session.name}: {server.url} (Ctrl-C ends it)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        typer.echo("ended")
    finally:
        server.server_close()
