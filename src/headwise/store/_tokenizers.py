"""What decides what a tokenizer makes of a text."""

import json
from pathlib import Path
from typing import Any

from headwise.store._code import digest, is_foreign
from headwise.store._contents import Contents, passes_by

# where one came from, and what it looks its own tokens up in
ASIDE = {
    "is_local",
    "local_files_only",
    "use_fast",
    "trust_remote_code",
    "verbose",
    "init_kwargs",
    "tokens_trie",
}
PLACES = ("_file", "_files", "_path", "_dir")  # how names of such attributes end
PASSING_STATE = ("padding", "truncation")  # what was last asked of the program of a fast one


def tokenizer_state(tokenizer: Any, program: str | None = None) -> dict[str, Any]:
    """All that decides what a tokenizer makes of a text, as JSON; its passing state (truncation, padding) is
    left aside.

    Args:
        tokenizer: of transformers.
        program: of a fast one, if it was written already.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return {"vocabulary": tokenizer.get_vocab(), "choices": tokenizer_choices(tokenizer)}
    inner = json.loads(backend.to_str() if program is None else program)
    return {
        "program": {k: v for k, v in inner.items() if k not in PASSING_STATE},
        "choices": tokenizer_choices(tokenizer),
    }


def tokenizer_choices(tokenizer: Any) -> dict[str, Any]:
    """What decides how a tokenizer reads texts beside its vocabulary, or the program of a fast one: its
    class, switches and numbers."""
    contents, kind = Contents(), type(tokenizer)
    aside = {name for name in vars(tokenizer) if name in ASIDE or name.endswith(PLACES) or passes_by(name)}
    held = {name: value for name, value in vars(tokenizer).items() if name not in aside}
    if getattr(tokenizer, "is_fast", False):  # the rest is in its program
        held = {name: value for name, value in held.items() if callable(value) and is_foreign(value)}
    return {
        "class": contents.read(kind) if is_foreign(kind) else kind.__name__,
        "split_special_tokens": bool(getattr(tokenizer, "split_special_tokens", False)),
        "truncation_side": getattr(tokenizer, "truncation_side", None),
        "model_input_names": getattr(tokenizer, "model_input_names", None),
        "own": digest([[name, contents.read(held[name])] for name in sorted(held)]),
    }


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Saves a tokenizer without its passing state, so that equal models have equal files, whatever was
    tokenised before."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        tokenizer.save_pretrained(folder)
        return
    truncation, padding = backend.truncation, backend.padding
    backend.no_truncation()
    backend.no_padding()
    try:
        tokenizer.save_pretrained(folder)
    finally:
        if truncation is not None:
            backend.enable_truncation(**truncation)
        if padding is not None:
            backend.enable_padding(**padding)
