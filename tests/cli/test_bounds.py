"""Numbers that make no sense are one line and exit status 2 in every verb, at both ends of a fraction, before anything is computed."""

import sys
from pathlib import Path

import pytest
from typer.main import get_command

from headwise._base import command
from headwise.cli import app, main

TASKS = ["--tasks-file", "tasks.toml"]
SCORED = ["--model", "model", *TASKS]
VERBS: dict[str, list[str]] = {  # what each needs besides
    "score": SCORED,
    "dissociate": SCORED,
    "train": [*SCORED, "--out", "OUT"],
    "transfer": ["--from", "a=model", "--to", "mood", *TASKS, "--out", "OUT"],
    "similarity": ["--models", "mood=model", "--ahp", *TASKS, "--out", "OUT"],
    "probe": ["--model", "model", "--source", "tasks", "--tasks", "mood", *TASKS, "--out", "OUT"],
    "roles": ["--model", "model"],
    "steer": SCORED,
    "eval": ["--model", "model", "--tasks", "blimp", "--silence", "heads.json"],
    "demo": ["--out", "OUT"],
    "app": ["model"],
    "study run": ["recipe.toml", "--out", "OUT"],
    "stemcells": ["--out", "OUT"],
    "stemcells probe": ["--model", "model"],
}
WRONG: dict[str, tuple[str, ...]] = {
    "--fraction": ("0", "1", "-0.1", "nan"),
    "--fractions": ("0", "1"),
    "--level": ("0", "1"),
    "--alpha": ("-0.1", "1.1"),
    "--delta": ("-0.1", "1.1"),
    "--seeds": ("0", "-1"),
    "--seed": ("-1",),
    "--jobs": ("-1", "x"),
    "--threads": ("0",),
    "--port": ("-1", "70000"),
    "--max-length": ("0",),
    "--examples": ("0",),
    "--max-examples": ("0",),
    "--score-examples": ("0",),
    "--reference-examples": ("0",),
    "--random-draws": ("-1",),
    "--test-draws": ("-1",),
    "--batch-size": ("0",),
    "--epochs": ("0", "-1"),
    "--learning-rate": ("-1", "0"),
    "--size": ("0",),
    "--shots": ("0",),
    "--evaluate": ("0",),
    "--folds": ("0", "1"),
    "--top": ("0",),
    "--tasks-seed": ("-1",),
    "--min-per-layer": ("-1",),
    "--bootstrap": ("-1",),
    "--iterative": ("0", "-1"),
}


def options(verb: str) -> set[str]:
    command = get_command(app)
    for name in verb.split():
        command = command.commands[name]  # type: ignore[attr-defined]
    return {name for param in command.params for name in param.opts}


CASES = [
    (verb, name, value)
    for verb in VERBS
    for name, values in WRONG.items()
    if name in options(verb)
    for value in values
]


@pytest.mark.parametrize(("verb", "option", "value"), CASES, ids=[" ".join(case) for case in CASES])
def test_a_number_out_of_bounds_is_one_line(
    verb: str,
    option: str,
    value: str,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    (place / "recipe.toml").write_text(
        'kind = "probing"\n[models]\na = "model"\n[tasks]\nsource = "grammar"\n'
    )
    out = tmp_path / "out"
    given = [str(out) if word == "OUT" else word for word in VERBS[verb]]
    monkeypatch.setattr(sys, "argv", ["headwise", *verb.split(), *given, option, value])
    with pytest.raises(SystemExit) as end:
        main()
    printed, said = capsys.readouterr()
    assert end.value.code == 2, said
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(lines) == len(said.splitlines()) == 1, said
    assert option[2:].replace("-", "_") in lines[0].replace("-", "_"), lines[0]
    assert printed == ""
    assert not out.exists()
    assert command.given() == ""  # a refused command does not sign what is made after it
