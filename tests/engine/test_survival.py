"""Kills, full disks and rivals, for real."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sample_study import GridRecipe, TrainSettings, TrivialRecipe, grid, many
from test_study import digests, go

from headwise import engine
from headwise.store import _locks as locks
from headwise.store._atomic import atomic_folder

COMMAND = [sys.executable, "-c", "from headwise.cli import main; main()", "study", "run"]


def test_killed_at_random_moments_ends_with_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(
        'kind = "sample_study:grid"\nwidths = [8]\nseeds = [0, 1]\n[training]\nsteps = 12\npause = 0.05\n'
    )
    run = tmp_path / "runs" / "r"
    dice = random.Random(5)
    seen: dict[Path, int] = {}
    kills = 0
    while True:
        process = subprocess.Popen(
            [*COMMAND, "r.toml", "--jobs", "0", "--threads", "1", "--quiet"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
        )
        while process.poll() is None and not locks.running(run / "running"):
            time.sleep(0.01)  # until it computes: the time before that is Python's start
        try:
            assert process.wait(None if kills == 2 else dice.uniform(0.1, 0.9)) == 0
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
        done = {path: path.stat().st_ino for path in (run / "results").glob("*/headwise.json")}
        assert seen.items() <= done.items()  # what was finished is never computed again
        seen = done
    assert kills == 2
    training = TrainSettings(steps=12, pause=0.05)
    go(grid, GridRecipe(kind="grid", widths=(8,), seeds=(0, 1), training=training), tmp_path / "calm")
    assert digests(run) == digests(tmp_path / "calm")
    assert not list((run / "work").iterdir())
    assert not list((run / "checkpoints").iterdir())


def test_two_processes_share_the_work_and_ctrl_c_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(
        f'kind = "sample_study:many"\ncells = 16\nsleep = 0.3\ntrace = "{tmp_path}/trace"\n'
    )
    run = tmp_path / "runs" / "r"
    command = [*COMMAND, "r.toml", "--jobs", "0", "--quiet"]
    quiet: Any = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    quiet["preexec_fn"] = lambda: signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # a test run in the background ignores it
    rivals = [subprocess.Popen(command, cwd=tmp_path, **quiet) for _ in range(2)]
    while not any((run / "results").glob("*")):
        assert all(rival.poll() is None for rival in rivals)
        time.sleep(0.02)
    rivals[0].send_signal(signal.SIGINT)
    _, said = rivals[0].communicate()
    assert rivals[0].returncode == 130
    assert said == "interrupted; finished work is kept, resume with: headwise study run runs/r\n"
    assert rivals[1].wait() == 0
    rivals[1].stderr.close()
    numbers = (tmp_path / "trace").read_text().split()
    assert sorted(set(map(int, numbers))) == list(range(16))
    assert len(numbers) <= 17  # the one that was interrupted may have been computed, but not kept
    assert [row["value"]["square"] for row in engine.open(run).json("value")] == [n * n for n in range(16)]


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    recipe = TrivialRecipe(kind="many", cells=3, megabytes=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))  # writing more fails, as on a full disk
    try:
        board = go(many, recipe, tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (board.computed, board.failed) == (0, 3)
    assert not list((tmp_path / "run" / "results").iterdir())
    assert not list((tmp_path / "run" / "work").iterdir())
    assert all(row["state"] == "failed" for row in engine.open(tmp_path / "run").cells())
    board = go(many, recipe, tmp_path / "run")
    assert (board.computed, board.failed) == (3, 0)
    assert not engine.open(tmp_path / "run").damage()


def test_a_disk_that_fills_up_keeps_what_was_finished(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headwise.engine._study._check_size", lambda run, cells, needed: 100.0
    )  # else it is refused beforehand
    recipe = TrivialRecipe(kind="many", cells=6, megabytes=1)
    run = small_disk / "run"
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    board = go(many, recipe, run)
    assert board.computed + board.failed == 6
    assert board.computed >= 2
    assert board.failed >= 2
    assert not engine.open(run).damage()
    errors = [row["error"] for row in engine.open(run).cells() if row["state"] == "failed"]
    assert all(error.startswith(f"NoSpace: no space left in {run}: ") for error in errors)
    subprocess.run(["mount", "-o", "remount,size=40m", small_disk], check=True)
    again = go(many, recipe, run)
    assert (again.found, again.computed, again.failed) == (board.computed, board.failed, 0)


def test_a_lock_is_held_by_one_and_dropped_by_the_dead(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = locks.acquire(path)
    assert lock is not None
    lock.write({"bar": ["training", 3, 10]})
    assert locks.acquire(path) is None
    assert locks.running(tmp_path) == {"lock": {"bar": ["training", 3, 10]}}
    lock.release()
    lock.write({"late": True})  # goes nowhere
    assert locks.running(tmp_path) == {}
    child = os.fork()
    if child == 0:
        locks.acquire(path)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert path.exists()
    assert locks.running(tmp_path) == {}
    again = locks.acquire(path)
    assert again is not None
    again.release()


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_folder(tmp_path / "out") as aside:
        (aside / "half" / "file").write_text("x")
    assert not list(tmp_path.iterdir())
    with atomic_folder(tmp_path / "out") as first, atomic_folder(tmp_path / "out") as second:
        (first / "by").write_text("first")
        (second / "by").write_text("second")
    assert (
        tmp_path / "out" / "by"
    ).read_text() == "second"  # the inner block ended first; the other was dropped
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
