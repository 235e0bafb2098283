"""`headwise.json`: the sealed file that says what a saved folder holds, what decided it, and the checksum of
every file in it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwise._base import command
from headwise._base.names import shown
from headwise._base.parsing import read_json
from headwise._base.writing import ASIDE
from headwise.errors import HeadwiseError
from headwise.store._atomic import atomic_folder, seal, sealed_text, write_text
from headwise.store._checksums import DamagedResult, check_listing, contents, verify

NAME = "headwise.json"
FORMAT = 2
CELL = "cell"  # the kind of a folder that a step of a study wrote through `Out`
PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt"}
APART = (
    NAME,
    "started.json",
    "seconds.json",
    "checkpoint",
    "figures",
    "teacher",
    "tickets",
    "modules.json",  # of sentence-transformers, which writes it again beside a head embedding
)  # in a folder, but no part of what it holds
# what a manifest says beside the facts that its loader needs
AROUND = frozenset(
    {"format", "headwise", "files", "finished", "seal", "key", "decision", "provenance", "command", "cell"}
)


def write(folder: Path, kind: str, **fields: Any) -> None:
    """Writes the manifest of `folder`, after all its files; `kind` chooses the loader, `fields` are what it
    needs (JSON values)."""
    write_text(folder / NAME, sealed_text(_record(kind, contents(folder, APART, NAME), fields)))


def write_cell(folder: Path, cell: dict[str, Any], provenance: dict[str, Any]) -> dict[str, Any]:
    """Writes into the manifest of `folder` which cell of a study it is; whoever publishes the folder flushes
    it to the disk.

    Args:
        folder: what a step wrote, or an operation that the step called: then its manifest stays, and says it
            beside its own fields.
        cell: step, settings, inputs, seed, coordinates, seconds, ...
        provenance: see `surroundings`.

    Returns:
        the manifest.

    Raises:
        HeadwiseError: the step wrote a pickle.
    """
    if (folder / NAME).is_file():
        before = read(folder)
        record = {**before, "cell": cell, "provenance": {**provenance, **before.get("provenance", {})}}
    else:
        files = contents(folder)
        for name in files:
            if Path(name).suffix in PICKLES:
                raise HeadwiseError(
                    f"a step saved {name}, a pickle: save weights as safetensors, the rest as JSON"
                )
        record = _record(CELL, files, {"cell": cell, "provenance": provenance})
    (folder / NAME).write_text(sealed_text(record), encoding="utf-8")
    return record


def _record(kind: str, files: dict[str, list[Any]], fields: dict[str, Any]) -> dict[str, Any]:
    from headwise import __version__

    around = {"format": FORMAT, "kind": kind, "headwise": __version__}
    return {**around, **fields, "files": files, "finished": time.time()}


def check_absent(folder: str | Path) -> None:
    """Raises if a result cannot be saved as `folder` because something is there already."""
    if Path(folder).exists():
        raise HeadwiseError(f"{folder} exists already; choose another folder, or remove it first")


@contextmanager
def new_folder(target: str | Path, kind: str, **fields: Any) -> Iterator[Path]:
    """Gives an empty folder to write a result into; when the block ends well, it becomes `target`, with a
    manifest that names the command.

    Raises:
        HeadwiseError: `target` exists already.
    """
    check_absent(target)
    with atomic_folder(target) as aside:
        yield aside
        write(aside, kind, command=command.given(), **fields)


def amend(folder: Path, **fields: Any) -> None:
    """Writes the manifest of `folder` again, with further fields and with the files that have joined."""
    before = read(folder)
    facts = {
        name: value
        for name, value in before.items()
        if name not in ("format", "headwise", "files", "finished")
    }
    write(folder, **{**facts, **fields})


def read(folder: str | Path) -> dict[str, Any]:
    """Reads the manifest of `folder`.

    Raises:
        HeadwiseError: there is none, it is damaged, or a newer headwise wrote it.
    """
    path = Path(folder) / NAME
    if not path.is_file():
        if not Path(folder).is_dir():
            raise HeadwiseError(f"there is no folder {str(folder)!r}{_interrupted_hint(Path(folder))}")
        hint = _inside_hint(Path(folder))
        raise HeadwiseError(f"{folder} was not saved by headwise: there is no {NAME} in it{hint}")
    record = read_json(path)
    number, kind = record.get("format"), record.get("kind")
    if type(number) is not int or not isinstance(kind, str):  # true is an int too
        raise HeadwiseError(
            f"{path} is damaged: its format is {shown(number)} and its kind {shown(kind)}, where a number "
            "and a name are expected"
        )
    if number > FORMAT:
        raise HeadwiseError(
            f"{path} has format {shown(number)}, this headwise reads up to {FORMAT}: upgrade headwise"
        )
    if record.pop("seal", None) != seal(record):
        raise DamagedResult(
            f"{path} is damaged: it does not match its own seal, so it was edited or has flipped bits"
        )
    try:
        check_listing(Path(folder), record.get("files"))
        float(record.get("finished", 0))
    except (TypeError, ValueError, OverflowError) as error:
        raise DamagedResult(f"{path} is damaged: {error}") from None
    return record


def read_any(folder: Path) -> dict[str, Any]:
    """The manifest of `folder`; {} where there is none."""
    return read(folder) if (folder / NAME).is_file() else {}


def _interrupted_hint(folder: Path) -> str:
    """Where an interrupted save has left the folder, for a message; "" if there was none."""
    before = sorted(folder.parent.glob(f"{ASIDE}{folder.name}-before-*"))
    if not before:
        return ""
    return f"; a save that was interrupted has left what was there in {before[-1]}: rename that folder"


def _inside_hint(folder: Path) -> str:
    """Which folders inside were saved by headwise, for a message; "" if none was."""
    manifests = [*sorted(folder.glob(f"*/{NAME}")), *sorted(folder.glob(f"*/*/{NAME}"))]
    if not manifests:
        return ""
    names = [str(path.parent) for path in manifests[:4]]
    if len(manifests) > 4:
        names.append("...")
    return f", but in {', '.join(names)}: open one of these"


def check(folder: Path, record: dict[str, Any], *names: str) -> None:
    """Compares the files of `folder` with the checksums in its manifest: those of these names, or all of
        them.

    Raises:
        DamagedResult: a file is not as it was written; names it.
    """
    files = record.get("files", {})
    listing = {name: size_and_digest for name, size_and_digest in files.items() if not names or name in names}
    verify(
        folder,
        listing,
        float(record.get("finished", 0)),
        "; save or compute it again, or fetch an undamaged copy",
    )
