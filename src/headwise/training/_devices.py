"""The accelerator of a training, and the random state of all its processes."""

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise._base.devices import checked_device
from headwise.errors import HeadwiseError
from headwise.training._processes import promised
from headwise.training._settings import Train


def connect(settings: Train) -> Any:
    """Joins the processes that a launcher (torchrun, mpirun) started, on GPUs or on the CPU; gives
    accelerate's `PartialState`.

    Raises:
        HeadwiseError: there are not as many processes together as the launcher promised, or more on this
            machine than it has GPUs.
    """
    from accelerate import PartialState

    if settings.device is not None:
        checked_device(settings.device)
    started = promised()
    accelerators = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    # accelerate connects processes on the CPU only if told that it is the CPU: without a GPU each would be a
    # world of its own
    cpu = settings.device == "cpu" or (started > 1 and accelerators == 0)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if not cpu and started > 1 and here > accelerators:
        raise HeadwiseError(
            f"{here} processes were started on this machine, which has {accelerators} GPUs: start as many "
            "processes as there are GPUs, or train on the CPU (device='cpu')"
        )
    _forget_other_state(settings.precision, cpu)
    state = PartialState(cpu=cpu)
    if state.num_processes != started:
        raise HeadwiseError(
            f"the launcher announced {started} processes, but only {state.num_processes} connected: training "
            "separately, they would overwrite each other's results; start them with torchrun, and without it "
            "unset WORLD_SIZE"
        )
    return state


def make_accelerator(settings: Train, folder: Path | None) -> Any:
    """An `accelerate.Accelerator` for these settings: device, precision, processes (as `torchrun` started
    them), trackers."""
    from accelerate import Accelerator, DistributedDataParallelKwargs
    from accelerate.utils import LoggerType

    connected = connect(settings)
    for tracker in settings.trackers:
        if tracker not in LoggerType.list():
            raise HeadwiseError(
                f"tracker {tracker!r} is unknown; accelerate has: {', '.join(map(str, LoggerType.list()))}"
            )
    accelerator = Accelerator(
        mixed_precision=settings.precision,
        cpu=connected._cpu,
        log_with=list(settings.trackers) or None,
        project_dir=str(folder) if folder else None,
        # a step uses one task's decoder: the others have no gradient in it
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True, broadcast_buffers=False)],
    )
    if settings.trackers:
        missing = set(settings.trackers) - {
            getattr(tracker, "value", str(tracker)) for tracker in accelerator.log_with
        }
        if missing:
            raise HeadwiseError(
                f"tracker {sorted(missing)[0]!r} is not installed, or accelerate does not know it: pip "
                "install it"
            )
        plain = {
            k: v if isinstance(v, int | float | str | bool) else str(v) for k, v in settings.decides().items()
        }
        accelerator.init_trackers("headwise", config=plain)
    return accelerator


def _forget_other_state(precision: str, cpu: bool) -> None:
    """accelerate keeps one state per program. It refuses another precision in it, refuses the CPU after a
    GPU, and after the CPU stays there silently. Connected processes stay connected: theirs is one device for
    good."""
    from accelerate.state import AcceleratorState, PartialState

    shared_state = PartialState._shared_state
    elsewhere = bool(shared_state) and shared_state["_cpu"] != cpu and PartialState().num_processes == 1
    if elsewhere or (AcceleratorState._shared_state and AcceleratorState().mixed_precision != precision):
        AcceleratorState._reset_state(reset_partial_state=elsewhere)


def _own_state(device: torch.device) -> list[Tensor]:
    """Random state of this process, as byte tensors: dropout draws from nothing else."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states


def gather_random_state(accelerator: Any) -> list[Tensor]:
    """The random states of all processes, for a checkpoint that one of them writes; call it on all."""
    gathered = []
    for state in _own_state(accelerator.device):
        rows = accelerator.gather(state.to(accelerator.device)[None])  # (processes, bytes)
        gathered.append(rows.cpu())
    return gathered


def put_random_state(accelerator: Any, gathered: list[Tensor]) -> None:
    """Gives this process its own random state back.

    Raises:
        HeadwiseError: the checkpoint was written by another number of processes.
    """
    if len(gathered[0]) != accelerator.num_processes:
        raise HeadwiseError(
            f"the checkpoint was written by {len(gathered[0])} processes, and this training has "
            f"{accelerator.num_processes}: resume with the same number, or start in another folder"
        )
    rank = accelerator.process_index
    torch.set_rng_state(gathered[0][rank].contiguous())
    if len(gathered) > 1 and accelerator.device.type == "cuda":
        torch.cuda.set_rng_state(gathered[1][rank].contiguous(), accelerator.device)
