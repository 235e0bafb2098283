"""How many threads a worker has when nobody says how many."""

import json
from pathlib import Path

import pytest
from sample_study import TrivialRecipe, many

from headwise import engine
from headwise.engine import _engines
from headwise.engine._engines import share_of_cores


@pytest.mark.parametrize(
    ("variable", "workers", "threads"),
    [
        (None, 2, 4),
        (None, 16, 1),
        ("1", 2, 1),
        ("3", 2, 3),
        ("8", 2, 4),
        ("2,1", 1, 2),
        ("many", 2, 4),
        ("0", 2, 4),
        ("", 2, 4),
    ],
)
def test_workers_share_the_cores_up_to_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, workers: int, threads: int
) -> None:
    monkeypatch.setattr(_engines, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    assert share_of_cores(workers) == threads


def test_a_worker_computes_in_as_many_threads_as_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_engines, "cores", lambda: 8)
    monkeypatch.setattr(_engines, "visible_gpus", list)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    for name, given, expected in (("said", None, 2), ("asked", 3, 3)):
        engine.run_study(
            many, TrivialRecipe(kind="many", cells=1), tmp_path / name, jobs=1, threads=given, quiet=True
        )
        (record,) = (tmp_path / name / "results").rglob("headwise.json")
        assert json.loads(record.read_text())["provenance"]["device"]["threads"] == expected
