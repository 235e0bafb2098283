"""What verbs share on the command line."""

from typing import Annotated

import typer
from typer.testing import CliRunner

from headwise.cli.common import Verb

app = typer.Typer()


@app.command("go", cls=Verb)
def go(
    first: str,
    shots: Annotated[list[int] | None, typer.Option("--shots")] = None,
    tasks: Annotated[list[str] | None, typer.Option("--tasks", "-t")] = None,
    rate: Annotated[float, typer.Option("--rate")] = 1.0,
) -> None:
    typer.echo(f"{first} {shots or []} {tasks or []} {rate}")


@app.command("other")
def other() -> None: ...


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["go", *words])
    assert result.exit_code == 0, result.output
    return result.output.strip()


def test_a_list_option_takes_several_values_in_a_row_or_one_at_a_time() -> None:
    assert run("x", "--shots", "4", "16", "-1", "--rate", "2") == "x [4, 16, -1] [] 2.0"
    assert run("x", "--shots", "4", "--shots", "16", "-t", "a", "b") == "x [4, 16] ['a', 'b'] 1.0"
    assert run("--rate", "3", "x", "--tasks", "a", "b", "--shots", "1") == "x [1] ['a', 'b'] 3.0"
