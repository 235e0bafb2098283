"""Where results live: atomic, resumable, provenance-stamped; checkpoints; the engine that spreads work."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwise.runs.atomic import atomic_folder as atomic_folder
    from headwise.runs.checkpoint import Checkpoint as Checkpoint
    from headwise.runs.checkpoint import random_state as random_state
    from headwise.runs.checkpoint import set_random_state as set_random_state
    from headwise.runs.fingerprints import fingerprint as fingerprint
    from headwise.runs.progress import track as track

# public name -> the module that defines it; imported when first used, since some need torch and some pydantic
_WHERE = {
    "Checkpoint": "checkpoint",
    "atomic_folder": "atomic",
    "fingerprint": "fingerprints",
    "random_state": "checkpoint",
    "set_random_state": "checkpoint",
    "track": "progress",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'headwise.runs' has no attribute {name!r}")
    return getattr(import_module(f"headwise.runs.{_WHERE[name]}"), name)
