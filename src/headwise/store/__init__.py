"""Where results live: keyed by the content that decides them, written whole or not at all, sealed with
checksums, resumable."""

from typing import TYPE_CHECKING

from headwise._base.lazy import lazily

if TYPE_CHECKING:
    from headwise.store._atomic import atomic_folder
    from headwise.store._checkpoint import (
        Checkpoint as Checkpoint,
        random_state as random_state,
        set_random_state,
    )
    from headwise.store._checksums import DamagedResult
    from headwise.store._fingerprints import fingerprint as fingerprint
    from headwise.store._loading import load as load
    from headwise.store._results import Out as Out, Result as Result

if TYPE_CHECKING:  # for other rooms, not for users
    from headwise.store import _locks as locks, _manifest as manifest
    from headwise.store._atomic import flush_to_disk, publish, sealed_text, write_sealed, write_text
    from headwise.store._decision import Decision, decision, key_of, model_parts
    from headwise.store._entry import Entry, claimed_folder, kept
    from headwise.store._fingerprints import (
        cache_folder,
        content_hash,
        model_content,
        noting_files,
        remembering_files,
    )
    from headwise.store._live import tokenizer_content
    from headwise.store._loading import LOADERS
    from headwise.store._provenance import peak_memory, reset_peak_memory, surroundings
    from headwise.store._results import (
        damaged_files,
        digest_of,
        folder_stamp,
        inputs_of,
        read_cell,
        result_digest,
        stale_input,
        take_kept,
    )
    from headwise.store._saving import README_NOTE, STARTED_FILE, is_note, save_model
    from headwise.store._structure import OPEN_BLOCKS
    from headwise.store._timing import timed_attempts
    from headwise.store._tokenizers import save_tokenizer, tokenizer_choices, tokenizer_state

__getattr__, __all__ = lazily(__name__)
