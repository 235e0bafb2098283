"""Where and with what a result was computed."""

import platform
import resource
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

LIBRARIES = (
    "torch",
    "transformers",
    "accelerate",
    "peft",
    "numpy",
    "pandas",
    "xarray",
    "scipy",
    "scikit-learn",
)


def surroundings() -> dict[str, Any]:
    """Versions of the libraries, commit of the source, device and host."""
    return {"versions": versions(), "commit": _commit(), "device": _device(), "host": socket.gethostname()}


def reset_peak_memory() -> None:
    """Makes the current memory the peak so far; where the system cannot (not Linux), the peak is the
    process's."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized():  # a cell that computes on the CPU starts none
        with suppress(RuntimeError):
            torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> dict[str, int]:
    """Peak memory of the step in bytes: {"cpu": resident, "gpu": allocated, where there is one}."""
    peak = {
        "cpu": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    }
    with suppress(OSError, IndexError):
        peak["cpu"] = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    if (torch := sys.modules.get("torch")) and torch.cuda.is_initialized():
        peak["gpu"] = torch.cuda.max_memory_allocated()
    return peak


@cache
def versions() -> dict[str, str]:
    """Versions of python, headwise and the libraries that are installed."""
    from headwise import __version__

    installed = {"python": platform.python_version(), "headwise": __version__}
    for library in LIBRARIES:
        try:
            installed[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return installed


@cache
def _commit() -> str | None:
    """Commit of the headwise source, with + if it was changed since; None if it is not a checkout."""
    here = Path(__file__).resolve().parent
    try:
        git = ["git", "-C", str(here)]
        commit = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", "."], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}+" if changed else commit


def _device() -> dict[str, Any]:
    """What this process computes on: a GPU if it has used one, else the CPU."""
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {"kind": "cuda", "name": torch.cuda.get_device_name(0), "threads": torch.get_num_threads()}
    return {
        "kind": "cpu",
        "name": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
    }
