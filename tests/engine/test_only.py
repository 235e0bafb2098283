"""Some cells of a study, by their coordinates."""

import shlex
from pathlib import Path

import pytest
from sample_study import GridRecipe, TrainSettings, grid
from test_study import digests, go
from typer.testing import CliRunner

from headwise.cli import app
from headwise.cli.common import without_option
from headwise.engine._only import parse_only
from headwise.engine._run import Run
from headwise.errors import HeadwiseError
from headwise.store import _manifest as manifest

RECIPE = 'kind = "sample_study:grid"\nwidths = [8, 16]\nseeds = [0, 1]\n[training]\nsteps = 3\n'


def recipe() -> GridRecipe:
    return GridRecipe(kind="grid", widths=(8, 16), seeds=(0, 1), training=TrainSettings(steps=3))


def done(run: Path) -> list[str]:
    return sorted(cell["cell"] for cell in Run(run).cells() if cell["state"] == "done")


def test_only_some_cells_and_what_they_need_are_computed_and_then_the_rest(tmp_path: Path) -> None:
    run = tmp_path / "run"
    board = go(grid, recipe(), run, only={"width": {"8"}, "seed": {"1"}, "method": {"plain"}})
    assert (board.total, board.computed) == (2, 2)
    assert done(run) == ["score width=8 seed=1 method=plain", "train width=8 seed=1"]
    board = go(grid, recipe(), run, only={"seed": {"0", "1"}})
    assert (board.total, board.found, board.computed) == (12, 2, 10)
    board = go(grid, recipe(), run)
    assert (board.total, board.found, board.computed) == (13, 12, 1)
    go(grid, recipe(), tmp_path / "whole")
    assert digests(run) == digests(tmp_path / "whole")


@pytest.mark.parametrize(
    ("only", "said"),
    [
        (
            ["sede=1"],
            r"--only sede: no cell has it \(did you mean 'seed'\?\); cells have width, seed, method",
        ),
        (["seed=7"], "--only seed=7: no cell has it; seed is 0, 1"),
        (["seed=1", "method=plain", "width=9"], "--only width=9: no cell has it; width is 8, 16"),
        (["seed"], "--only seed: write it as name=value"),
        (["seed="], "--only seed=: write it as name=value"),
    ],
)
def test_what_no_cell_has_is_said_before_anything_is_computed(
    only: list[str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(HeadwiseError, match=said):
        go(grid, recipe(), tmp_path / "run", only=parse_only(only))
    assert not list((tmp_path / "run").glob("results/*/headwise.json"))


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    words = [
        "study",
        "run",
        str(tmp_path / "recipe.toml"),
        "--out",
        str(tmp_path / "run"),
        "--jobs",
        "0",
        "--quiet",
    ]
    found = CliRunner().invoke(app, [*words, "--only", "seed=0", "--only", "seed=1", "--only", "width=8"])
    assert found.exit_code == 0, found.output
    assert f"7 cells left: headwise study run {tmp_path / 'run'}" in found.stdout
    assert len(done(tmp_path / "run")) == 6
    CliRunner().invoke(app, words)
    found = CliRunner().invoke(app, [*words, "--only", "seed=0"])
    assert "left" not in found.stdout
    assert (
        manifest.read(tmp_path / "run")["command"] == f"headwise {shlex.join(words)}"
    )  # which makes all of it


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("headwise study run r.toml --only seed=0 seed=1 --jobs 2", "headwise study run r.toml --jobs 2"),
        ("headwise study run --only=seed=0 r.toml", "headwise study run r.toml"),
        ("headwise study run r.toml --set 'a=[1, 2]'", "headwise study run r.toml --set 'a=[1, 2]'"),
    ],
)
def test_a_command_less_an_option(command: str, left: str) -> None:
    assert without_option(command, "--only") == left
