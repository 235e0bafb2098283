"""Where results live: keyed by the content that decides them, written whole or not at all, sealed with checksums, resumable."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.store._atomic import atomic_folder as atomic_folder
    from headwise.store._checkpoint import (
        Checkpoint as Checkpoint,
        random_state as random_state,
        set_random_state as set_random_state,
    )
    from headwise.store._checksums import DamagedResult as DamagedResult
    from headwise.store._fingerprints import fingerprint as fingerprint
    from headwise.store._loading import load as load
    from headwise.store._results import Out as Out, Result as Result

__getattr__, __all__ = lazily(__name__)
