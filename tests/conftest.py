"""Shared by all tests: two test processes on two cores, so one torch thread each, and never the network; a disk that is soon full."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
if "HEADWISE_CACHE" not in os.environ:  # not the user's own
    _cache = tempfile.TemporaryDirectory(prefix="headwise-tests-")
    os.environ["HEADWISE_CACHE"] = _cache.name


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB, where the system lets us mount one; `mount -o remount,size=...` makes it larger."""
    place = tmp_path / "disk"
    place.mkdir()
    if (
        os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], capture_output=True
        ).returncode
    ):
        pytest.skip("cannot mount a small disk here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)  # a worker may still be on its way out
