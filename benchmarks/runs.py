"""What the bookkeeping of a study costs: overhead per cell, memory, `study show`, checkpoints; beside joblib.Memory and Accelerator.

    python benchmarks/runs.py [--cells 10000] [--jobs 2] [--repeats 3] [--device cpu]

Bars: under 5 ms a cell, `study show` on all cells within 1 s, a finished study again within 2 s,
memory that does not grow with the number of cells.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parts import said

HERE = Path(__file__).resolve().parent
ENV = {**os.environ, "PYTHONPATH": str(HERE.parent / "tests" / "engine"), "OMP_NUM_THREADS": "1"}
HEADWISE = [sys.executable, "-c", "from headwise.cli import main; main()", "study"]


def interval(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def measured(command: list[str], folder: Path) -> tuple[float, float, float]:
    """(wall seconds, CPU seconds of it and its children, peak MB of the process itself)."""
    clock = time.perf_counter()
    before = os.times()
    process = subprocess.Popen(
        command, cwd=folder, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} ended with {status}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - clock, cpu, usage.ru_maxrss / 1024


def study(folder: Path, cells: int, jobs: int, out: str) -> dict[str, float]:
    """One run of `cells` trivial cells."""
    (folder / "r.toml").write_text(f'kind = "sample_study:many"\ncells = {cells}\n')
    wall, cpu, peak = measured(
        [*HEADWISE, "run", "r.toml", "--out", out, "--jobs", str(jobs), "--quiet"], folder
    )
    records = [json.loads(path.read_bytes()) for path in (folder / out / "results").glob("*/headwise.json")]
    finished = sorted(record["finished"] for record in records)
    return {
        "wall": wall,
        "cpu": cpu,
        "main_peak_mb": peak,
        "worker_peak_mb": max(record["cell"]["peak_memory"]["cpu"] for record in records) / 2**20,
        "between_cells_ms": (finished[-1] - finished[0]) / (len(finished) - 1) * 1e3,
    }


MEMORY = """
import json, sys
from joblib import Memory, Parallel, delayed
from sample_study import square
cells, jobs, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
cached = Memory(folder, verbose=0).cache(square)
list(Parallel(n_jobs=jobs)(delayed(cached)(n) for n in range(cells)))
"""


def overhead(cells: int, jobs: int, repeats: int) -> dict[str, Any]:
    """Time between the first and the last finished cell, so that starting Python and torch does not count; joblib.Memory beside it."""
    few = max(100, cells // 10)
    ours, theirs, cpu, last = [], [], [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for repeat in range(repeats):
            small, full = study(folder, few, jobs, f"few{repeat}"), study(folder, cells, jobs, f"all{repeat}")
            ours.append(said("between_cells_ms", full["between_cells_ms"]))
            walls = [
                measured(
                    [sys.executable, "-c", MEMORY, str(n), str(jobs), f"{name}/memory-{n}-{repeat}"], folder
                )[0]
                for n in (few, cells)
            ]
            theirs.append((walls[1] - walls[0]) / (cells - few) * 1e3)
            cpu.append((full["cpu"] - small["cpu"]) / (cells - few) * 1e3)
            last = {
                "few": few,
                "small": small,
                "full": full,
                "whole_wall_ms_per_cell": full["wall"] / cells * 1e3,
            }
        shows = [measured([*HEADWISE, "show", "all0"], folder)[0] for _ in range(max(3, repeats))]
        anew = [*HEADWISE, "run", "r.toml", "--out", "all0", "--jobs", str(jobs), "--quiet"]
        again = [measured(anew, folder)[:2] for _ in range(max(3, repeats))]
    return {
        "cells": cells,
        "overhead_ms_per_cell": interval(ours),
        "cpu_ms_per_cell": interval(cpu),
        "joblib_memory_ms_per_cell": interval(theirs),
        "peak_mb": {"main": [last["small"]["main_peak_mb"], last["full"]["main_peak_mb"]]},
        "worker_peak_mb": [last["small"]["worker_peak_mb"], last["full"]["worker_peak_mb"]],
        "whole_wall_ms_per_cell": last["whole_wall_ms_per_cell"],
        "show_seconds": interval(shows),
        "run_again_seconds": interval([wall for wall, _ in again]),
        "run_again_cpu_seconds": interval([cpu for _, cpu in again]),
    }


def checkpoints(device: str, repeats: int) -> dict[str, Any]:
    """Save and restore of a BERT-base-sized model with AdamW; Accelerator.save_state and load_state beside it."""
    import torch
    from accelerate import Accelerator
    from torch import nn

    from headwise.store import Checkpoint

    layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
    model = nn.TransformerEncoder(layer, 12).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(1, 4, 768, device=device)).sum().backward()
    optimizer.step()
    parts = {"model": model, "optimizer": optimizer}

    def timed(work: Callable[[], Any]) -> float:
        clock = time.perf_counter()
        work()
        return time.perf_counter() - clock

    accelerator = Accelerator(cpu=device == "cpu")
    accelerator.prepare(model, optimizer)
    times: dict[str, list[float]] = {
        "save": [],
        "restore": [],
        "accelerator_save": [],
        "accelerator_load": [],
    }
    with tempfile.TemporaryDirectory() as name:
        checkpoint = Checkpoint(f"{name}/ours")
        for _ in range(repeats):
            times["save"].append(timed(lambda: checkpoint.save(parts, {"step": 1})))
            times["accelerator_save"].append(timed(lambda: accelerator.save_state(f"{name}/theirs")))
            times["restore"].append(timed(lambda: checkpoint.restore(parts)))
            times["accelerator_load"].append(timed(lambda: accelerator.load_state(f"{name}/theirs")))
        size = (
            sum(path.stat().st_size for path in Path(name, "ours").rglob("*") if path.is_file()) / 2e6
        )  # two are kept
    return {"megabytes": size, **{key: interval(values) for key, values in times.items()}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    report = {
        "cells": said("cells", overhead(given.cells, given.jobs, given.repeats)),
        "checkpoint": said("checkpoint", checkpoints(given.device, given.repeats)),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
