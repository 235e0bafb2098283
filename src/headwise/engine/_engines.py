"""Who does the work: this process, processes of this machine (joblib's), or a Ray cluster. Each gives the
same results."""

import os
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any, Protocol

from headwise.engine._steps import Task
from headwise.engine._worker import run_batch
from headwise.errors import HeadwiseError

Answer = tuple[
    list[Task], list[dict[str, Any]] | BaseException
]  # an exception: the worker died on this batch
WORKER_BYTES = 4 << 30  # memory one worker is expected to need, when the number of workers is not given
MOST_PER_GPU = 4  # workers that share a GPU, when the number of workers is not given
CONTEXT_BYTES = 1 << 30  # memory of a GPU that a process takes beside its tensors


class Engine(Protocol):
    """Runs batches of cells."""

    @property
    def slots(self) -> int:
        """How many batches it runs at once."""

    def free(self) -> int:
        """How many more batches it takes now."""

    def submit(self, batch: list[Task]) -> None: ...

    def wait(self, seconds: float) -> list[Answer]:
        """Batches that have ended; waits at most `seconds` for the first."""

    def close(self) -> None:
        """Ends the workers, whatever they are doing."""


class Inline:
    """Everything in this process, one batch after another: for debugging, and for studies whose steps are
    defined in a script."""

    slots = 1

    def __init__(self, run: Path, threads: int | None) -> None:
        self._run, self._threads = str(run), threads
        self._batch: list[Task] | None = None

    def free(self) -> int:
        return int(self._batch is None)

    def submit(self, batch: list[Task]) -> None:
        self._batch = batch

    def wait(self, seconds: float) -> list[Answer]:
        if self._batch is None:
            time.sleep(seconds)
            return []
        import torch

        from headwise.store import random_state, set_random_state

        batch, self._batch = self._batch, None
        state, threads = random_state(), torch.get_num_threads()
        try:
            return [(batch, run_batch(self._run, batch, self._threads))]
        finally:  # this process is the caller's: its random numbers and threads are left as they were
            set_random_state(state)
            torch.set_num_threads(threads)

    def close(self) -> None:
        pass


class Local:
    """`jobs` processes on this machine. With GPUs each process sees one of them; where the number is not
    given, one per GPU begins, and more join as long as results show that cells are small (see `per_gpu`), and
    fewer work once a cell turns out to be larger.

    Every process is a pool of its own, so that a death is known to be that of one batch, and costs no other.
    """

    def __init__(self, run: Path, jobs: int | None, threads: int | None) -> None:
        self._gpus = visible_gpus()
        self._grows = bool(self._gpus) and jobs is None
        self._peak = 0  # most memory of a GPU that a cell took
        self._most = sys.maxsize  # workers, once a cell found a GPU full
        self.slots = jobs or len(self._gpus) or default_jobs()
        self._run = run
        self._threads = threads or share_of_cores(self.slots * (MOST_PER_GPU if self._grows else 1))
        self._pools: list[Any] = [None] * self.slots
        self._flight: dict[Future[Any], tuple[int, list[Task]]] = {}

    def free(self) -> int:
        return self.slots - len(self._flight)

    def submit(self, batch: list[Task]) -> None:
        used = [slot for slot, _ in self._flight.values()]
        each = len(self._gpus) or 1  # of several GPUs the one with the fewest cells
        free = (slot for slot in range(self.slots) if slot not in used)
        slot = min(free, key=lambda slot: sum(busy_slot % each == slot % each for busy_slot in used))
        if self._pools[slot] is None:
            self._pools[slot] = self._start(slot)
        self._flight[self._pools[slot].submit(run_batch, str(self._run), batch, self._threads)] = (
            slot,
            batch,
        )

    def wait(self, seconds: float) -> list[Answer]:
        answers: list[Answer] = []
        for future in wait(self._flight, timeout=seconds, return_when=FIRST_COMPLETED).done:
            slot, batch = self._flight.pop(future)
            error = future.exception()
            if error is not None or any(outcome.get("broken") for outcome in future.result()):
                self._pools[slot].shutdown(wait=False, kill_workers=True)
                self._pools[slot] = None
            answers.append((batch, error or future.result()))
            if error is None and self._grows:
                self._resize(future.result())
        if not self._flight and not answers:
            time.sleep(seconds)
        return answers

    def _resize(self, outcomes: list[dict[str, Any]]) -> None:
        """As many workers as what cells have taken so far, failed ones included, leaves room for."""
        for peak, total in (outcome["gpu"] for outcome in outcomes if "gpu" in outcome):
            self._peak = max(self._peak, peak)
            self.slots = len(self._gpus) * per_gpu(self._peak, total, cores() // len(self._gpus))
        if any(
            outcome.get("full") for outcome in outcomes
        ):  # what a cell had taken when it failed says little of what it needs
            self._most = max(len(self._gpus), len(self._flight))
        self.slots = min(self.slots, self._most)
        self._pools += [None] * (self.slots - len(self._pools))
        busy = {slot for slot, _ in self._flight.values()}
        for slot in range(self.slots, len(self._pools)):  # an idle worker holds memory of the GPU
            if slot not in busy and self._pools[slot] is not None:
                self._pools[slot].shutdown(wait=False)
                self._pools[slot] = None

    def close(self) -> None:
        busy = {slot for slot, _ in self._flight.values()}
        for slot, pool in enumerate(self._pools):
            if pool is not None:  # an idle worker leaves by itself and cleans up behind it
                pool.shutdown(wait=True, kill_workers=slot in busy)

    def _start(self, slot: int) -> Any:
        from joblib.externals.loky import ProcessPoolExecutor

        gpu = self._gpus[slot % len(self._gpus)] if self._gpus else None
        env = {
            name: str(self._threads)
            for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        }
        if gpu is not None:
            env["CUDA_VISIBLE_DEVICES"] = gpu
        log = self._run / "logs" / f"worker-{slot}.log"
        # loky replaces a worker whose memory has grown, and warns of it; the cell it was given is computed
        # all the same
        warnings.filterwarnings(
            "ignore", "A worker stopped while some jobs were given to the executor", UserWarning
        )
        return ProcessPoolExecutor(
            max_workers=1, env=env, initializer=_enter_worker, initargs=(os.getpid(), str(log))
        )


def per_gpu(peak: int, total: int, cores: int) -> int:
    """How many workers share a GPU: as many as fit into half of its memory, with two cores each, and four at
        most.

    Args:
        peak: most bytes of it that a cell took.
        total: bytes it has.
        cores: of the machine, for each GPU.
    """
    return max(1, min(MOST_PER_GPU, total // 2 // (peak + CONTEXT_BYTES), cores // 2))


def visible_gpus() -> list[str]:
    """Names of the GPUs this process may use, as CUDA_VISIBLE_DEVICES takes them."""
    import torch

    count = torch.cuda.device_count()
    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if names:
        return names[:count]
    return [str(number) for number in range(count)]


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def share_of_cores(workers: int) -> int:
    """Threads of each worker: the cores shared out, and never more than OMP_NUM_THREADS says, as on cores
    that are busy already."""
    share = max(1, cores() // workers)
    # a list speaks of threads within threads
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if limit.isdecimal() and int(limit) > 0:
        return min(share, int(limit))
    return share


def default_jobs() -> int:
    """One worker a core, as far as the free memory goes."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return cores()
    return max(1, min(cores(), free // WORKER_BYTES))


def _enter_worker(parent: int, log: str) -> None:
    """First thing in a new process: Ctrl-C is the parent's business, output goes to the log, and no worker
    outlives its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def start(
    engine: str, run: Path, jobs: int | None = None, threads: int | None = None, address: str | None = None
) -> Engine:
    """The engine of that name: "local" (with jobs=0: in this process) or "ray".

    Args:
        jobs: cells at once; None: one per GPU, and more where cells are small, or as many as cores and memory
            allow.
        threads: CPU threads of each; None shares out the cores, up to OMP_NUM_THREADS where that is set.
        address: of a Ray cluster; None starts one here.
    """
    if engine == "local":
        return Inline(run, threads) if jobs == 0 else Local(run, jobs, threads)
    if engine == "ray":
        from headwise.engine._ray import OnRay

        return OnRay(run, jobs, threads, address)
    raise HeadwiseError(f"unknown engine {engine!r}; there are: local, ray")
