"""Where examples come from: files, folders, the hub, or Python objects, each as tables (or sentences) by
split.

A source is turned into `{split: Raw}`. One table without splits is called "all"; `_splits.divided` divides
it.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise._base.names import shown
from headwise._base.parsing import one_line, read_json
from headwise.errors import HeadwiseError, MissingExtra
from headwise.tasks._sentence import Sentence
from headwise.tasks._tables import LINES, TABLES, as_table, read_table, stem, suffix, table_of_rows
from headwise.tasks.readers import READERS, holds_trees, read_sentences

ALL = "all"
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "development"), "validation"),
    **dict.fromkeys(("test", "testing", "eval"), "test"),
}
# what `save_to_disk` of the datasets library leaves
SAVED = ("state.json", "dataset_info.json")
SAVED_SPLITS = "dataset_dict.json"


@dataclass(frozen=True)
class Raw:
    """One split as it came: a table or annotated sentences, and what to call it in messages.

    `names` are class names that the source itself knows (a hub ClassLabel), by column. `rows` are the numbers
    (from 0, rising) of the table's rows that belong to this split; None: all. Splits of one table share it.
    """

    origin: str
    table: pd.DataFrame | None = None
    sentences: list[Sentence] | None = None
    names: Mapping[str, tuple[str, ...]] | None = None
    rows: NDArray[np.int64] | None = None

    def where(self, row: int) -> str:
        """ "file, row 7", for messages; `row` counts those of this split from 0."""
        table_row = row if self.rows is None else self.rows[row]
        return f"{self.origin}, row {table_row + 1}"

    def subset(self, rows: NDArray[np.int64]) -> "Raw":
        """The rows with these numbers (from 0, rising)."""
        if self.sentences is not None:
            return replace(self, sentences=[self.sentences[row] for row in rows])
        return replace(self, rows=rows if self.rows is None else self.rows[rows])

    def __len__(self) -> int:
        if self.rows is not None:
            return len(self.rows)
        if self.table is not None:
            return len(self.table)
        return len(self.sentences or ())


def from_path(
    path: str | Path | Mapping[str, str | Path], word_level: bool, **reading: Any
) -> dict[str, Raw]:
    """Reads a file, a folder with one file per split, a folder that `save_to_disk` wrote, or files named by
    split.

    Args:
        path: a file; a folder with train, validation (valid, val, dev) and test files; a saved Dataset or
            DatasetDict; or {split: file}.
        word_level: whether the task needs sentences: then JSON lines are read as annotated sentences too.
        reading: passed on to the sentence readers (`skip_bad`, `scheme`, ...).
    """
    if isinstance(path, Mapping):
        files = one_each([(split_name(name), Path(file)) for name, file in path.items()], "path=")
    elif os.path.isdir(path) and not is_saved(Path(path)):
        files = folder_files(Path(path))
    else:
        files = {ALL: Path(path)}
    return {split: _read(file, word_level, reading) for split, file in files.items()}


def is_saved(folder: Path) -> bool:
    """Whether a folder is a Dataset that the datasets library saved."""
    return all((folder / name).is_file() for name in SAVED)


def folder_files(folder: Path) -> dict[str, Path]:
    """The data files of a folder by split, or the folders of a saved DatasetDict; of a treebank given twice
    (.conllu and .ptb) the .conllu file.

    Raises:
        HeadwiseError: there is none, or a split has two.
    """
    if (folder / SAVED_SPLITS).is_file():
        names = read_json(folder / SAVED_SPLITS).get("splits")
        if not isinstance(names, list) or not all(is_saved(folder / str(name)) for name in names):
            raise HeadwiseError(f"{folder} is damaged: its {SAVED_SPLITS} names splits that are not there")
        return one_each([(split_name(name), folder / name) for name in names], str(folder))
    files = [file for file in folder.iterdir() if holds_data(file) and not file.name.startswith(".")]
    files.sort(key=lambda file: (holds_trees(file), file))
    annotated = {split_name(stem(file)) for file in files if suffix(file) == ".conllu"}
    splits = []
    for file in files:
        split = split_name(stem(file))
        if not holds_trees(file) or split not in annotated:
            splits.append((split, file))
    if not splits:
        raise HeadwiseError(
            f"{folder} holds no data file; expected train, validation and test files ending in "
            f"{', '.join(TABLES)}"
        )
    return one_each(splits, str(folder))


def holds_data(file: Path) -> bool:
    """Whether the ending of a file is that of a table, or of a format of annotated sentences."""
    return suffix(file) in TABLES or suffix(file) in READERS


def one_each(splits: Sequence[tuple[str, Path]], where: str) -> dict[str, Path]:
    """Files by split.

    Raises:
        HeadwiseError: two of them are of one split.
    """
    files: dict[str, Path] = {}
    for split, file in splits:
        if split in files:
            raise HeadwiseError(
                f"{where} has two files of the split {split}: {files[split].name} and {file.name}; "
                "keep one, or name the files: path={'train': ..., ...}"
            )
        files[split] = file
    return files


def split_name(name: str) -> str:
    """Our name of a split: "dev" -> "validation"; unknown names stay, hyphens as underscores."""
    name = name.strip().lower()
    return SPLIT_NAMES.get(name, name.replace("-", "_"))


def _read(path: Path, word_level: bool, reading: Mapping[str, Any]) -> Raw:
    if os.path.isdir(path) and is_saved(path):
        return _from_dataset(_saved(path), str(path))
    if suffix(path) in READERS and (word_level or suffix(path) not in TABLES):
        return Raw(str(path), sentences=read_sentences(path, **reading))
    table = read_table(path)
    if table.empty and len(table.columns) and suffix(path) != LINES:
        raise HeadwiseError(f"{path} holds no rows: there is nothing below its header")
    if table.empty:
        raise HeadwiseError(f"{path} holds no rows")
    return Raw(str(path), table=table)


def _saved(folder: Path) -> Any:
    datasets = library()
    try:
        return datasets.load_from_disk(str(folder))
    except Exception as error:  # pyarrow's, JSON's and the library's own
        raise HeadwiseError(
            f"{folder} could not be read as a saved Dataset: {type(error).__name__}: {one_line(error)}"
        ) from error


def library() -> Any:
    """The datasets library.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra("datasets", "data") from error
    return datasets


def from_hub(
    name: str, subset: str | None, revision: str | None, splits: Mapping[str, str] | None
) -> dict[str, Raw]:
    """Loads a dataset of the Hugging Face hub (or of the local cache) with the `datasets` library; no code of
    it is ever run.

    `subset` "*" puts all its configurations together. A dataset that has nothing but a "train" split counts
    as not divided yet.

    Raises:
        HeadwiseError: it cannot be loaded, or its name is that of a folder elsewhere.
        MissingExtra: the library is not installed.
    """
    datasets = library()
    source, hint = name, ""
    if os.path.exists(name):
        if os.path.isabs(name) or name.startswith(".") or name.count("/") > 1:
            raise HeadwiseError(f"{name} is a folder, not a dataset of the hub: give it as path=")
        source = f"hf://datasets/{name}"  # else the library would read what lies here
        hint = f"; to read {name} in the working folder, give path={name!r}"
    try:
        if subset == "*":
            subsets = datasets.get_dataset_config_names(source, revision=revision)
            loaded = _together([datasets.load_dataset(source, each, revision=revision) for each in subsets])
        else:
            loaded = datasets.load_dataset(source, subset, revision=revision)
    except (OSError, ValueError, RuntimeError) as error:
        raise HeadwiseError(
            f"the dataset {name!r} ({subset or 'default'}) could not be loaded from the hub: "
            f"{one_line(error)}{hint}"
        ) from error
    choice = {split_name(split) for split in (splits or {}).values()}
    raw = {}
    for split, data in loaded.items():
        if not choice or split_name(split) in choice:
            raw[split_name(split)] = _from_dataset(data, f"{name} {split}")
    if list(raw) == ["train"] and not choice:  # a single split is not a training split by nature
        return {ALL: raw["train"]}
    return raw


def _together(subsets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several subsets of a dataset as one, split by split."""
    concatenate = library().concatenate_datasets
    return {split: concatenate([subset[split] for subset in subsets]) for split in subsets[0]}


def _from_dataset(data: Any, origin: str) -> Raw:
    """A dataset as a table, with the names of its ClassLabel columns (also inside lists)."""
    features = getattr(data, "features", None) or {}  # a stream of rows may not know them
    names: dict[str, tuple[str, ...]] = {}
    for column, feature in features.items():
        inner = getattr(feature, "feature", feature)
        if type(inner).__name__ == "ClassLabel":
            names[column] = tuple(inner.names)
    if isinstance(data, library().Dataset):
        return Raw(origin, table=data.to_pandas(), names=names)
    return Raw(origin, table=pd.DataFrame(list(data)), names=names)


def from_data(data: Any, columns: Sequence[str]) -> dict[str, Raw]:
    """Python data: a table or rows, {split: table or rows}, or a function without arguments that reads one of
    these.

    A table is a DataFrame, a Dataset, or {column: values}, which has one of `columns`; rows are dicts, tuples
    in the order of `columns`, or Sentences.
    """
    if callable(data):
        data = data()
    names = {*columns, *"|".join(columns).split("|")}
    if not isinstance(data, Mapping) or names & set(data):
        return {ALL: _from_rows(data, columns, "data")}
    splits: dict[str, Raw] = {}
    for name, rows in data.items():
        split = split_name(str(name))
        if split in splits:
            raise HeadwiseError(f"data= has two tables of the split {split}; keep one")
        splits[split] = _from_rows(rows, columns, f"data[{name!r}]")
    return splits


def _from_rows(rows: Any, columns: Sequence[str], origin: str) -> Raw:
    """A table of any library, {column: values}, or rows."""
    library_name = type(rows).__module__.partition(".")[0]
    if library_name in ("pyarrow", "polars") and type(rows).__name__ in ("Table", "DataFrame"):
        rows = rows.to_pandas()
    if isinstance(rows, pd.DataFrame):
        if rows.columns.nlevels > 1:
            raise HeadwiseError(
                f"{origin} has columns with {rows.columns.nlevels} levels of names; give it one name a column"
            )
        return Raw(origin, table=rows.reset_index(drop=True))
    if type(rows).__module__.startswith("datasets."):
        return _from_dataset(rows, origin)
    if isinstance(rows, Mapping):
        for name, values in rows.items():
            if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
                raise HeadwiseError(
                    f"{origin}: the column {name!r} is {shown(values)}; expected a list of values"
                )
        return Raw(origin, table=as_table({str(name): list(values) for name, values in rows.items()}, origin))
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise HeadwiseError(
            f"{origin} is a {type(rows).__name__}; expected a table, or rows as dicts, tuples or Sentences"
        )
    rows = list(rows)
    if not rows:
        return Raw(origin, table=pd.DataFrame([], columns=list(columns)))
    if all(isinstance(row, Sentence) for row in rows):
        return Raw(origin, sentences=rows)
    if all(isinstance(row, Mapping) for row in rows):
        return Raw(origin, table=table_of_rows(rows))
    if all(isinstance(row, str) for row in rows):
        rows = [(row,) for row in rows]
    for number, row in enumerate(rows, 1):
        is_tuple = isinstance(row, Sequence) and not isinstance(row, (str, bytes))
        if not is_tuple or len(row) != len(rows[0]) or len(row) > len(columns):
            raise HeadwiseError(
                f"{origin}, row {number} is {shown(row)}; expected a dict, a Sentence, "
                f"or a tuple ({', '.join(columns)})"
            )
    table = pd.DataFrame([list(row) for row in rows], columns=list(columns[: len(rows[0])]))
    return Raw(origin, table=table)
