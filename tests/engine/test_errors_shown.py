"""What a cell's error says is stored and shown within bounds, and commands no terminal."""

import json
from pathlib import Path
from typing import Any

import pytest
from sample_study import TrivialRecipe, many
from typer.testing import CliRunner

from headwise import engine
from headwise._base.names import legible
from headwise.cli import app, common
from headwise.engine import _worker

COMMANDS = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202eevil\u2028\0"


@pytest.mark.parametrize("text", ["", "plain, naïve – two\nlines\tand a tab", "日本語", "x" * 2000])
def test_ordinary_text_stays(text: str) -> None:
    assert legible(text) == text


def test_what_commands_a_terminal_is_escaped_and_the_middle_of_a_long_text_left_out() -> None:
    shown = legible(f"a{COMMANDS}\ud800b")
    assert shown == "a\\x1b]0;owned\\x07\\x1b[2J\\r\\x9b31m\\u202eevil\\u2028\\x00\\ud800b"
    long = legible("a" * 30_000_000 + "z")
    assert len(long) < 2100
    assert long.startswith("aaa")
    assert long.endswith("az")
    assert "(29998001 characters left out)" in long


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose one cell failed with fifty megabytes of control characters."""

    def fail(out: Any, **arguments: Any) -> None:
        raise ValueError(COMMANDS * 2_500_000)

    monkeypatch.setattr(_worker, "resolve", lambda target: fail)
    monkeypatch.setattr(_worker, "typed", lambda target, config: config)
    board = engine.run_study(many, TrivialRecipe(kind="many", cells=1), tmp_path / "run", jobs=0, quiet=True)
    assert board.failed == 1
    return tmp_path / "run"


def test_a_stored_error_is_bounded_and_escaped(failed: Path) -> None:
    (file,) = (failed / "failures").glob("*.json")
    assert file.stat().st_size < 200_000
    record = json.loads(file.read_text())
    for text in (record["error"], record["log"]):
        assert text.replace("\n", "").isprintable()
    assert record["error"].startswith("ValueError: \\x1b]0;owned")
    assert "Traceback" in record["log"]


def test_an_error_that_was_stored_elsewhere_is_shown_as_harmlessly(failed: Path) -> None:
    (file,) = (failed / "failures").glob("*.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"error": COMMANDS * 1000}))
    (cell,) = engine.open(failed).cells()
    assert cell["error"].replace("\n", "").isprintable()
    assert len(cell["error"]) < 5000
    result = CliRunner().invoke(app, ["study", "show", str(failed)])
    assert "\x1b]" not in result.output
    assert "\x9b" not in result.output


def test_the_command_line_shows_errors_as_harmlessly(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        common.fail(f"the file says {COMMANDS * 100_000}")
    said = capsys.readouterr().err
    assert len(said) < 30_000
    assert "\x1b]" not in said
    assert said.startswith("error: the file says \\x1b]0;owned")


def test_what_is_said_of_a_full_gpu_is_found_in_a_long_error() -> None:
    outcome = _worker._failed(
        Path("/nowhere"),
        {"folder": "x"},
        RuntimeError("x" * 9999 + " CUDA error: out of memory " + "y" * 9999),
        0.0,
    )
    assert outcome["full"] is True
