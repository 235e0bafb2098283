"""Where examples come from: files, folders, the hub, or Python objects, each as tables (or sentences) by split.

A source is turned into `{split: Raw}`. One table without splits is called "all"; `splitting` divides it.
"""

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise._base.names import HALF, shown, writable
from headwise._base.parsing import parse_json, reading
from headwise.errors import HeadwiseError, MissingExtra
from headwise.tasks._files import open_text
from headwise.tasks._sentence import Sentence

ALL = "all"
ROWS = 50_000  # of a table read at once
SPLIT_NAMES = {"train": "train", "training": "train", "validation": "validation", "valid": "validation", "val": "validation"}
SPLIT_NAMES |= {"dev": "validation", "development": "validation", "test": "test", "testing": "test", "eval": "test"}
TABLES = (".parquet", ".csv", ".tsv", ".jsonl", ".json", ".ndjson")
LINES = ".txt"  # read where it is named, never found in a folder, which may have a README.txt
SENTENCES = (
    ".conllu",
    ".conll",
    ".conll2003",
    ".bio",
    ".iob",
    ".iob2",
    ".ptb",
    ".mrg",
    ".trees",
    ".gold_conll",
    ".v4_gold_conll",
)
PACKED = (".xz", ".gz", ".bz2")


@dataclass(frozen=True)
class Raw:
    """One split as it came: a table or annotated sentences, and what to call it in messages.

    `names` are class names that the source itself knows (a hub ClassLabel), by column. `rows` are the numbers (from 0, rising) of the
    table's rows that belong to this split; None: all. Splits of one table share it.
    """

    origin: str
    table: pd.DataFrame | None = None
    sentences: list[Sentence] | None = None
    names: Mapping[str, tuple[str, ...]] | None = None
    rows: NDArray[np.int64] | None = None

    def where(self, place: int) -> str:
        """ "file, row 7", for messages; `place` counts the rows of this split from 0."""
        return f"{self.origin}, row {(place if self.rows is None else self.rows[place]) + 1}"

    def __len__(self) -> int:
        whole = self.sentences if self.table is None else self.table
        return len((whole if whole is not None else ()) if self.rows is None else self.rows)


def suffix(path: Path) -> str:
    """The suffix that tells the format, compression left aside: "train.jsonl.xz" -> ".jsonl"."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in PACKED else path.suffix.lower()


def stem(path: Path) -> str:
    """The name without format and compression: "train.jsonl.xz" -> "train"."""
    return path.name.split(".")[0]


def read_table(path: Path, notes: bool = False) -> pd.DataFrame:
    """Reads parquet, CSV, TSV or JSON lines (a .json file may also be one list of objects), compressed or not; .txt: one text a line.

    Args:
        path: a file.
        notes: whether lines at the head of a CSV file that begin with "# " are notes, not its header.

    Raises:
        HeadwiseError: the file is missing, broken, or of an unknown format.
    """
    if not os.path.isfile(path):
        raise HeadwiseError(f"there is no file {path}")
    kind = suffix(path)
    with reading(path, kind[1:]):
        if kind == ".parquet":
            return pd.read_parquet(path)
        if kind == ".csv":  # only an empty cell is missing: "NA" and "null" are ordinary words
            return _read_csv(path, skiprows=_noted(path) if notes else 0)
        if kind == ".tsv":  # GLUE's files have quotes that mean nothing
            return _read_csv(path, sep="\t", quoting=csv.QUOTE_NONE)
        if kind in (".jsonl", ".ndjson", ".json"):
            return _read_json(path)
        if kind == LINES:
            return pd.DataFrame({"text": _read_lines(path)})
    raise HeadwiseError(
        f"{path} has an unknown format {kind!r}; expected one of {', '.join(TABLES)}, or {LINES} (one text a line), also with "
        f"{', '.join(PACKED)}"
    )


def _read_lines(path: Path) -> list[str]:
    with open_text(path) as handle:
        return [line.strip() for line in handle if line.strip()]


def _noted(path: Path) -> int:
    """How many lines at the head of a file begin with "# "."""
    with open_text(path) as handle:
        return sum(1 for _ in takewhile(lambda line: line.startswith("# "), handle))


def _read_csv(path: Path, **options: Any) -> pd.DataFrame:
    """A table read piece by piece: pandas makes Python objects of all that it reads at once, before it packs them."""
    with pd.read_csv(path, keep_default_na=False, na_values=[""], chunksize=ROWS, **options) as pieces:
        read = list(pieces)
    return read[0] if len(read) == 1 else pd.concat(read, ignore_index=True)


def _read_json(path: Path) -> pd.DataFrame:
    """JSON lines, or one list of objects."""
    with open_text(path) as handle:
        content = handle.read()
    if content.lstrip()[:1] == "[":
        rows = parse_json(content, str(path))
        wrong = next((number for number, row in enumerate(rows, 1) if not isinstance(row, dict)), None)
        if wrong is not None:
            raise HeadwiseError(f"{path}, row {wrong}: expected an object, got {shown(rows[wrong - 1])}")
        return pd.DataFrame(rows)
    rows = []
    for number, line in enumerate(content.split("\n"), 1):
        if line.strip():
            rows.append(parse_json(line, f"{path}, line {number}"))
            if not isinstance(rows[-1], dict):
                raise HeadwiseError(f"{path}, line {number}: expected an object, got {shown(rows[-1])}")
            if "\\ud" in line.lower() and not writable(json.dumps(rows[-1], ensure_ascii=False)):
                raise HeadwiseError(f"{path}, line {number} {HALF}; fix or remove the line")
    return pd.DataFrame(rows)


def from_path(path: str | Path | Mapping[str, str | Path], word_level: bool, **reading: Any) -> dict[str, Raw]:
    """Reads a file, a folder with one file per split, or files named by split.

    Args:
        path: a file; a folder with train, validation (valid, val, dev) and test files; or {split: file}.
        word_level: whether sentences are wanted: then JSON lines are read as annotated sentences too.
        reading: passed on to the sentence readers (`skip_bad`, `scheme`, ...).
    """
    if isinstance(path, Mapping):
        return {split_name(name): _read(Path(file), word_level, reading) for name, file in path.items()}
    where = Path(path)
    if os.path.isdir(where):
        return {name: _read(file, word_level, reading) for name, file in folder_files(where).items()}
    return {ALL: _read(where, word_level, reading)}


def folder_files(folder: Path) -> dict[str, Path]:
    """The data files of a folder by split; of a treebank given twice (.conllu and .ptb) the .conllu file."""
    files = sorted(file for file in folder.iterdir() if suffix(file) in (*TABLES, *SENTENCES))
    found: dict[str, Path] = {}
    for file in files:
        found.setdefault(split_name(stem(file)), file)
    if not found:
        raise HeadwiseError(
            f"{folder} holds no data file; expected train, validation and test files ending in {', '.join(TABLES)}"
        )
    return found


def split_name(name: str) -> str:
    """Our name of a split: "dev" -> "validation"; unknown names stay, hyphens as underscores."""
    return SPLIT_NAMES.get(name.lower(), name.lower().replace("-", "_"))


def _read(path: Path, word_level: bool, reading: Mapping[str, Any]) -> Raw:
    if suffix(path) in SENTENCES or (word_level and suffix(path) == ".jsonl"):
        from headwise.tasks.readers import read_sentences

        return Raw(str(path), sentences=read_sentences(path, **reading))
    table = read_table(path)
    if table.empty:
        headed = len(table.columns) and suffix(path) != LINES
        raise HeadwiseError(f"{path} holds no rows{': there is nothing below its header' if headed else ''}")
    return Raw(str(path), table=table)


def from_hub(name: str, subset: str | None, revision: str | None, splits: Mapping[str, str] | None) -> dict[str, Raw]:
    """Loads a dataset of the Hugging Face hub (or of the local cache) with the `datasets` library; no code of it is ever run.

    `subset` "*" puts all its configurations together. A dataset that has nothing but a "train" split counts as not divided yet.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra("datasets", "data") from error
    try:
        if subset == "*":
            every = datasets.get_dataset_config_names(name, revision=revision)
            parts = [datasets.load_dataset(name, config, revision=revision) for config in every]
            loaded = {split: datasets.concatenate_datasets([part[split] for part in parts]) for split in parts[0]}
        else:
            loaded = datasets.load_dataset(name, subset, revision=revision)
    except (OSError, ValueError, RuntimeError) as error:
        raise HeadwiseError(f"the dataset {name!r} ({subset or 'default'}) could not be loaded from the hub: {error}") from error
    wanted = {split_name(split) for split in (splits or {}).values()}
    found = {split_name(split): _from_dataset(data, f"{name} {split}") for split, data in loaded.items()}
    found = {split: raw for split, raw in found.items() if not wanted or split in wanted}
    only = list(found)
    return (
        {ALL: found[only[0]]} if only == ["train"] and not wanted else found
    )  # a single split is not a training split by nature


def _from_dataset(data: Any, origin: str) -> Raw:
    """A `datasets.Dataset` as a table, with the names of its ClassLabel columns (also inside lists)."""
    names: dict[str, tuple[str, ...]] = {}
    for column, feature in data.features.items():
        inner = getattr(feature, "feature", feature)
        if type(inner).__name__ == "ClassLabel":
            names[column] = tuple(inner.names)
    return Raw(origin, table=data.to_pandas(), names=names)


def from_data(data: Any, columns: Sequence[str]) -> dict[str, Raw]:
    """Python data: a table or rows, {split: table or rows}, or a function without arguments that reads one of these.

    Rows are dicts, tuples in the order of `columns`, or Sentences.
    """
    data = data() if callable(data) else data
    if isinstance(data, Mapping):
        return {split_name(name): _from_rows(rows, columns, f"data[{name!r}]") for name, rows in data.items()}
    return {ALL: _from_rows(data, columns, "data")}


def _from_rows(rows: Any, columns: Sequence[str], origin: str) -> Raw:
    if isinstance(rows, pd.DataFrame):
        return Raw(origin, table=rows.reset_index(drop=True))
    if type(rows).__module__.startswith("datasets."):
        return _from_dataset(rows, origin)
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise HeadwiseError(f"{origin} is a {type(rows).__name__}; expected a table, or rows as dicts, tuples or Sentences")
    rows = list(rows)
    if rows and all(isinstance(row, Sentence) for row in rows):
        return Raw(origin, sentences=rows)
    if rows and all(isinstance(row, Mapping) for row in rows):
        return Raw(origin, table=pd.DataFrame(rows))
    if rows and all(isinstance(row, str) for row in rows):
        rows = [(row,) for row in rows]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Sequence) or len(row) > len(columns):
            raise HeadwiseError(
                f"{origin}, row {number} is {row!r}; expected a dict, a Sentence, or a tuple ({', '.join(columns)})"
            )
    return Raw(
        origin, table=pd.DataFrame([list(row) for row in rows], columns=list(columns[: len(rows[0])] if rows else columns))
    )


def read_texts(path: Path, count: int) -> list[str]:
    """The first `count` sentences of a text file (one a line), or of the column `sentence` of a parquet or CSV file or folder of one."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".parquet", ".csv", ".txt"))
        if len(files) != 1:
            raise HeadwiseError(f"{path} holds {len(files)} parquet, csv or txt files; name one of them")
        path = files[0]
    if path.suffix in (".parquet", ".csv"):
        frame = read_table(path)
        if "sentence" not in frame:
            raise HeadwiseError(f"{path} has no column 'sentence'; it has {', '.join(map(str, frame.columns))}")
        texts = [str(text) for text in frame["sentence"]]
    else:
        texts = _read_lines(path)
    return texts[:count]
