"""The accelerator of a training, and the random state of all its processes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.training.settings import TrainingSettings


def make_accelerator(settings: TrainingSettings, folder: Path | None) -> Any:
    """An `accelerate.Accelerator` for these settings: device, precision, processes (as `torchrun` started them), trackers."""
    from accelerate import Accelerator, DistributedDataParallelKwargs
    from accelerate.utils import LoggerType

    cpu = settings.device == "cpu"
    _forget_other_state(settings.precision, cpu)
    for tracker in settings.trackers:
        if tracker not in LoggerType.list():
            raise HeadwiseError(f"tracker {tracker!r} is unknown; accelerate has: {', '.join(map(str, LoggerType.list()))}")
    accelerator = Accelerator(
        mixed_precision=settings.precision,
        cpu=cpu,
        log_with=list(settings.trackers) or None,
        project_dir=str(folder) if folder else None,
        # a step uses one task's decoder: the others have no gradient in it
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True, broadcast_buffers=False)],
    )
    if settings.trackers:
        missing = set(settings.trackers) - {getattr(tracker, "value", str(tracker)) for tracker in accelerator.log_with}
        if missing:
            raise HeadwiseError(
                f"tracker {sorted(missing)[0]!r} is not installed, or accelerate does not know it: pip install it"
            )
        plain = {k: v if isinstance(v, int | float | str | bool) else str(v) for k, v in settings.to_json().items()}
        accelerator.init_trackers("headwise", config=plain)
    return accelerator


def _forget_other_state(precision: str, cpu: bool) -> None:
    """accelerate keeps one state per program. It refuses another precision in it, refuses the CPU after a GPU, and after the CPU
    stays there without a word. Connected processes stay connected: theirs is one device for good."""
    from accelerate.state import AcceleratorState, PartialState

    known = PartialState._shared_state
    elsewhere = bool(known) and known["_cpu"] != cpu and PartialState().num_processes == 1
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
            f"the checkpoint was written by {len(gathered[0])} processes, and this training has {accelerator.num_processes}: "
            "resume with as many, or start in another folder"
        )
    rank = accelerator.process_index
    torch.set_rng_state(gathered[0][rank].contiguous())
    if len(gathered) > 1 and accelerator.device.type == "cuda":
        torch.cuda.set_rng_state(gathered[1][rank].contiguous(), accelerator.device)
