"""Every number in a table of docs/results stands in the CSV file beside it, which says where it comes from."""

import importlib.util
import re
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PAGES = sorted(RESULTS.glob("*.md"))
FILES = sorted(RESULTS.rglob("*.csv"))

spec = importlib.util.spec_from_file_location("results_tables", RESULTS / "tables.py")
assert spec is not None
assert spec.loader is not None
tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tables)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_table_is_its_file(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert tables.filled(text) == text, "python docs/results/tables.py fill"
    left = re.sub(tables.DIRECTIVE, "", text)
    assert not re.search(r"^\|", left, re.M), "a table without its <!-- table: … --> line"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_number_is_in_the_file(page: Path) -> None:
    """Read by another way than the one that writes them: cell by cell, at the precision that is printed."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"<!-- table: (.*?) -->\n\n((?:\|.*\n)+)", text):
        frame, _ = tables.chosen(found[1])
        header, _, *rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in found[2].splitlines()]
        assert header == [str(name) for name in frame.columns]
        assert len(rows) == len(frame)
        for row, values in zip(rows, frame.itertuples(index=False), strict=True):
            for cell, value in zip(row, values, strict=True):
                if isinstance(value, float):
                    places = len(cell.partition(".")[2])
                    assert cell == "–" if value != value else abs(float(cell) - value) <= 0.5 * 10**-places + 1e-12, (row, value)
                else:
                    assert cell == str(value)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_file_says_where_it_comes_from(file: Path) -> None:
    said = tables.notes(file)
    assert {"recipe", "commit", "machine", "date"} <= set(said)
    assert any(key.startswith("weights of ") for key in said), "name the checksum of the model's weights"
    recipe = said["recipe"].split(" ")[0]
    assert recipe == "none" or (RESULTS.parents[1] / recipe).is_file(), recipe


def test_a_changed_number_is_noticed() -> None:
    page = next(page for page in PAGES if "<!-- table:" in page.read_text(encoding="utf-8"))
    text = page.read_text(encoding="utf-8")
    number = re.search(r"\| (\d+\.\d)", text)
    assert number is not None
    changed = text[: number.start(1)] + "99.9" + text[number.end(1) :]
    assert tables.filled(changed) == text
