"""What a worker does: computes cells one after another, each into a folder of its own that then appears
whole."""

import json
import os
import random
import re
import shutil
import socket
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise._base.command import carrying_out
from headwise._base.memory import release_gpu
from headwise._base.names import legible
from headwise._base.progress import reporting
from headwise._base.writing import no_space
from headwise.engine._plan import check_files
from headwise.engine._steps import Task, label, resolve, typed
from headwise.store import (
    Out,
    Result,
    digest_of,
    folder_stamp,
    inputs_of,
    locks,
    manifest,
    peak_memory,
    publish,
    reset_peak_memory,
    result_digest,
    surroundings,
    take_kept,
    write_text,
)

FULL = re.compile(r"^OutOfMemoryError|(?i:cud(a|nn).*(out of memory|alloc\w*failed))")  # what a full GPU says
LOG = 40_000  # characters of a traceback that are kept
GROUP_S = 0.25  # results of short cells are flushed to the disk together, at the latest after this time


@dataclass
class Current:
    """The cell this process computes, for the thread that reports it."""

    lock: locks.Lock
    status: dict[str, Any]


_current: Current | None = None
_reporter: threading.Thread | None = None


def run_batch(run: str, batch: list[Task], threads: int | None) -> list[dict[str, Any]]:
    """Computes the cells of `batch` and gives one outcome for each: done, failed (with the error), or busy
    (computed elsewhere)."""
    import torch

    if threads:
        torch.set_num_threads(threads)
    _start_reporter()
    folder = Path(run)
    outcomes: list[dict[str, Any]] = []
    group: list[tuple[Task, locks.Lock, Path, dict[str, Any]]] = []
    since = time.monotonic()
    for task in batch:
        try:
            lock = locks.acquire(folder / "running" / task["folder"])
        except OSError as error:
            outcomes.append(_failed(folder, task, no_space(error, folder) or error, 0.0))
            continue
        if lock is None:
            outcomes.append({"state": "busy"})
        elif (
            folder / "results" / task["folder"]
        ).is_dir():  # another process finished it since it was handed out
            lock.release()
            outcomes.append({"state": "done", "seconds": 0.0})
        else:
            aside, outcome = _compute(folder, task, lock)
            outcomes.append(outcome)
            release_gpu()  # torch keeps the memory of a finished cell, which other cells on the card need
            if aside is None:
                lock.release()
            else:
                group.append((task, lock, aside, outcome))
        if time.monotonic() - since > GROUP_S:
            _publish(folder, group)
            group, since = [], time.monotonic()
    _publish(folder, group)
    return outcomes


def _compute(run: Path, task: Task, lock: locks.Lock) -> tuple[Path | None, dict[str, Any]]:
    """Runs one step into a folder aside. Gives that folder, or None if the step failed, and the outcome."""
    global _current
    name = task["folder"]
    aside = run / "work" / f"{name}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns():x}"
    clock = time.perf_counter()
    status = {"cell": label(task), "host": socket.gethostname(), "pid": os.getpid(), "started": time.time()}
    try:
        aside.mkdir()
        target = resolve(task["target"])
        _seed(task["seed"])
        reset_peak_memory()
        results = run / "results"
        inputs: dict[str, Any] = {}
        for argument, folders in task["inputs"].items():
            if isinstance(folders, str):
                inputs[argument] = Result(results / folders)
            else:
                inputs[argument] = [Result(results / folder) for folder in folders]
        out = Out(aside, task["seed"], task["coords"], run / "checkpoints" / name)
        lock.write(status)
        _current = Current(lock, status)
        clock = time.perf_counter()  # from here on: loading libraries is not the step's time
        check_files(run, task)
        with (
            reporting(lambda *bar: status.update(bar=bar)),
            carrying_out(""),
        ):  # the study keeps the command, not each cell
            target(out, **typed(target, task["settings"]), **inputs)
        seconds = time.perf_counter() - clock
        take_kept(aside, run / "checkpoints" / name)
        check_files(run, task)  # what was read in between was the same
        digests: dict[str, list[str]] = {}
        for argument, folders in inputs_of(task).items():
            digests[argument] = [result_digest(results / folder) for folder in folders]
        cell = {
            **{field: task[field] for field in ("step", "version", "key", "settings", "seed", "coords")},
            "inputs": digests,
            "seconds": round(seconds, 6),
            "peak_memory": peak_memory(),
        }
        record = manifest.write_cell(aside, cell, surroundings())
    except (Exception, SystemExit) as error:
        shutil.rmtree(aside, ignore_errors=True)
        failed = _failed(run, task, no_space(error, run) or error, time.perf_counter() - clock)
        return None, failed | _on_gpu(peak_memory())  # it took at least this much
    finally:
        _current = None
    facts = {"digest": digest_of(record), "inputs": cell["inputs"]}
    return aside, {"state": "done", "seconds": seconds, **facts, **_on_gpu(cell["peak_memory"])}


def _on_gpu(peak: dict[str, int]) -> dict[str, Any]:
    """Bytes of a GPU that a cell took, and those it has; or that the process has lost its GPU."""
    if not peak.get("gpu"):
        return {}
    import torch

    try:
        return {"gpu": (torch.cuda.max_memory_reserved(), torch.cuda.mem_get_info()[1])}
    except RuntimeError:  # an error on the device, after which this process cannot use it any more
        return {"broken": True}


def _publish(run: Path, group: list[tuple[Task, locks.Lock, Path, dict[str, Any]]]) -> None:
    if not group:
        return
    try:
        publish(*((aside, run / "results" / task["folder"]) for task, _, aside, _ in group))
    except OSError as error:
        for task, _, aside, outcome in group:
            if not (run / "results" / task["folder"]).is_dir():
                outcome.update(_failed(run, task, no_space(error, run) or error, outcome["seconds"]))
                shutil.rmtree(aside, ignore_errors=True)
    for task, lock, _, outcome in group:
        if outcome["state"] == "done":
            outcome["stamp"] = folder_stamp(run / "results" / task["folder"])
            (run / "failures" / f"{task['folder']}.json").unlink(missing_ok=True)
            shutil.rmtree(run / "checkpoints" / task["folder"], ignore_errors=True)
        lock.release()


def _failed(run: Path, task: Task, error: BaseException, seconds: float) -> dict[str, Any]:
    """Keeps the error of a cell, as far as the disk allows, and gives the outcome."""
    full = FULL.search(f"{type(error).__name__}: {error}") is not None
    message = legible(f"{type(error).__name__}: {error}")
    try:
        keep_failure(run, task, message, seconds, traceback.format_exc())
    except OSError as second:
        message += f" (and the error could not be stored: {second})"
    return {"state": "failed", "error": message, "seconds": seconds, "full": full}


def keep_failure(run: Path, task: Task, message: str, seconds: float, log: str) -> None:
    """Writes what went wrong with a cell, as far as it can be shown."""
    record = {
        "error": message,
        "seconds": seconds,
        "time": time.time(),
        "host": socket.gethostname(),
        "log": legible(log, LOG),
    }
    write_text(run / "failures" / f"{task['folder']}.json", json.dumps(record, indent=1), durable=False)


def _start_reporter() -> None:
    global _reporter
    if _reporter is None or not _reporter.is_alive():
        _reporter = threading.Thread(target=_report, daemon=True)
        _reporter.start()


def _report() -> None:
    """Once a second, writes how far the current cell is; cells shorter than that cost nothing."""
    seen: Current | None = None
    while True:
        time.sleep(1)
        current = _current
        if current is not None and current is seen:
            with suppress(OSError):  # a full disk: only the display suffers
                current.lock.write(current.status)
        seen = current


def _seed(seed: int) -> None:
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    # What torch.manual_seed does, without the stack trace it keeps for each device that is not there.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
