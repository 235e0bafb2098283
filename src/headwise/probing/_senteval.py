"""The ten probing tasks of SentEval by their names, from SentEval's own files or from a folder with one set
per task."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
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
        path: a folder that holds, per task, either SentEval's text file (`tree_depth.txt`: split tr, va or
            te, label and sentence separated by tabs) or a folder `tree_depth/` with train, test and perhaps
            validation tables (columns sentence, label).
        names: which ("Depth" or "tree_depth"); default: all that are there, in SentEval's order.

    Raises:
        HeadwiseError: a task that was named is missing, or the folder holds none.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise HeadwiseError(
            f"{folder} is not a folder; expected one with files such as {SENTEVAL['Depth']}.txt or folders "
            "of that name"
        )
    sources = {name: _source(folder, file) for name, file in SENTEVAL.items()}
    present = {name: source for name, source in sources.items() if source is not None}
    names = [senteval_name(name) for name in names or present]
    missing = [f"no task {name!r} ({SENTEVAL[name]})" for name in names if name not in present]
    if missing or not names:
        problem = missing[0] if missing else "no probing task"
        raise HeadwiseError(f"{folder} holds {problem}; found: {', '.join(present) or 'nothing'}")
    return [_task(name, present[name]) for name in names]


def senteval_name(name: str) -> str:
    """SentEval's name of a task, from its name or file name in any case.

    Raises:
        HeadwiseError: there is no such task.
    """
    if not is_known(name):
        raise HeadwiseError(
            f"there is no probing task {name!r}{did_you_mean(name, SENTEVAL)}; expected one of "
            f"{', '.join(SENTEVAL)}"
        )
    return _by_key()[_key(name)]


def is_known(name: str) -> bool:
    """Whether one of the ten tasks is called so."""
    return _key(name) in _by_key()


def _by_key() -> dict[str, str]:
    files = {_key(file): task for task, file in SENTEVAL.items()}
    return files | {_key(task): task for task in SENTEVAL}


def _key(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def _source(folder: Path, file: str) -> Path | None:
    """A task's file or folder, if there is one."""
    for name in (f"{file}.txt", f"{file}.txt.gz", f"{file}.txt.xz", f"{file}.txt.bz2", file):
        if (folder / name).exists():
            return folder / name
    return None


def _task(name: str, source: Path) -> Task:
    options: dict[str, Any] = {"path": source} if source.is_dir() else {"data": read_file(source)}
    if name == "WordContent":
        # a small set may lack a word in training that test asks for: no probe can guess it, which counts
        tables = options.get("data")
        if tables is None:
            tables = {split: read_table(file) for split, file in folder_files(source).items()}
        words = chain.from_iterable(table.get("label", ()) for table in tables.values())
        options["classes"] = sorted(set(map(str, words)))
    return Task(name, **options, text="sentence", label="label", kind="classes")


def read_file(path: Path) -> dict[str, pd.DataFrame]:
    """One of SentEval's probing files by split; tables with the columns sentence and label.

    Raises:
        HeadwiseError: a line is not split, label and sentence.
    """
    rows: dict[str, list[tuple[str, str]]] = defaultdict(list)
    with open_text(path) as handle:
        for number, line in enumerate(handle, 1):
            if not line.strip():
                continue
            cells = line.rstrip("\n").split("\t")
            if len(cells) != 3 or cells[0] not in SPLITS:
                raise HeadwiseError(
                    f"{path}, line {number}: expected tr, va or te, a label and a sentence, separated by "
                    f"tabs; got {line[:80]!r}"
                )
            split, label, sentence = cells
            rows[SPLITS[split]].append((sentence, label))
    return {split: pd.DataFrame(members, columns=["sentence", "label"]) for split, members in rows.items()}
