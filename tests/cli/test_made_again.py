"""The command that a report prints, run as it stands but for its --out, makes the same tables again."""

import html
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from headwise import engine
from headwise._base.command import given
from headwise.cli import app
from headwise.errors import HeadwiseError
from headwise.report import read, write_report
from headwise.store import _manifest as manifest
from headwise.store._loading import load
from headwise.studies._probing_study import probing_study
from headwise.training import train
from headwise.training._result import TrainingResult

SHORT = "--epochs 1 --batch-size 8 --lr 1e-3 --max-length 9"
TRAIN = f"train --model model --tasks mood animal --tasks-file tasks.toml --method multi-task {SHORT} --seeds 2 --metric accuracy --out 'my run'"
DISSOCIATE = "dissociate --model 'my run/multi-task/seed-1' --fraction 0.25 --random-draws 2 --bootstrap 0 --seed 3 --no-figures --out D"
PROBE = "probe --model ours=model --tasks mood --tasks-file tasks.toml --controls none --top 3 --examples 20 --no-figures --jobs 0 --out P"
TRANSFER = "transfer --from 'my run' --to third --tasks-file tasks.toml --shots 4 --seeds 2 --epochs 1 --evaluate 12 --jobs 0 --out T"


@pytest.fixture(autouse=True)
def _inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(place)
    yield
    assert given() == ""  # a command ends with its verb


def run(words: list[str]) -> None:
    found = CliRunner().invoke(app, words, catch_exceptions=False)
    assert found.exit_code == 0, found.output


def printed(folder: Path) -> list[str]:
    """The command on the page, as a shell reads it."""
    page = write_report([folder], folder.parent / "again.html").read_text(encoding="utf-8")
    (shown,) = set(re.findall(r"To reproduce it:</p><pre>(.*?)</pre>", page, re.DOTALL))
    return shlex.split(html.unescape(shown))


def tables(folder: Path) -> dict[str, pd.DataFrame]:
    """Every number that a verb left."""
    record = manifest.read(folder) if (folder / manifest.NAME).is_file() else {}
    if record.get("kind") == "dissociation":
        found: Any = load(folder)
        return {kind: found.table(kind) for kind in ("performance", "summary", "pairs", "overlap")}
    if record.get("kind") == "study":
        names = ("transfer", "few-shot") if record["study"] == "transfer" else ("embeddings", "sweep")
        opened = engine.open(folder)
        return {name: opened.table(name).drop(columns=["seconds"], errors="ignore") for name in names}
    made = sorted(path.parent for path in folder.rglob("training.json"))
    return {str(one.relative_to(folder)): TrainingResult.load(one).predictions for one in made}


@pytest.mark.parametrize("command", [TRAIN, DISSOCIATE, PROBE, TRANSFER], ids=lambda text: text.split()[0])
def test_a_printed_command_makes_the_same_tables(command: str, place: Path, tmp_path: Path) -> None:
    if "my run" in command and not (place / "my run").exists():
        run(shlex.split(TRAIN))
    words = shlex.split(command)
    out = place / words[-1]
    if not out.exists():
        run(words)
    again = printed(out)
    assert again == ["headwise", *words]
    run([*again[1:-1], str(tmp_path / "again")])
    before, now = tables(out), tables(tmp_path / "again")
    assert list(before) == list(now)
    assert sum(map(len, before.values())) > 1
    for name, table in before.items():
        pd.testing.assert_frame_equal(table, now[name], obj=name)


def test_going_on_keeps_the_command_that_began_and_python_points_to_the_recipe(
    place: Path, tmp_path: Path
) -> None:
    recipe = {"kind": "probing", "models": {"ours": "model"}, "probing": {"controls": []}}
    tasks = {"source": "tasks", "names": ["mood"], "file": "tasks.toml"}
    checked, _ = engine.validate(probing_study, recipe | {"tasks": tasks}, place, "made")
    engine.run_study(probing_study, checked, "made", jobs=0, quiet=True)
    (section,) = read(["made"])
    assert section.reproduce == "headwise study run made --out made-again"
    run(["study", "run", "made", "--jobs", "0", "--quiet"])
    assert read(["made"])[0].reproduce == section.reproduce
    run([*shlex.split(section.reproduce)[1:], "--jobs", "0", "--quiet"])
    pd.testing.assert_frame_equal(
        tables(Path("made"))["embeddings"], tables(Path("made-again"))["embeddings"]
    )
    assert read(["made-again"])[0].reproduce == "headwise study run made --out made-again --jobs 0 --quiet"
    assert all("command" not in result.provenance for _, result in engine.open("made-again").results())


def test_what_python_made_says_so(place: Path) -> None:
    import toy

    train(str(place / "model"), [toy.task("mood", n=16)], "multi-task", out="by-hand", epochs=1)
    (section,) = read(["by-hand"])
    assert section.reproduce.startswith("# made from Python, not by a command: headwise.train(")
    assert section.settings["settings"]["epochs"] == 1


def test_a_study_does_not_write_over_another_result(place: Path) -> None:
    if not (place / "by-hand").exists():
        test_what_python_made_says_so(place)
    before = (place / "by-hand" / manifest.NAME).read_text()
    with pytest.raises(HeadwiseError, match="holds a saved multi-task"):
        run([*shlex.split(PROBE)[:-1], "by-hand"])
    assert (place / "by-hand" / manifest.NAME).read_text() == before
