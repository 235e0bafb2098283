"""The command line as a stranger meets it: help, examples, errors, Ctrl-C, colours, completion."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from headwise.cli import SECTIONS, app, main
from headwise.errors import HeadwiseError

HEADWISE = [sys.executable, "-c", "from headwise.cli import main; main()"]
ENV = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "80"}


def verbs(command: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    inner = getattr(command, "commands", {})
    return ([path] if path else []) + [
        found for name, one in inner.items() for found in verbs(one, (*path, name))
    ]


VERBS = verbs(get_command(app))


def help_of(*words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.output


def test_help_fits_a_screen_in_groups_that_name_every_verb() -> None:
    shown = help_of()
    assert len(shown.splitlines()) <= 40
    assert max(map(len, shown.splitlines())) <= 80
    assert sorted(verb for section in SECTIONS.values() for verb in section) == sorted(
        path[0] for path in VERBS if len(path) == 1
    )
    for heading, commands in SECTIONS.items():
        assert f"{heading}:" in shown
        assert all(text in shown for text in commands.values())


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_every_verb_has_an_example_that_can_be_copied(path: tuple[str, ...]) -> None:
    shown = help_of(*path)
    assert max(map(len, shown.splitlines())) <= 80
    example = shown.split("Example:")[1].split("\n\n")[1]
    words = example.replace("\\\n", " ").split()
    assert words[: 1 + len(path[:1])] == ["headwise", path[0]]
    known = {name for param in _command(path).params for name in (*param.opts, *param.secondary_opts)}
    if "run" not in words:  # the group's example is one of its verbs
        assert {word for word in words if word.startswith("-")} <= known


def _command(path: tuple[str, ...]) -> object:
    command = get_command(app)
    for name in path:
        command = command.commands[name]  # type: ignore[attr-defined]
    return command


def test_an_error_is_one_line_and_a_traceback_comes_with_debug_alone() -> None:
    words = ["score", "--model", "/no/such/folder", "--tasks", "grammar:topic", "--size", "64"]
    plain = subprocess.run([*HEADWISE, *words], env=ENV, capture_output=True, text=True)
    assert plain.returncode == 2
    assert "/no/such/folder" in plain.stderr
    assert len(plain.stderr.splitlines()) == 1
    assert "\x1b" not in plain.stderr
    debug = subprocess.run([*HEADWISE, "--debug", *words], env=ENV, capture_output=True, text=True)
    assert debug.returncode == 1
    assert "Traceback" in debug.stderr


def test_a_missing_folder_of_a_trained_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        HeadwiseError, match="no task was named, and there is no folder 'runs/none' that remembers its own"
    ):
        CliRunner().invoke(app, ["score", "--model", "runs/none"], catch_exceptions=False)
    (tmp_path / "iat" / "seed-0").mkdir(parents=True)
    (tmp_path / "iat" / "seed-0" / "headwise.json").write_text("{}")
    with pytest.raises(
        HeadwiseError, match=r"but in .*seed-0: open one of these"
    ):  # a folder of several trainings
        CliRunner().invoke(app, ["score", "--model", str(tmp_path)], catch_exceptions=False)


@pytest.mark.parametrize(
    "words", ["score --model ./none --tasks sst2", "train --model ./none --out x", "probe --model a=./none"]
)
def test_a_model_that_is_not_there_is_said_before_torch_is_loaded(words: str) -> None:
    code = "import sys\nfrom headwise.cli import main\ntry:\n    main()\nfinally:\n    print('torch' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code, *words.split()], env=ENV, capture_output=True, text=True
    )
    assert found.returncode == 2
    assert found.stderr.strip() == "error: there is no folder './none' to open a model from"
    assert found.stdout.strip() == "False"


def test_an_error_nobody_foresaw_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(name: str, need: str) -> None:
        raise RuntimeError("wires crossed")

    monkeypatch.setattr("headwise.models._opening.open_model", broken)
    monkeypatch.setattr(sys, "argv", ["headwise", "inspect", "demo"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    assert "RuntimeError: wires crossed" in capsys.readouterr().err


def test_examples_of_a_verb_are_commands_to_copy() -> None:
    from headwise.cli.common import _examples

    assert (
        _examples("Does it.\n\nheadwise a\nheadwise b --c d")
        == "Does it.\n\nExamples:\n\n\b\nheadwise a\nheadwise b --c d"
    )
    shown = _examples("headwise " + "word " * 20)
    assert shown.startswith("Example:\n\n\b\nheadwise word")
    assert " \\\n    word" in shown


def test_colours_are_left_out_where_no_color_is_set() -> None:
    shown = {
        given: subprocess.run(
            [*HEADWISE, "study", "runs", "/no/such/folder"],
            env=ENV | {"FORCE_COLOR": "1"} | given_env,
            capture_output=True,
            text=True,
        ).stderr
        for given, given_env in {"colour": {}, "none": {"NO_COLOR": "1"}}.items()
    }
    assert "\x1b[1;31m" in shown["colour"]
    assert "31m" not in shown["none"]


def test_completion_knows_the_verbs() -> None:
    asked = ENV | {"_HEADWISE_COMPLETE": "complete_bash", "COMP_WORDS": "headwise diss", "COMP_CWORD": "1"}
    found = subprocess.run(
        [str(Path(sys.executable).parent / "headwise")], env=asked, capture_output=True, text=True
    )
    assert found.stdout.split() == ["dissociate"]


def test_ctrl_c_leaves_a_training_that_the_same_command_ends(tmp_path: Path) -> None:
    words = [
        "train",
        "--model",
        "demo",
        "--tasks",
        "grammar:topic",
        "--size",
        "100",
        "--epochs",
        "1",
        "--method",
        "multi-task",
    ]
    words += ["--seeds", "2", "--max-length", "16", "--out", str(tmp_path / "out"), "--json"]
    process = subprocess.Popen(
        [*HEADWISE, *words],
        env=ENV,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a test run in the background ignores it
    )
    first = tmp_path / "out" / "multi-task" / "seed-0" / "training.json"
    end = time.monotonic() + 120
    while (
        (not first.exists() or (first.parent / "started.json").exists())
        and process.poll() is None
        and time.monotonic() < end
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"interrupted; finished work is in {tmp_path / 'out'}, rerun the command to resume" in said
    assert "Traceback" not in said
    before = first.stat().st_mtime_ns
    again = subprocess.run([*HEADWISE, *words], env=ENV, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert first.stat().st_mtime_ns == before
    assert (tmp_path / "out" / "multi-task" / "seed-1" / "training.json").exists()
