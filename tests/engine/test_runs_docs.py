"""The example of docs/runs.md, file by file, works as the page says."""

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwise.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "runs.md"
FILE = re.compile(r'^```\w+ title="(.*?)"\n(.*?)^```', re.MULTILINE | re.DOTALL)


def test_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = dict(FILE.findall(PAGE.read_text(encoding="utf-8")))
    assert list(files) == ["heights.toml", "heights.py", "read.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for command in (
        "validate heights.toml",
        "run heights.toml --jobs 0",
        "run heights.toml --jobs 0 --set fit.slope=0.7 --out runs/steeper",
        "show runs/heights",
        "show runs/heights --check",
        "export runs/heights",
        "runs",
        "run runs/heights --jobs 0",
    ):
        result = CliRunner().invoke(app, ["study", *command.split()], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    exec(compile(files["read.py"], "read.py", "exec"), {})
    assert "{'coords': {'people': 50, 'seed': 0}, 'value': {'slope': 2.9" in capsys.readouterr().out
    sys.modules.pop("heights")
