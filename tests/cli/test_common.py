"""What verbs share on the command line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from headwise.cli import common, lists
from headwise.cli.common import Group, Verb
from headwise.errors import HeadwiseError

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
    assert run("x", "--tasks=a", "b") == "x [] ['a', 'b'] 1.0"
    assert run("x", "--shots", "4", "--rate", "-1e-3") == "x [4] [] -0.001"


def test_a_word_that_the_verb_needs_is_no_value_of_the_list_before_it() -> None:
    assert run("--tasks", "a", "b", "x") == "x [] ['a', 'b'] 1.0"
    assert run("--rate", "2", "--shots", "4", "16", "32") == "32 [4, 16] [] 2.0"
    assert (
        CliRunner().invoke(app, ["go", "--tasks", "a", "b", "x", "--rate", "2"]).exit_code == 2
    )  # which of them, nobody can tell


group = typer.Typer(cls=Group)


@group.callback(invoke_without_command=True)
def whole(
    tasks: Annotated[list[str] | None, typer.Option("--tasks")] = None,
    out: Annotated[str, typer.Option("--out")] = "runs",
    pairs: Annotated[bool, typer.Option("--pairs/--no-pairs")] = True,
) -> None:
    typer.echo(f"whole {tasks} {out} {pairs}")


@group.command("probe", cls=Verb)
def probe(tasks: Annotated[list[str] | None, typer.Option("--tasks")] = None) -> None:
    typer.echo(f"probe {tasks}")


@pytest.mark.parametrize(
    ("typed", "lines"),
    [
        ("--tasks pos dep", ["whole ['pos', 'dep'] runs True"]),
        ("--tasks pos dep --out probe", ["whole ['pos', 'dep'] probe True"]),
        ("--tasks pos probe", ["whole ['pos'] runs True", "probe None"]),
        ("--no-pairs probe --tasks pos dep", ["whole None runs False", "probe ['pos', 'dep']"]),
        ("--tasks probe", ["whole ['probe'] runs True"]),
    ],
)
def test_a_list_option_of_a_verb_with_verbs_of_its_own_takes_several_values_too(
    typed: str, lines: list[str]
) -> None:
    result = CliRunner().invoke(group, typed.split())
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == lines


def test_the_stem_cell_study_takes_its_tasks_in_a_row(tmp_path: Path) -> None:
    from headwise.cli import app as headwise

    with pytest.raises(HeadwiseError, match="--runs: given 1"):
        CliRunner().invoke(
            headwise,
            ["stemcells", "--tasks", "pos", "dep", "--runs", "1", "--out", str(tmp_path)],
            catch_exceptions=False,
        )


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every verb, and verbs of verbs."""
    yield path, command
    for name in getattr(command, "commands", {}):
        yield from commands(command.commands[name], (*path, name))


def test_every_list_option_of_every_verb_takes_several_values(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwise.cli import app as headwise

    found, seen = 0, []
    real = lists.spread_lists
    monkeypatch.setattr(
        common, "spread_lists", lambda *given: (seen.append(tuple(real(*given))), list(seen[-1]))[1]
    )
    for path, command in commands(typer.main.get_command(headwise)):
        for param in command.params:
            for option in param.opts if getattr(param, "multiple", False) else ():
                seen.clear()
                needed = [p.name for p in command.params if p.param_type_name == "argument"]
                words = [
                    *path,
                    *needed,
                    option,
                    "1",
                    "2",
                    "--no-such-option",
                ]  # which ends every verb once its lists are spread
                result = CliRunner().invoke(headwise, words)
                assert isinstance(result.exception, SystemExit), words
                assert seen[-1] == (*needed, option, "1", option, "2", "--no-such-option"), words
                found += 1
    assert found > 35
