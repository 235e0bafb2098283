"""docs/results/tables.py collect: the tables of finished runs as CSV files that say where they come from."""

import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from headwise import engine

FILE = Path(__file__).parents[1] / "docs" / "results" / "tables.py"
spec = importlib.util.spec_from_file_location("results_tables", FILE)
assert spec is not None
assert spec.loader is not None
tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tables)


class SumsRecipe(engine.Recipe):
    title: str = "Sums, added up"
    model: str
    numbers: tuple[int, ...] = (1, 2)


@engine.step()
def third(out: engine.Out, *, number: int) -> None:
    out.table("parts", pd.DataFrame({"third": [number / 3]}))


@engine.step()
def add_up(out: engine.Out, *, model: str, thirds: list[engine.Result]) -> None:
    parts = [float(result.table("parts")["third"].iloc[0]) for result in thirds]
    frame = pd.DataFrame({"model": model, "part": [f"p{i}" for i in range(len(parts))], "third": parts})
    out.table("sums", frame.assign(unit="points"))
    out.table("also", pd.DataFrame({"model": [model], "total": [sum(parts)]}))


def cells(recipe: SumsRecipe) -> Iterator[engine.Cell]:
    parts = [engine.Cell(third, {"number": n}, {"number": n}) for n in recipe.numbers]
    yield from parts
    yield engine.Cell(add_up, {"model": recipe.model, "thirds": parts})


sums = engine.Study(SumsRecipe, cells)


def computed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    numbers: tuple[int, ...],
    commit: str | None = "fedcba9",
) -> Path:
    """A finished run of the study, with a model of its own, computed at `commit`."""
    monkeypatch.setattr("headwise.store._provenance._commit", lambda: commit)
    (tmp_path / name).mkdir()
    (tmp_path / name / "model.safetensors").write_bytes(name.encode())
    recipe = SumsRecipe(kind="sums", model=str(tmp_path / name), numbers=numbers)
    board = engine.run_study(sums, recipe, tmp_path / f"run-{name}", jobs=0, threads=1, quiet=True)
    assert (board.computed, board.failed) == (3, 0)
    return tmp_path / f"run-{name}"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    return [
        computed(tmp_path, monkeypatch, name, numbers)
        for name, numbers in (("small", (1, 2)), ("large", (4, 5)))
    ]


def collect(tmp_path: Path, runs: list[Path], monkeypatch: pytest.MonkeyPatch, *more: str) -> Path:
    out = tmp_path / "sums"
    monkeypatch.setattr(sys, "argv", ["tables.py", "collect", str(out), *map(str, runs), *more])
    tables.main()
    return out


def test_values_notes_prefix_and_new_names(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [part for name in ("small", "large") for part in ("--model", f"{name}={tmp_path / name}")]
    renamed = [part for name in ("small", "large") for part in ("--rename", f"{tmp_path / name}={name}")]
    given = ("--prefix", "first-", "--recipe", "first.toml", "--commit", "abc1234", "--date", "2026-01-02")
    out = collect(tmp_path, runs, monkeypatch, *models, *renamed, *given)
    assert sorted(file.name for file in out.iterdir()) == [
        "first-also.csv",
        "first-sums.csv",
    ]  # of the last step alone
    said = tables.notes(out / "first-sums.csv")
    machine = said.pop("machine")
    assert all(f"{name} " in machine for name in ("torch", "transformers"))
    assert said == {
        "study": "Sums, added up",
        "recipe": "docs/results/sums/first.toml",
        "commit": "abc1234",
        "date": "2026-01-02",
        "weights of small": f"sha256 {hashlib.sha256(b'small').hexdigest()}",
        "weights of large": f"sha256 {hashlib.sha256(b'large').hexdigest()}",
    }
    text = (out / "first-sums.csv").read_text(encoding="utf-8")
    table = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("# "))
    # the unit is the same everywhere, and left out
    assert table == "model,part,third\nsmall,p0,0.3333\nsmall,p1,0.6667\nlarge,p0,1.3333\nlarge,p1,1.6667\n"
    assert tables.read(out / "first-also.csv").to_dict("list") == {
        "model": ["small", "large"],
        "total": [1.0, 3.0],
    }


def test_what_is_not_given_comes_from_the_run(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = next((runs[0] / "results").glob("add-up-*/headwise.json"))
    kept = json.loads(record.read_text())
    out = collect(tmp_path, runs[:1], monkeypatch, "--model", f"small={tmp_path / 'small'}")
    said = tables.notes(out / "sums.csv")
    assert said["recipe"] == "docs/results/sums/recipe.toml"
    assert said["commit"] == kept["provenance"]["commit"] == "fedcba9"
    assert said["machine"].startswith(kept["provenance"]["device"]["name"])
    assert list(tables.read(out / "sums.csv")) == ["part", "third"]  # one model: no column for it
    assert list(tables.read(out / "also.csv")) == ["model", "total"]  # a single row keeps its columns


def test_a_run_without_a_commit_must_be_given_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="--commit"):
        collect(tmp_path, [computed(tmp_path, monkeypatch, "small", (1, 2), None)], monkeypatch)


def test_weights_may_be_a_file(runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "packed.gguf").write_bytes(b"packed")
    out = collect(tmp_path, runs[:1], monkeypatch, "--model", f"packed={tmp_path / 'packed.gguf'}")
    assert (
        tables.notes(out / "sums.csv")["weights of packed"]
        == f"sha256 {hashlib.sha256(b'packed').hexdigest()}"
    )


def test_contrasts_of_agreement_change_the_number_of_the_last_demonstrative() -> None:
    spec = importlib.util.spec_from_file_location("agreement", FILE.parent / "roles" / "agreement.py")
    assert spec is not None
    assert spec.loader is not None
    agreement = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(agreement)
    rows = [
        ("Ann sold this sketch.", "Ann sold this sketches."),
        ("Those men saw those geese.", "Those men saw those goose."),
        ("Ann saw that old store.", "Ann saw that old stores."),  # the noun does not follow the demonstrative
        ("Ann saw this sheep.", "Ann saw those sheep."),  # the nouns do not differ
        ("Ann saw this book.", "Ann saw this bookshelf."),  # nor their first tokens
    ]

    def tokenizer(text: str, add_special_tokens: bool) -> dict[str, list[str]]:
        return {"input_ids": [text[:5]]}

    found = agreement.contrasts(pd.DataFrame(rows, columns=["good", "bad"]), tokenizer)
    assert found.to_numpy().tolist() == [["Those men saw those", "Those men saw that", " geese", " goose"]]
