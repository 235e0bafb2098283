"""A study of one's own: its section is in the report, and a folder cannot name code for the report to run."""

import sys
from pathlib import Path

import pandas as pd
import pytest

from headwise import engine
from headwise.errors import HeadwiseError
from headwise.report import read, write_report
from headwise.sections import Section, Table


@engine.step()
def count(out: engine.Out, *, heads: int) -> None:
    out.table("counts", pd.DataFrame({"heads": [heads]}))


class CountRecipe(engine.Recipe):
    heads: int = 7


def section(run: engine.Run) -> Section:
    return Section("Counting", ["Seven heads."], [Table("counts", "Counts", run.table("counts"))], "By hand.")


def part_of(run: engine.Run) -> Section:
    return Section("Counting", ["Some."], [], "By hand.")


study = engine.Study(
    CountRecipe, lambda recipe: [engine.Cell(count, {"heads": recipe.heads})], section=section
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    recipe, _ = engine.validate(study, {"kind": f"{__name__}:study"}, tmp_path, tmp_path / "run")
    assert not engine.run_study(study, recipe, tmp_path / "run", jobs=0, quiet=True).failed
    return tmp_path / "run"


def test_the_report_shows_the_section_of_an_own_study(run: Path, tmp_path: Path) -> None:
    page = write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h2>Counting: run</h2>" in page
    assert '<p class="headline">Seven heads.</p>' in page
    assert ">7</td>" in page
    assert read([run])[0].settings["heads"] == 7


def test_the_report_of_an_unfinished_study_says_so(tmp_path: Path) -> None:
    two = engine.Study(
        CountRecipe,
        lambda recipe: [engine.Cell(count, {"heads": n}, {"seed": n}) for n in range(recipe.heads)],
        section=part_of,
    )
    recipe, _ = engine.validate(two, {"kind": f"{__name__}:two", "heads": 3}, tmp_path, tmp_path / "run")
    sys.modules[__name__].two = two  # type: ignore[attr-defined]
    engine.run_study(two, recipe, tmp_path / "run", jobs=0, quiet=True, only={"seed": {"1"}})
    assert read([tmp_path / "run"])[0].findings == [
        "Unfinished: 1 of 3 cells are done; the rest is not shown.",
        "Some.",
    ]
    engine.run_study(two, recipe, tmp_path / "run", jobs=0, quiet=True)
    assert read([tmp_path / "run"])[0].findings == ["Some."]


def test_a_report_imports_no_module_that_a_folder_names(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, __name__)
    with pytest.raises(HeadwiseError, match="whose module is not imported"):
        read([run])


def test_study_run_ends_with_the_scores(run: Path) -> None:
    import json

    from typer.testing import CliRunner

    from headwise.cli import app

    words = ["study", "run", str(run), "--jobs", "0", "--quiet"]
    shown = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    assert shown.index("computed") < shown.index("Seven heads.") < shown.index("Counts")
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["findings"] == ["Seven heads."]
