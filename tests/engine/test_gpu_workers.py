"""How many workers share a GPU when nobody says how many."""

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
import sample_study
import torch

from headwise._base.memory import release_gpu
from headwise.engine import _engines, _plan as plan_run, _schedule, _worker
from headwise.engine._engines import Local, per_gpu
from headwise.store import _provenance

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
    jobs: int | None,
    gpus: list[str],
    peaks: list[int],
    slots: int | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
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


def test_a_full_gpu_leaves_no_more_workers_than_are_at_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a cell had taken when it failed says little: it and its neighbours would fill the GPU again."""
    monkeypatch.setattr(_engines, "visible_gpus", lambda: ["0"])
    monkeypatch.setattr(_engines, "cores", lambda: 32)
    engine = Local(tmp_path, None, None)
    engine._resize([{"state": "done", "gpu": (2 * GB, 80 * GB)}])
    assert engine.slots == 4
    engine._flight = {Future(): (slot, []) for slot in range(3)}
    engine._resize([{"state": "failed", "full": True, "gpu": (5 * GB, 80 * GB)}])
    assert (engine.slots, engine.free()) == (3, 0)
    engine._resize([{"state": "done", "gpu": (6 * GB, 80 * GB)}])
    assert engine.slots == 3


@pytest.mark.parametrize(("left", "chosen"), [(6, 1), (5, 0), (4, 1), (3, 0)])
def test_the_next_cell_goes_to_the_gpu_with_the_fewest(
    left: int, chosen: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_engines, "visible_gpus", lambda: ["0", "1"])
    engine = Local(tmp_path, None, None)
    engine._pools = [SimpleNamespace(submit=lambda *_: Future()) for _ in range(8)]
    engine._flight = {Future(): (left, [])}  # the last one at work of eight, now that there are two
    engine.submit([])
    assert {slot for slot, _ in engine._flight.values()} == {left, chosen}


def test_a_worker_that_lost_its_gpu_is_replaced_and_its_error_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def lost(*_: object) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lost)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lost)
    release_gpu()
    assert _worker._on_gpu({"gpu": 1}) == {"broken": True}
    monkeypatch.setattr(_engines, "visible_gpus", lambda: ["0"])
    engine, ended, future = Local(tmp_path, None, None), [], Future()
    engine._pools = [SimpleNamespace(shutdown=lambda **how: ended.append(how))]
    future.set_result([{"state": "failed", "error": "RuntimeError: CUDA error", "broken": True}])
    engine._flight = {future: (0, [])}
    assert engine.wait(0.1) == [([], future.result())]
    assert ended == [{"wait": False, "kill_workers": True}]
    assert engine._pools == [None]


def test_every_cell_gives_its_gpu_memory_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else a probe's tens of gigabytes stay with its worker while another cell of the card finds no room."""
    run = tmp_path / "run"
    plan_run.prepare(run, "many")
    plan = plan_run.write_plan(run, sample_study.many.cells(sample_study.TrivialRecipe(kind="many", cells=2)))
    loop = _schedule._Loop(run, plan, SimpleNamespace(update=lambda *_: None, say=lambda _: None), range(2))
    given: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given.append("back"))
    monkeypatch.setattr(_worker, "reset_peak_memory", lambda: None)
    monkeypatch.setattr(_worker, "peak_memory", lambda: {"cpu": 1})
    monkeypatch.setattr(_worker, "surroundings", dict)
    batch = loop.next_batch()
    assert [outcome["state"] for outcome in _worker.run_batch(str(run), batch, None)] == ["done"] * len(batch)
    assert given == ["back"] * len(batch)


def test_a_cell_that_found_the_gpu_full_waits_until_another_has_ended(tmp_path: Path) -> None:
    run = tmp_path / "run"
    plan_run.prepare(run, "many")
    plan = plan_run.write_plan(run, sample_study.many.cells(sample_study.TrivialRecipe(kind="many", cells=3)))
    loop = _schedule._Loop(run, plan, SimpleNamespace(update=lambda *_: None, say=lambda _: None), range(3))
    monkey = pytest.MonkeyPatch()
    monkey.setattr(_schedule, "PAUSE_S", 0.0)
    try:
        first, second, third = loop.next_batch(), loop.next_batch(), loop.next_batch()
        full = {"state": "failed", "error": "OutOfMemoryError: CUDA out of memory", "full": True}
        loop.settle(first, [full])
        loop.settle(second, [full])
        assert not loop.next_batch()  # the third is at work, and nothing has ended that would have made room
        loop.settle(third, [full])
        assert len(loop.next_batch()) == 1  # nothing is at work: one of them, alone
        assert not loop.next_batch()
    finally:
        monkey.undo()


def test_a_cell_that_computes_on_the_cpu_does_not_start_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its provenance would say that it ran there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    for name in ("reset_peak_memory_stats", "max_memory_allocated", "get_device_name"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: pytest.fail("this would start it"))
    _provenance.reset_peak_memory()
    assert set(_provenance.peak_memory()) == {"cpu"}
    assert _provenance._device()["kind"] == "cpu"
