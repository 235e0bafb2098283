"""`headwise roles` on a saved model."""

import json
from pathlib import Path

import numpy as np
import pytest
from circuit import circuit
from small import TEXTS, tokenizer
from typer.testing import CliRunner

import headwise as hw
from headwise.cli import app


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
    shown = CliRunner().invoke(app, [*words, "--roles", "induction", "--roles", "sink", "--quiet"], catch_exceptions=False)
    assert "induction" in shown.output
    assert "1.1 0.4" in shown.output
    told = CliRunner().invoke(app, [*words, "--roles", "induction", "--roles", "sink", "--json"], catch_exceptions=False)
    record = json.loads(told.output)
    again = hw.load(tmp_path / "out")
    np.testing.assert_allclose(record["roles"]["induction"], again.sel(role="induction"))
    assert record["top"][0]["head 1"].startswith("1.1 ")
