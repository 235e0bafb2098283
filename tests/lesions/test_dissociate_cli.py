"""`headwise score` and `headwise dissociate`, on a saved planted model and tasks from CSV files."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import headwise as hw
import planted
from headwise.cli import app
from headwise.errors import HeadwiseError
from headwise.scoring._files import load_scores

RUN = CliRunner()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    both = planted.tasks(size=32)
    planted.model({"a": (0, 2), "b": (1, 1)}, both).save(folder / "model")
    blocks = []
    for name, task in both.items():
        rows = [
            f"{text[0]},{label},{split}"
            for split in ("train", "validation")
            for text, label in task.split(split)
        ]
        (folder / f"{name}.csv").write_text("text,label,split\n" + "\n".join(rows) + "\n")
        blocks.append(
            f'[{name}]\npath = "{name}.csv"\ntext = "text"\nlabel = "label"\nclasses = ["0", "1"]\n'
        )
    (folder / "tasks.toml").write_text("\n".join(blocks))
    return folder


def invoke(*arguments: str) -> str:
    found = RUN.invoke(app, list(arguments), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def test_score(place: Path) -> None:
    options = (
        "--model",
        str(place / "model"),
        "--tasks-file",
        str(place / "tasks.toml"),
        "--fraction",
        "0.125",
        "--device",
        "cpu",
    )
    record = json.loads(invoke("score", *options, "--out", str(place / "scores"), "--json"))
    assert record["top"] == {"a": [[0, 2]], "b": [[1, 1]]}
    saved = hw.load(place / "scores")
    np.testing.assert_allclose(saved.sel(task="a"), record["scores"]["a"])
    assert saved.attrs["method"] == "gate-gradient"
    assert "Top heads of each task" in invoke("score", *options)
    (place / "broken.nc").write_text("nothing")
    with pytest.raises(HeadwiseError, match="could not be read as scores"):
        load_scores(place / "broken.nc")


def test_dissociate_saves_shows_again_and_refuses_another(place: Path) -> None:
    out = place / "study"
    where = (
        "--model",
        str(place / "model"),
        "--tasks-file",
        str(place / "tasks.toml"),
        "--out",
        str(out),
        "--device",
        "cpu",
    )
    sizes = (
        "--fraction",
        "0.125",
        "--random-draws",
        "2",
        "--bootstrap",
        "199",
        "--fractions",
        "0.25",
        "0.5",
        "--test-draws",
        "199",
    )
    options = ("dissociate", *where, *sizes)
    first = json.loads(invoke(*options, "--json"))
    assert first["tables"]["pairs"][0]["verdict"] == "distinct"
    kept = hw.load(out)
    assert first["D"] == kept.d
    assert first["permutation_p"] is None  # one head each leaves two ways to split
    assert np.isnan(kept.permutation.p)
    assert first["permutation_note"] == kept.permutation.note
    assert first["sets"] == {name: [list(head) for head in heads] for name, heads in kept.sets.items()}
    assert (out / "performance.csv").is_file()
    assert (out / "figures" / "relative.pdf").is_file()
    again = invoke(*options)
    assert "distinct" in again
    assert "Performance in percent" in again
    with pytest.raises(HeadwiseError, match="seed was 0 and is 1"):
        invoke(*options, "--seed", "1")
