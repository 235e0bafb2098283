"""Where results live: keyed by the content that decides them, written whole or not at all, sealed with checksums, resumable."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.store._atomic import atomic_folder as atomic_folder
    from headwise.store._checkpoint import Checkpoint as Checkpoint
    from headwise.store._checkpoint import random_state as random_state
    from headwise.store._checkpoint import set_random_state as set_random_state
    from headwise.store._checksums import DamagedResult as DamagedResult
    from headwise.store._fingerprints import fingerprint as fingerprint
    from headwise.store._loading import load as load
    from headwise.store._results import Out as Out
    from headwise.store._results import Result as Result

# public name -> the module that defines it; imported when first used, since some need torch
_WHERE = {
    "Checkpoint": "_checkpoint",
    "DamagedResult": "_checksums",
    "Out": "_results",
    "Result": "_results",
    "atomic_folder": "_atomic",
    "fingerprint": "_fingerprints",
    "load": "_loading",
    "random_state": "_checkpoint",
    "set_random_state": "_checkpoint",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily("headwise.store", _WHERE)
