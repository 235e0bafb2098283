"""Cells as tasks on a Ray cluster."""

import secrets
import time
from pathlib import Path
from typing import Any

from headwise.engine._engines import Answer
from headwise.engine._steps import Task
from headwise.engine._worker import run_batch
from headwise.errors import HeadwiseError, MissingExtra


class OnRay:
    """Tasks on a Ray cluster: `address`, or this machine if None.

    A batch whose worker or node dies is handed back, and the schedule tries its cells again: Ray itself does
        not.
    """

    def __init__(self, run: Path, jobs: int | None, threads: int | None, address: str | None) -> None:
        try:
            import ray
        except ImportError:
            raise MissingExtra("ray", "ray") from None
        self._ray = ray
        self._mine = not ray.is_initialized()
        self._flight: dict[Any, list[Task]] = {}
        if self._mine:
            local = (
                {} if address else {"include_dashboard": False, "num_cpus": jobs and jobs * (threads or 1)}
            )
            try:
                ray.init(address=address, log_to_driver=False, logging_level="error", **local)
            except (ConnectionError, ValueError) as error:
                raise HeadwiseError(
                    f"no Ray cluster at {address!r}: {error}; start one with: ray start --head"
                ) from error
        try:
            self._connect(run, jobs, threads)
        except BaseException:
            self.close()
            raise

    def _connect(self, run: Path, jobs: int | None, threads: int | None) -> None:
        ray = self._ray
        check_shared(run)
        self._run, self._jobs, self._threads = str(run), jobs, threads or 1
        most = max((int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]), default=0)
        if (
            most and self._threads > most
        ):  # Ray would wait for such a node for ever; a cluster that has none yet may start some
            raise HeadwiseError(
                f"threads={self._threads}, but no node of the Ray cluster has more than {most} CPUs"
            )
        gpu = 1 if ray.cluster_resources().get("GPU") else 0
        self._remote = ray.remote(num_cpus=self._threads, num_gpus=gpu, max_retries=0)(run_batch)

    @property
    def slots(self) -> int:
        """Batches the cluster can run at once; nodes may come and go."""
        resources = self._ray.cluster_resources()
        room = int(resources.get("GPU") or resources.get("CPU", 1) // self._threads)
        return max(1, min(room, self._jobs or room))

    def free(self) -> int:
        return self.slots - len(self._flight)

    def submit(self, batch: list[Task]) -> None:
        self._flight[self._remote.remote(self._run, batch, self._threads)] = batch

    def wait(self, seconds: float) -> list[Answer]:
        if not self._flight:
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait(list(self._flight), num_returns=1, timeout=seconds)
        answers: list[Answer] = []
        for reference in ready:
            batch = self._flight.pop(reference)
            try:
                answers.append((batch, self._ray.get(reference)))
            except self._ray.exceptions.RayError as error:
                answers.append((batch, error))
        return answers

    def close(self) -> None:
        for reference in self._flight:
            self._ray.cancel(reference, force=True)
        if self._mine:
            self._ray.shutdown()


def check_shared(run: Path) -> None:
    """Asks every node of the Ray cluster to read a file just written into the run's folder.

    Raises:
        HeadwiseError: some nodes do not see it.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    token = secrets.token_hex(16)
    probe = run / f".shared-{token}"
    probe.write_text(token)
    try:
        readers = {}
        for node in (node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")):
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            readers[node["NodeManagerAddress"], node["NodeID"]] = ray.remote(num_cpus=0)(_sees).options(
                scheduling_strategy=strategy
            )
        answers = [(address, see.remote(str(probe), token)) for (address, _), see in readers.items()]
        blind = [address for address, answer in answers if not ray.get(answer, timeout=60)]
    finally:
        probe.unlink(missing_ok=True)
    if blind:
        raise HeadwiseError(
            f"the run folder {run} is not on storage that every Ray node shares: not seen on "
            f"{', '.join(sorted(blind))}; choose --out on a shared file system"
        )


def _sees(probe: str, token: str) -> bool:
    try:
        return Path(probe).read_text() == token
    except OSError:
        return False
