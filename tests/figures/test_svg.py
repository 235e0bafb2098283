"""Figures as parts of a page: text is text, identifiers are their own, and the same figure gives the same bytes."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from headwise.figures import _dissociation as dissociation, _training as training, panels, save_figure, svg

PAIRS = pd.DataFrame(
    {
        "A": ["a<b>"],
        "B": ['id="x" url(#y)'],
        "D_A": [1.0],
        "D_B": [2.0],
        "D": [1.5],
        "D_low": [1.0],
        "D_high": [2.0],
    }
)


def texts(element: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(element).iter("text")]


def test_text_stays_text_and_means_nothing_to_the_page() -> None:
    found = svg(dissociation.pair_scores(PAIRS), "one")
    assert 'a<b> – id="x" url(#y)' in texts(found)
    assert "dissociation (%)" in texts(found)
    (said,) = [title.text for title in ElementTree.fromstring(found).iter("title")]
    assert said == 'a<b> – id="x" url(#y): D 1.50 % (95 % interval 1.00 to 2.00), D_A 1.00, D_B 2.00'
    assert "<b>" not in found
    assert found.startswith("<svg ")
    assert not list(ElementTree.fromstring(found).iter("style"))  # a style would hold for the whole page


def test_identifiers_belong_to_one_figure_and_all_are_there() -> None:
    first, second = (svg(dissociation.pair_scores(PAIRS), name) for name in ("one", "two"))
    names: dict[str, set[str]] = {}
    for name, element in (("one", first), ("two", second)):
        root = ElementTree.fromstring(element)
        ids = [part.get("id") for part in root.iter() if part.get("id")]
        assert len(ids) == len(set(ids))
        assert ids
        used = {
            value
            for part in root.iter()
            if part.tag != "text"
            for value in re.findall(r"#(\w+-\w+)", str(part.attrib))
        }
        assert used == set(ids)  # clip paths and marks, none missing and none unused
        names[name] = used
    assert not names["one"] & names["two"]


def test_the_same_figure_gives_the_same_bytes() -> None:
    first, second = (svg(dissociation.pair_scores(PAIRS), "one") for _ in range(2))
    assert first == second
    assert not re.search(r"20\d\d-\d\d-\d\d", first)


def test_black_is_the_colour_of_the_page_and_the_background_is_the_page() -> None:
    table = pd.DataFrame([[1.0, 99.0]], index=["x"], columns=["a", "b"])
    found = svg(dissociation.matrix(table, "percent"), "one")
    assert "#000000" not in found
    assert "currentColor" in found
    assert "fill: #ffffff" not in re.sub(r"<text .*?</text>", "", found)
    light = next(text for text in ElementTree.fromstring(found).iter("text") if text.text == "99.0")
    assert "#111111" in light.get("style", "")  # on a yellow cell, dark on any page


@pytest.mark.parametrize("name", ["$", "a$b$c", "$\\frac{$"])
def test_names_with_dollars_are_names(name: str, tmp_path: Path) -> None:
    rows: dict[str, Any] = {"task": [name], "method": [name], "score": [0.5]}
    figure = training.scores(pd.DataFrame(rows))
    assert texts(svg(figure, "one")).count(name) == 2  # at the axis and in the legend
    (file,) = save_figure(figure, tmp_path / "one.pdf")
    assert file.stat().st_size > 1000


def test_logarithmic_axes_show_plain_numbers() -> None:
    table = pd.DataFrame(
        {
            "task": "cola",
            "method": "iat",
            "shots": [4, 16, 1000],
            "mean": [50.0, 55.0, 60.0],
            "sd": [1.0, 1.0, float("nan")],
        }
    )
    shown = texts(svg(training.transfer(table), "one"))
    assert {"4", "16", "1000"} <= set(shown)
    assert not [text for text in shown if "$" in text]


def test_a_panel_is_as_wide_as_asked() -> None:
    figure, _ = panels(size=(4.0, 3.0))
    width = ElementTree.fromstring(svg(figure, "one")).get("width", "")
    assert float(width.removesuffix("pt")) == pytest.approx(288, rel=0.05)
