"""The ten probing tasks of SentEval by their names, from SentEval's own files or from a folder with one set per task."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headwise.errors import HeadwiseError, did_you_mean
from headwise.tasks import Task, folder_files, open_text, read_table

# name -> SentEval's file name; in the order of the papers
SENTEVAL = {
    "Length": "sentence_length",
    "WordContent": "word_content",
    "Depth": "tree_depth",
    "TopConstituents": "top_constituents",
    "BigramShift": "bigram_shift",
    "Tense": "past_present",
    "SubjNumber": "subj_number",
    "ObjNumber": "obj_number",
    "OddManOut": "odd_man_out",
    "CoordinationInversion": "coordination_inversion",
}
SPLITS = {"tr": "train", "va": "validation", "te": "test"}


def senteval_tasks(path: str | Path, names: Sequence[str] | None = None) -> list[Task]:
    """The probing tasks found in a folder.

    Args:
        path: a folder that holds, per task, either SentEval's text file (`tree_depth.txt`: split tr, va or te, label and sentence
            separated by tabs) or a folder `tree_depth/` with train, test and perhaps validation tables (columns sentence, label).
        names: which ("Depth" or "tree_depth"); default: all that are there, in SentEval's order.

    Raises:
        HeadwiseError: a task that was named is missing, or the folder holds none.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise HeadwiseError(
            f"{folder} is not a folder; expected one with files such as {SENTEVAL['Depth']}.txt or folders of that name"
        )
    found = {name: place for name, file in SENTEVAL.items() if (place := _place(folder, file)) is not None}
    wanted = [senteval_name(name) for name in names] if names else list(found)
    missing = [name for name in wanted if name not in found]
    if missing or not wanted:
        what = f"no task {missing[0]!r} ({SENTEVAL[missing[0]]})" if missing else "no probing task"
        raise HeadwiseError(f"{folder} holds {what}; found: {', '.join(found) or 'nothing'}")
    return [_task(name, found[name]) for name in wanted]


def senteval_name(name: str) -> str:
    """SentEval's name of a task, from its name or file name in any case.

    Raises:
        HeadwiseError: there is no such task.
    """
    if not is_known(name):
        raise HeadwiseError(
            f"there is no probing task {name!r}{did_you_mean(name, SENTEVAL)}; expected one of {', '.join(SENTEVAL)}"
        )
    return _by_key()[_key(name)]


def is_known(name: str) -> bool:
    """Whether one of the ten tasks is called so."""
    return _key(name) in _by_key()


def _by_key() -> dict[str, str]:
    return {_key(known): task for task, file in SENTEVAL.items() for known in (task, file)}


def _key(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def _place(folder: Path, file: str) -> Path | None:
    places = [folder / f"{file}.txt{packed}" for packed in ("", ".gz", ".xz", ".bz2")] + [folder / file]
    return next((place for place in places if place.is_file() or place.is_dir()), None)


def _task(name: str, place: Path) -> Task:
    tables = {} if place.is_dir() else read_file(place)
    classes = None
    if (
        name == "WordContent"
    ):  # a small set may lack a word in training that test asks for: no probe can guess it, which counts
        every = tables or {split: read_table(file) for split, file in folder_files(place).items()}
        classes = sorted({str(label) for table in every.values() for label in table.get("label", ())})
    source: dict[str, Any] = {"data": tables} if tables else {"path": place}
    return Task(name, **source, text="sentence", label="label", kind="classes", classes=classes)


def read_file(path: Path) -> dict[str, pd.DataFrame]:
    """One of SentEval's probing files by split; tables with the columns sentence and label.

    Raises:
        HeadwiseError: a line is not split, label and sentence.
    """
    rows: dict[str, list[tuple[str, str]]] = {}
    with open_text(path) as handle:
        for number, line in enumerate(handle, 1):
            if not line.strip():
                continue
            parts = line.rstrip("\n").split("\t")
            if len(parts) != 3 or parts[0] not in SPLITS:
                raise HeadwiseError(
                    f"{path}, line {number}: expected tr, va or te, a label and a sentence, separated by tabs; got {line[:80]!r}"
                )
            rows.setdefault(SPLITS[parts[0]], []).append((parts[2], parts[1]))
    return {split: pd.DataFrame(members, columns=["sentence", "label"]) for split, members in rows.items()}
