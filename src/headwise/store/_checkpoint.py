"""Checkpoints inside a long step: everything a training needs to resume bit for bit, as safetensors and
JSON."""

import random
import secrets
import shutil
import time
import warnings
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.optim import Optimizer

from headwise._base.parsing import whole_number
from headwise._base.writing import ASIDE, room_in, save_tensors
from headwise.errors import HeadwiseError
from headwise.store._atomic import atomic_folder, checksum, read_sealed, write_sealed
from headwise.store._trees import Flat, flatten, unflatten

TENSORS = "tensors.safetensors"
STATE = "state.json"


class Stateful(Protocol):
    """A model, optimizer, scheduler, sampler: anything that can say its state and take it back."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any, /) -> Any: ...


class Checkpoint:
    """Saves and restores training state in `folder`, at an interval in minutes.

        checkpoint = Checkpoint("runs/first/checkpoint", every_minutes=10)
        components = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "sampler": sampler}
        state = checkpoint.restore(components) or {"step": 0}
        for step in range(state["step"], steps):
            ...
            if checkpoint.due():
                checkpoint.save(components, {"step": step + 1})
        checkpoint.clear()

    Random state (python, numpy, torch, every GPU) is saved and restored with each checkpoint. A checkpoint
    appears whole or not at all; the two newest are kept, and if the newest is damaged the one before it is
    restored, with a warning. With several processes let one of them save, and ask only that one whether it is
    `due`; gather the others' `random_state()` into `state`.

    Args:
        folder: where checkpoints live; made when first needed.
        every_minutes: `due` is true this long after the last save (0: always).
    """

    def __init__(self, folder: str | Path, every_minutes: float = 10) -> None:
        self.folder = Path(folder)
        self.every_minutes = every_minutes
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether `every_minutes` have passed since the last save (or since this object was made)."""
        return time.monotonic() - self._last >= self.every_minutes * 60

    def save(self, components: Mapping[str, Stateful], state: Mapping[str, Any] | None = None) -> Path:
        """Writes one checkpoint and drops all but the two newest.

        Args:
            components: name to object with `state_dict` and `load_state_dict`.
            state: whatever else is needed to resume: numbers, strings, lists, dicts, tensors, arrays.

        Returns:
            the checkpoint's folder.
        """
        tensors = Flat()
        tree = flatten(
            {
                "parts": {name: component.state_dict() for name, component in components.items()},
                "state": dict(state or {}),
                "random": random_state(),
            },
            tensors,
        )
        saved = self._saved()
        target = self.folder / f"{int(saved[-1].name) + 1 if saved else 0:08d}"
        with room_in(self.folder), atomic_folder(target) as aside:
            save_tensors(tensors, aside / TENSORS)
            write_sealed(aside / STATE, {"tree": tree, "sha256": checksum(aside / TENSORS)})
        for old in saved[:-1]:
            _remove(old)
        self._last = time.monotonic()
        return target

    def restore(self, components: Mapping[str, Stateful]) -> dict[str, Any] | None:
        """Puts the newest sound checkpoint back into `components` and the random generators.

        Returns:
            the `state` that was saved with it, or None if there is no checkpoint.

        Raises:
            HeadwiseError: the checkpoint holds other parts than those asked for.
        """
        for folder in reversed(self._saved()):
            try:
                record = read_sealed(folder / STATE)
                if checksum(folder / TENSORS) != record["sha256"]:
                    raise ValueError(f"{TENSORS} does not match its checksum: truncated or damaged")
                saved = unflatten(record["tree"], load_file(folder / TENSORS))
            except (ValueError, OSError, LookupError, TypeError, AttributeError, SafetensorError) as error:
                warnings.warn(
                    f"checkpoint {folder} is damaged ({error}); using the previous one", stacklevel=2
                )
                _remove(folder)
                continue
            if saved["parts"].keys() != components.keys():
                raise HeadwiseError(
                    f"{folder} holds the parts {sorted(saved['parts'])}, asked for {sorted(components)}: "
                    "resume with the same parts, or remove the folder to start over"
                )
            for name, component in components.items():
                component.load_state_dict(saved["parts"][name])
                if isinstance(component, Optimizer):
                    _exact_optimizer_state(component, saved["parts"][name])
            set_random_state(saved["random"])
            self._last = time.monotonic()
            return dict(saved["state"])
        return None

    def clear(self) -> None:
        """Removes every checkpoint: the work is done."""
        for folder in self._saved():
            _remove(folder)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _saved(self) -> list[Path]:
        """Finished checkpoints, oldest first; what a killed process left aside is removed."""
        if not self.folder.is_dir():
            return []
        for unfinished in self.folder.glob(f"{ASIDE}*"):
            _remove(unfinished)
        return sorted(
            path for path in self.folder.iterdir() if whole_number(path.name) is not None and path.is_dir()
        )


def random_state() -> dict[str, Any]:
    """State of the global random generators: python, numpy, torch on the CPU and on every GPU."""
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: Mapping[str, Any]) -> None:
    """Puts back what `random_state` gave; GPUs that are no longer there are skipped."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    for device, generator in zip(range(torch.cuda.device_count()), state.get("cuda", ()), strict=False):
        torch.cuda.set_rng_state(generator, device)


def _exact_optimizer_state(optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
    """`Optimizer.load_state_dict` casts state to the parameter's dtype (float32 moments of bfloat16 weights
    would lose bits)."""
    params = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    numbers = chain.from_iterable(group["params"] for group in saved["param_groups"])
    for number, param in zip(numbers, params, strict=True):
        for name, value in saved["state"].get(number, {}).items():
            loaded = optimizer.state[param][name]
            if isinstance(value, torch.Tensor) and (loaded.dtype, loaded.stride()) != (
                value.dtype,
                value.stride(),
            ):
                optimizer.state[param][name] = value.to(loaded.device)


def _remove(folder: Path) -> None:
    """Renames first, so that a kill in the middle never leaves half a checkpoint under a good name."""
    if not folder.name.startswith(ASIDE):
        try:
            folder = folder.rename(folder.with_name(f"{ASIDE}{folder.name}-{secrets.token_hex(4)}"))
        except FileNotFoundError:  # another process of the same training was first
            return
    shutil.rmtree(folder, ignore_errors=True)
