"""`headwise roles` on a saved model."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from circuit import circuit
from small import TEXTS, tokenizer
from typer.testing import CliRunner

import headwise as hw
from headwise.cli import app
from light import shown_without_torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("circuit") / "model"
    circuit().save_pretrained(place)
    tokenizer().save_pretrained(place)
    return place


def test_the_verb_prints_keeps_and_finds_again(folder: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    words = [
        "roles",
        "--model",
        str(folder),
        "--texts",
        str(texts),
        "--repeated",
        "20",
        "--sequences",
        "2",
        "--out",
        str(tmp_path / "out"),
    ]
    shown = CliRunner().invoke(
        app, [*words, "--roles", "induction", "--roles", "sink", "--quiet"], catch_exceptions=False
    )
    assert "induction" in shown.output
    assert "1.1 0.4" in shown.output
    told = CliRunner().invoke(
        app, [*words, "--roles", "induction", "--roles", "sink", "--json"], catch_exceptions=False
    )
    record = json.loads(told.output)
    again = hw.load(tmp_path / "out")
    np.testing.assert_allclose(record["roles"]["induction"], again.sel(role="induction"))
    assert record["tables"]["top"][0]["strongest head"].startswith("1.1 ")
    assert "1.1 0.4" in shown_without_torch(*words, "--roles", "induction", "--roles", "sink")


def test_heads_that_do_nothing_are_not_called_strong() -> None:
    """A role in which every head scores 0, as retrieval in a model that never copies the needle."""
    from headwise.behaviour._head_roles import findings, strongest_table

    values = np.zeros((2, 2, 3))
    values[1, 1] = [0.1, -0.2, 0.4]
    chance = xr.DataArray(np.full((2, 2), 0.05), dims=("role", "layer"))
    found = xr.DataArray(
        values, dims=("role", "layer", "head"), coords={"role": ["retrieval", "induction"], "chance": chance}
    )
    table = strongest_table(found, 4)
    assert list(table.columns) == ["role", "chance", "strongest head", "2nd head", "3rd head", "4th head"]
    assert table.iloc[:, 2:].to_numpy().tolist() == [["-"] * 4, ["1.2 0.40", "1.0 0.10", "-", "-"]]
    best = {role: hw.top_heads(found.sel(role=role), n=1, by="signed") for role in ("retrieval", "induction")}
    assert "No head scores above 0 for retrieval." in findings(found, best)


def test_the_report_shows_saved_roles(folder: Path, tmp_path: Path) -> None:
    from headwise.report import write_report
    from headwise.report.folders import sections_of

    out = tmp_path / "roles"
    found = hw.roles(folder, texts=TEXTS, repeated=20, sequences=2, out=out, quiet=True)
    (section,) = sections_of(out)
    score, chance = float(found.sel(role="induction")[1, 1]), float(found["chance"].sel(role="induction")[1])
    assert (
        f"The strongest head for induction is 1.1: {score:.2f}, where chance is {chance:.2f}."
        in section.findings
    )
    assert not any("function-vector" in said for said in section.findings)  # there were no pairs
    chart, maps, _, definitions = section.blocks
    np.testing.assert_array_equal(maps.values.sel(task="induction"), found.sel(role="induction"))  # type: ignore[union-attr]
    assert "function-vector" not in maps.values["task"]  # type: ignore[union-attr]
    drawn = chart.draw()  # type: ignore[union-attr]
    np.testing.assert_array_equal(drawn.axes[0].collections[0].get_array(), found[0])
    row = definitions.frame.set_index("role").loc["function-vector"]  # type: ignore[union-attr]
    assert "give pairs=" in row["note"]
    write_report([out], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "What heads do: roles" in page
    assert "headwise.roles" in page
