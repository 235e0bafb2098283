"""A 24-cell study on tiny models, killed with -9 again and again at random moments, against one undisturbed run.

    python benchmarks/runs_kill.py [--kills 20] [--jobs 2] [--seed 0]

Prints, as JSON: the kills and what they hit, how often cells were begun and resumed from a checkpoint, how many finished results were
computed again (must be 0), and how many result files differ from the undisturbed run's (must be 0).
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from headwise.store import _locks as locks
from parts import said

HERE = Path(__file__).resolve().parent
RECIPE = """
kind = "sample_study:grid"
widths = [8, 16]
seeds = [0, 1, 2, 3]
overview = false
[training]
steps = 40
pause = {pause}
"""


def digests(run: Path) -> dict[str, str]:
    files = [path for path in (run / "results").rglob("*") if path.is_file() and path.name != "headwise.json"]
    return {path.relative_to(run).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def start(folder: Path, out: str, trace: Path, jobs: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-c",
        "from headwise.cli import main; main()",
        "study",
        "run",
        "recipe.toml",
        "--out",
        out,
    ]
    command += ["--set", f"trace={trace}", "--jobs", str(jobs), "--threads", "1", "--json"]
    paths = [str(HERE.parent / "tests" / "engine"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    with open(folder / f"{out}.log", "ab") as log:
        return subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)


def workers(run: Path) -> list[int]:
    """Processes that hold a lock of this run, by what they last reported."""
    return [status["pid"] for status in locks.running(run / "running").values() if "pid" in status]


def kill(process: subprocess.Popen[bytes], run: Path, dice: random.Random) -> str:
    """Kills the main process alone, a worker alone, or all of them, with signal 9."""
    what = dice.choice(["all", "main", "worker"])
    pids = workers(run)
    if what == "worker" and pids:
        os.kill(dice.choice(pids), signal.SIGKILL)
        time.sleep(
            dice.uniform(0, 1)
        )  # the study goes on; then everything is killed, so that each round is a restart
    if what == "main":
        process.kill()
        time.sleep(dice.uniform(0, 1))  # orphans may still be at work when the next round starts
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return what if what != "worker" or pids else "all"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.03, help="seconds each training step waits")
    given = parser.parse_args()
    dice = random.Random(given.seed)
    folder = Path(tempfile.mkdtemp(prefix="runs-kill-"))
    (folder / "recipe.toml").write_text(RECIPE.format(pause=given.pause))
    trace = folder / "trace"
    clock = time.monotonic()
    calm = start(folder, "calm", trace, given.jobs)
    while calm.poll() is None and not trace.exists():
        time.sleep(0.01)
    before_work = time.monotonic() - clock  # Python, libraries, workers
    if calm.wait():
        raise SystemExit((folder / "calm.log").read_text())
    work = time.monotonic() - clock - before_work
    trace.unlink()  # its path is part of the settings, so both runs have the same one

    run = folder / "killed"
    hits: Counter[str] = Counter()
    finished: dict[str, tuple[int, int]] = {}
    recomputed = 0
    after_each: list[int] = []
    while True:
        lines = trace.read_bytes().count(b"\n") if trace.exists() else 0
        process = start(folder, "killed", trace, given.jobs)
        # A quarter of the kills come at any moment from the start of Python on, the others while cells are computed.
        spread = dice.uniform(0, before_work)
        if dice.random() < 0.75:
            while process.poll() is None and not (trace.exists() and trace.read_bytes().count(b"\n") > lines):
                time.sleep(0.01)
            spread = dice.uniform(0, work / 10)
        try:
            process.wait(None if hits.total() >= given.kills else spread)
            if process.returncode:
                raise SystemExit((folder / "killed.log").read_text())
        except subprocess.TimeoutExpired:
            hits[kill(process, run, dice)] += 1
        results = run / "results"
        now = {
            path.parent.name: (path.stat().st_ino, path.stat().st_mtime_ns)
            for path in results.glob("*/headwise.json")
        }
        recomputed += sum(now.get(name) != stamp for name, stamp in finished.items())
        finished = now
        after_each.append(len(now))
        said("round", {"kills": hits.total(), "finished": len(now), "computed_again": recomputed})
        if process.returncode == 0:
            break
    before, after = digests(folder / "calm"), digests(run)
    begun = Counter(line.split()[0] for line in trace.read_text().splitlines())
    report = {
        "cells": len(finished),
        "undisturbed_seconds": {"before_work": round(before_work, 1), "work": round(work, 1)},
        "kills": hits.total(),
        "killed": dict(hits),
        "finished_after_each_round": after_each,
        "trainings_started": begun["started"],
        "trainings_resumed_from_checkpoint": begun["resumed"],
        "finished_cells_computed_again": recomputed,
        "files_compared": len(before),
        "files_that_differ": len(before.items() ^ after.items()),
        "left_in_work": len(list((run / "work").iterdir())),
    }
    print(json.dumps(report, indent=1))
    if recomputed or before != after or report["cells"] != 24:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
