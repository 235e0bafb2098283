"""How many workers share a GPU when nobody says how many."""

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

from headwise.engine import _engines
from headwise.engine._engines import Local, per_gpu

GB = 1 << 30


def test_as_many_as_half_the_memory_and_the_cores_allow() -> None:
    assert per_gpu(1 * GB, 80 * GB, 16) == 4  # four at most
    assert per_gpu(12 * GB, 80 * GB, 16) == 3  # 3 × 13 GB fit into 40
    assert per_gpu(30 * GB, 80 * GB, 16) == 1
    assert per_gpu(200 * GB, 80 * GB, 16) == 1  # what ran alone goes on running alone
    assert per_gpu(1 * GB, 80 * GB, 4) == 2
    assert per_gpu(1 * GB, 80 * GB, 1) == 1


@pytest.mark.parametrize(
    ("jobs", "gpus", "peaks", "slots"),
    [
        (None, ["0"], [2 * GB], 4),
        (None, ["0", "1"], [2 * GB], 8),
        (None, ["0"], [2 * GB, 50 * GB], 1),  # no new cell beside a large one
        (None, ["0"], [50 * GB, 2 * GB], 1),  # the largest cell counts
        (1, ["0"], [2 * GB], 1),
        (3, ["0"], [2 * GB], 3),
        (None, [], [], None),
    ],
)
def test_workers_join_after_the_first_results(
    jobs: int | None, gpus: list[str], peaks: list[int], slots: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_engines, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(_engines, "cores", lambda: 32)
    engine = Local(tmp_path, jobs, None)
    before = engine.slots
    assert before == (jobs or len(gpus) or _engines.default_jobs())
    for peak in peaks:
        if engine._grows:
            engine._resize([{"state": "failed"}, {"state": "done", "gpu": (peak, 80 * GB)}])
    assert engine.slots == (slots or before)
    assert engine.free() == engine.slots <= len(engine._pools)


def test_surplus_workers_end_when_they_are_idle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_engines, "visible_gpus", lambda: ["0"])
    monkeypatch.setattr(_engines, "cores", lambda: 32)
    engine = Local(tmp_path, None, None)
    engine._resize([{"state": "done", "gpu": (2 * GB, 80 * GB)}])
    ended: list[int] = []
    engine._pools = [SimpleNamespace(shutdown=lambda wait, n=n: ended.append(n)) for n in range(4)]
    engine._flight = {Future(): (2, [])}
    engine._resize([{"state": "failed", "gpu": (50 * GB, 80 * GB)}])  # out of memory
    assert ended == [1, 3]
    assert (engine.slots, engine.free()) == (1, 0)  # the one at work beyond the new number still counts
    engine._flight.clear()
    engine._resize([{"state": "done"}])
    assert ended == [1, 3, 2]
    assert engine.free() == 1
