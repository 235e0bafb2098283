"""The Ray engine on a cluster of two nodes on this machine: the same results, also when a worker is killed midway."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from sample_study import GridRecipe, TrainSettings, grid
from test_study import digests, go

from headwise import engine
from headwise.errors import HeadwiseError
from headwise.store import _locks as locks

ray: Any = pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), before]))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


def recipe(pause: float) -> GridRecipe:
    return GridRecipe(
        kind="grid",
        widths=(8, 16),
        seeds=(0, 1, 2, 3),
        training=TrainSettings(steps=12, pause=pause),
        overview=False,
    )


def test_a_killed_worker_changes_nothing(cluster: Any, tmp_path: Path) -> None:
    run = tmp_path / "ray"
    killed: list[int] = []

    def kill_one() -> None:
        """Kills the process of the first cell that has been reporting for a while."""
        while not killed:
            for status in locks.running(run / "running").values():
                if "pid" in status and status["pid"] != os.getpid():
                    os.kill(status["pid"], signal.SIGKILL)
                    killed.append(status["pid"])
                    return
            time.sleep(0.05)

    killer = Thread(target=kill_one)
    killer.start()
    board = engine.run_study(
        grid, recipe(0.2), run, engine="ray", threads=1, address=cluster.address, quiet=True
    )
    killer.join()
    assert len(killed) == 1
    assert (board.total, board.computed, board.failed) == (24, 24, 0)
    hosts = {result.provenance["host"] for _, result in engine.open(run).results()}
    assert hosts == {socket.gethostname()}
    go(grid, recipe(0.2), tmp_path / "calm")
    assert digests(run) == digests(tmp_path / "calm")
    again = engine.run_study(
        grid, recipe(0.2), run, engine="ray", threads=1, address=cluster.address, quiet=True
    )
    assert (again.found, again.computed) == (24, 0)


def test_more_threads_than_any_node_has_are_refused(cluster: Any, tmp_path: Path) -> None:
    """Ray would wait for such a node for ever."""
    with pytest.raises(HeadwiseError, match="threads=2, but no node of the Ray cluster has more than 1 CPUs"):
        engine.run_study(
            grid, recipe(0), tmp_path / "run", engine="ray", threads=2, address=cluster.address, quiet=True
        )


def test_a_node_that_does_not_share_the_folder_is_named(cluster: Any, tmp_path: Path) -> None:
    """A third node sees an empty folder in place of ours (a mount of its own)."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("cannot make a mount of its own here")
    ray_command = Path(sys.executable).with_name("ray")
    hide = f"mount -t tmpfs none {tmp_path} && exec {ray_command} start --address={cluster.address} --num-cpus=1 --block"
    node = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", hide], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        cluster.connect() if not ray.is_initialized() else None
        while len([n for n in ray.nodes() if n["Alive"]]) < 3:
            assert node.poll() is None
            time.sleep(0.2)
        with pytest.raises(HeadwiseError, match="is not on storage that every Ray node shares: not seen on"):
            engine.run_study(grid, recipe(0), tmp_path / "run", engine="ray", quiet=True)
    finally:
        node.send_signal(signal.SIGINT)
        node.wait()
