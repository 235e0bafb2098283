"""A study of a few thousand small cells, disturbed every 30 seconds for an hour, against one undisturbed run.

    python benchmarks/soak.py [--minutes 60] [--every 30] [--cells 3000] [--jobs 2] [--seed 0]
    python benchmarks/soak.py --minutes 3 --every 10 --cells 600       # the same in small

Disturbances take turns: SIGKILL (all processes, or the main one alone), SIGTERM, a full disk, a byte of a finished result flipped. The run
lies on a disk of its own (tmpfs; where nothing can be mounted, a limit on the size of files stands for the full disk). After each, no
process may be left; after the last, the study is finished in peace. Prints, as JSON, what happened and what it came to; exits with
status 1 if a file differs from the undisturbed run's, a process was left, a finished cell was computed again that was not damaged, or
memory grew.
"""

import argparse
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd

from headwise import engine
from parts import said

MARK = "HEADWISE_SOAK"  # in the environment of every process of the soak: how those that are left are found
DISTURBANCES = ("kill", "terminate", "full disk", "corrupt")
GROWTH = 1.1  # most that the peak memory of the last rounds may be of the first ones'


class SoakRecipe(engine.Recipe):
    cells: int


@engine.step()
def small(out: engine.Out, *, number: int, before: engine.Result | None = None) -> None:
    """A little arithmetic that depends on the seed, in steps that a checkpoint remembers, saved in three formats."""
    import torch

    checkpoint = out.checkpoint(every_minutes=0.01)
    state = checkpoint.restore({}) or {"step": 0, "total": np.zeros(64)}
    for step in range(state["step"], 8):
        drawn = np.random.standard_normal(64)  # noqa: NPY002
        state["total"] = np.asarray(state["total"]) + drawn + torch.randn(64).double().numpy()
        time.sleep(float(os.environ.get("HEADWISE_SOAK_PAUSE", "0")) / 8)
        if checkpoint.due():
            checkpoint.save({}, {**state, "step": step + 1})
    earlier = before.json("sum") if before is not None else 0.0
    out.table("rows", pd.DataFrame({"unit": range(64), "total": state["total"]}))
    out.tensors("total", {"total": torch.from_numpy(state["total"])})
    out.json("sum", float(state["total"].sum()) + earlier)


def soak_cells(recipe: SoakRecipe) -> Iterator[engine.Cell]:
    """Chains of four cells, so that a damaged result also makes those that were computed from it new."""
    last: engine.Cell | None = None
    for number in range(recipe.cells):
        needed = {"before": last} if last is not None and number % 4 else {}
        last = engine.Cell(small, {"number": number, **needed}, {"number": number}, seed=number)
        yield last


study = engine.Study(SoakRecipe, soak_cells)


def digests(run: Path) -> dict[str, str]:
    files = [path for path in (run / "results").rglob("*") if path.is_file() and path.name != "headwise.json"]
    return {path.relative_to(run).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def start(folder: Path, out: Path, jobs: int, pause: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headwise", "study", "run", "recipe.toml", "--out", str(out)]
    command += ["--jobs", str(jobs), "--threads", "1", "--json"]
    paths = os.pathsep.join(
        filter(None, [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")])
    )
    env = {
        **os.environ,
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        MARK: str(os.getpid()),
        "HEADWISE_SOAK_PAUSE": str(pause),
    }
    with open(folder / f"{out.name}.log", "ab") as log:
        return subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)


def ours() -> dict[int, int]:
    """Process to resident bytes, of every living process that the soak started."""
    mark = f"{MARK}={os.getpid()}".encode()
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            with suppress(OSError, ValueError, IndexError):
                if mark in (place / "environ").read_bytes().split(b"\0"):
                    found[int(place.name)] = (
                        int((place / "statm").read_text().split()[1]) * resource.getpagesize()
                    )
    return {
        pid: size for pid, size in found.items() if size
    }  # a dead one that nobody has asked for holds nothing


class Disk:
    """The disk that the run lies on, and how it is filled."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.place = folder / "disk"
        self.place.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(self.place)]
        self.own = os.geteuid() == 0 and not subprocess.run(mount, capture_output=True).returncode
        self.how = (
            f"a tmpfs of {megabytes} MB, filled to the last byte"
            if self.own
            else "RLIMIT_FSIZE of 0 on every process"
        )

    def fill(self) -> None:
        if not self.own:
            for pid in ours():
                with suppress(ProcessLookupError, PermissionError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            return
        with suppress(OSError), open(self.place / "ballast", "wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(1 << 16)) or ballast.write(b"\0")

    def empty(self) -> None:
        (self.place / "ballast").unlink(missing_ok=True)

    def remove(self) -> None:
        if self.own:
            subprocess.run(["umount", "--lazy", str(self.place)], check=True)


def flip(run: Path, dice: random.Random) -> str | None:
    """Flips one bit of a finished result; gives its folder's name."""
    folders = sorted((run / "results").glob("*/"))
    if not folders:  # or there is no run yet
        return None
    folder = dice.choice(folders)
    file = dice.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    raw = bytearray(file.read_bytes())
    raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    file.write_bytes(raw)
    return folder.name


def disturb(what: str, process: subprocess.Popen[bytes], run: Path, disk: Disk, dice: random.Random) -> str:
    """Does one disturbance, after which the study's processes have ended or are about to; gives what it hit."""
    if what == "full disk":
        disk.fill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)  # cells fail one after another: the study may well end before that
        disk.empty()
        _send(process, signal.SIGTERM)
        return what
    if what == "corrupt":
        hit = flip(run, dice)
        _send(process, signal.SIGTERM)
        return hit or "nothing to corrupt yet"
    if what == "terminate":
        _send(process, signal.SIGTERM)
    elif dice.random() < 0.5:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()  # the main process alone: its workers notice by themselves
    return what


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    """Sends a signal, unless the process has just ended by itself."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)


def quiet_after(seconds: float) -> tuple[float, int]:
    """Waits until none of our processes is left, at most `seconds`; gives how long that took and how many were left."""
    clock = time.monotonic()
    while (left := ours()) and time.monotonic() - clock < seconds:
        time.sleep(0.1)
    return time.monotonic() - clock, len(left)


def stamps(run: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in (run / "results").glob("*/headwise.json"):
        stat = path.stat()
        found[path.parent.name] = (stat.st_ino, stat.st_mtime_ns)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, default=30, help="seconds between disturbances")
    parser.add_argument("--cells", type=int, default=3000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    dice = random.Random(given.seed)
    folder = Path(tempfile.mkdtemp(prefix="headwise-soak-"))
    (folder / "recipe.toml").write_text(f'kind = "soak:study"\ncells = {given.cells}\n')
    clock = time.monotonic()
    if start(folder, folder / "calm", given.jobs, 0.0).wait():
        raise SystemExit((folder / "calm.log").read_text())
    calm_seconds = time.monotonic() - clock
    calm = digests(folder / "calm")

    disk = Disk(folder, 64 + given.cells // 5)  # a study counts on 0.1 MB a cell before it begins
    run = disk.place / "soaked"
    # about half of a round is Python's start: cells are as long as it takes to keep the workers busy until the end
    pause = 0.4 * given.minutes * 60 * given.jobs / given.cells
    hits: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    finished: dict[str, tuple[int, int]] = {}
    damaged: set[str] = set()
    done_after: list[int] = []
    peaks: list[int] = []
    recomputed, slowest, left_over = 0, 0.0, 0
    end = time.monotonic() + given.minutes * 60
    try:
        for number in range(1_000_000):
            last = time.monotonic() >= end
            process = start(folder, run, given.jobs, 0.0 if last else pause)
            until, peak, began = time.monotonic() + given.every, 0, False
            while process.poll() is None and (last or time.monotonic() < until or not began):
                peak = max([peak, *ours().values()])
                if not began and len(stamps(run)) > len(
                    finished
                ):  # on a slow machine Python takes long to start
                    began, until = True, max(until, time.monotonic() + given.every / 3)
                time.sleep(0.25)
            peaks.append(peak)
            if not last:
                what = DISTURBANCES[number % len(DISTURBANCES)]
                hits[what] += 1
                hit = (
                    disturb(what, process, run, disk, dice)
                    if process.poll() is None or what == "corrupt"
                    else what
                )
                if what == "corrupt":
                    damaged.add(hit)
            process.wait()
            if not run.is_dir() and number > 1:
                raise SystemExit(
                    f"the study does not begin: {(folder / 'soaked.log').read_text(errors='replace')[-300:]}"
                )
            statuses[str(process.returncode)] += 1
            took, left = quiet_after(10)
            slowest, left_over = max(slowest, took), left_over + left
            now = stamps(run) if run.is_dir() else {}
            new = {name for name, stamp in finished.items() if now.get(name) != stamp}
            recomputed += len(new - _after(run, damaged))
            finished = now
            done_after.append(len(now))
            said(
                "round",
                {
                    "disturbances": hits.total(),
                    "finished": len(now),
                    "computed_again": recomputed,
                    "processes_left": left_over,
                },
            )
            if last:
                break
        after = digests(run)
        fifth = max(1, len(peaks) // 5)
        first, final = (int(np.median(part)) for part in (peaks[1 : 1 + fifth], peaks[-1 - fifth : -1]))
        report = {
            "cells": given.cells,
            "minutes": given.minutes,
            "jobs": given.jobs,
            "undisturbed_seconds": round(calm_seconds, 1),
            "full_disk": disk.how,
            "disturbances": dict(hits),
            "exit_statuses": dict(statuses),
            "finished_after_each_round": done_after,
            "cells_that_met_the_full_disk": (folder / "soaked.log")
            .read_text(errors="replace")
            .count("no space left in"),
            "results_found_damaged": len(list((run / "damaged").iterdir())),
            "sound_cells_computed_again": recomputed,
            "slowest_end_of_all_processes_s": round(slowest, 1),
            "processes_left": left_over,
            "peak_mb_of_a_process": {"first_rounds": first >> 20, "last_rounds": final >> 20},
            "files_compared": len(calm),
            "files_that_differ": len(calm.items() ^ after.items()),
            "left_in_work": len(list((run / "work").iterdir())) + len(list((run / "checkpoints").iterdir())),
        }
    finally:
        disk.empty()
        disk.remove()
    print(json.dumps(report, indent=1))
    wrong = (
        report["files_that_differ"]
        or recomputed
        or left_over
        or report["left_in_work"]
        or len(finished) != given.cells
    )
    if wrong or final > GROWTH * first:
        raise SystemExit(1)


def _after(run: Path, damaged: set[str]) -> set[str]:
    """The damaged cells and those that come after them in their chain."""
    found = set()
    if (run / "plan.jsonl").is_file():
        follows = False
        for line in (run / "plan.jsonl").read_text().splitlines():
            task = json.loads(line)
            follows = task["folder"] in damaged or (follows and bool(task["inputs"]))
            if follows:
                found.add(task["folder"])
    return found


if __name__ == "__main__":
    main()
