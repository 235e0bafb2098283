"""`headwise.json`: the small file that says what a saved folder holds, so that `headwise.load` knows how to read it."""

import json
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.names import shown
from headwise.parsing import read_json

NAME = "headwise.json"
FORMAT = 1


def write(folder: Path, kind: str, **fields: Any) -> None:
    """Writes the manifest of `folder`; `kind` chooses the loader, `fields` are whatever that loader needs (JSON values)."""
    from headwise import __version__

    record = {"format": FORMAT, "kind": kind, "headwise": __version__, **fields}
    (folder / NAME).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read(folder: str | Path) -> dict[str, Any]:
    """Reads the manifest of `folder`.

    Raises:
        HeadwiseError: there is none, it is damaged, or a newer headwise wrote it.
    """
    path = Path(folder) / NAME
    if not path.is_file():
        if not Path(folder).is_dir():
            raise HeadwiseError(f"there is no folder {str(folder)!r}")
        inside = [str(found.parent) for depth in ("*", "*/*") for found in sorted(Path(folder).glob(f"{depth}/{NAME}"))]
        hint = f", but in {', '.join(inside[:4])}{', ...' if len(inside) > 4 else ''}: open one of these" if inside else ""
        raise HeadwiseError(f"{folder} was not saved by headwise: there is no {NAME} in it{hint}")
    record = read_json(path)
    number, kind = record.get("format"), record.get("kind")
    if not isinstance(number, int) or not isinstance(kind, str):
        raise HeadwiseError(
            f"{path} is damaged: its format is {shown(number)} and its kind {shown(kind)}, where a number and a name are expected"
        )
    if number > FORMAT:
        raise HeadwiseError(f"{path} has format {shown(number)}, this headwise reads up to {FORMAT}: upgrade headwise")
    return record
