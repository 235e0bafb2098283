"""Data as colleagues send it: read as they mean it, or refused in a sentence that says what to change."""

import json
import unicodedata
import warnings
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from headwise.errors import HeadwiseError
from headwise.tasks import Examples, Sentence, Task, read_toml
from headwise.tasks._columns import read_texts
from headwise.tasks._names import data_files
from headwise.tasks._tables import read_table

ROWS = 60
TEXTS = [f"text {i}" for i in range(ROWS)]
LABELS = ["good" if i % 2 else "bad" for i in range(ROWS)]


def lines(labels: Sequence[object] = LABELS, delimiter: str = ",", texts: Sequence[str] = TEXTS) -> str:
    return "".join(f"{text}{delimiter}{label}\n" for text, label in zip(texts, labels, strict=False))


def written(folder: Path, content: str | bytes, name: str = "a.csv", **options: Any) -> Task:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Task("t", path=path, **options)


def numbered(task: Task) -> list[int]:
    """The class numbers of two training examples, the first bad and the second good."""
    train = task.split("train")
    found = {MEANT[text]: int(number) for (text,), number in zip(train.texts, train.labels, strict=True)}
    return [found["bad"], found["good"]]


def labelled(task: Task) -> dict[str, str]:
    """Every text with the name of its class."""
    parts = [task.split(name) for name in task.splits]
    return {
        text: part.classes[number]
        for part in parts
        for (text,), number in zip(part.texts, part.labels, strict=True)
    }


MEANT = dict(zip(TEXTS, LABELS, strict=True))


@pytest.mark.parametrize(
    "content",
    [
        "text;label\n" + lines(delimiter=";"),
        "text\tlabel\n" + lines(delimiter="\t"),
        "text|label\n" + lines(delimiter="|"),
        '"text";"label"\n' + lines(delimiter=";"),
        "sep=;\ntext;label\n" + lines(delimiter=";"),
        ("text,label\n" + lines()).replace("\n", "\r\n"),
        ("text,label\n" + lines()).replace("\n", "\r"),
        "\ufefftext,label\n\n" + lines() + "\n\n",
        ",text,label,\n" + "".join(f"{i},{text},{label},\n" for i, (text, label) in enumerate(MEANT.items())),
    ],
)
def test_delimiters_line_ends_and_index_columns_do_not_matter(tmp_path: Path, content: str) -> None:
    assert labelled(written(tmp_path, content)) == MEANT


def test_other_delimiters_may_stand_in_texts(tmp_path: Path) -> None:
    texts = [f"one, two {i}" for i in range(ROWS)]
    task = written(tmp_path, "text;label\n" + lines(delimiter=";", texts=texts))
    assert labelled(task) == dict(zip(texts, LABELS, strict=True))
    task = written(
        tmp_path,
        "text,label\n" + "".join(f'"{text}",{label}\n' for text, label in zip(texts, LABELS, strict=True)),
    )
    assert labelled(task) == dict(zip(texts, LABELS, strict=True))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # pandas takes the first of three cells for an index, and so shifts every text and label
        (
            "text,label\n" + lines(texts=[f"oh, well {i}" for i in range(ROWS)]),
            "line 2 has 3 cells, the header has 2",
        ),
        ("text,label\n" + lines() + "fine\n", "line 62 has 1 cells, the header has 2"),
        # a quote that nobody meant swallows the rows up to the next one
        (
            'text,label\n"Oh no,bad\n' + lines() + '"Ah yes,good\n' + lines(),
            "line 63: .* a quote inside a quoted cell is written twice",
        ),
        (
            'text,label\n"He said "no" to me",bad\n' + lines(),
            "line 2: .* a quote inside a quoted cell is written twice",
        ),
        (
            "text,label,label\n" + lines([f"{label},x" for label in LABELS]),
            "has 2 columns 'label': rename all but one",
        ),
        (
            "text,text,label\n" + lines([f"x,{label}" for label in LABELS]),
            "has 2 columns 'text': rename all but one",
        ),
    ],
)
def test_tables_that_pandas_reads_otherwise_than_meant_are_refused(
    tmp_path: Path, content: str, message: str
) -> None:
    with pytest.raises(HeadwiseError, match=message):
        written(tmp_path, content).splits  # noqa: B018


def test_columns_of_one_name_are_no_trouble_where_nobody_reads_them(tmp_path: Path) -> None:
    assert (
        labelled(written(tmp_path, "text,label,note,note\n" + lines([f"{label},x,y" for label in LABELS])))
        == MEANT
    )
    doubled = "".join(json.dumps({"text": text})[:-1] + ', "label": "a", "label": "b"}\n' for text in TEXTS)
    with pytest.raises(HeadwiseError, match="line 1 has the name 'label' twice in one object"):
        written(tmp_path, doubled, "a.jsonl").splits  # noqa: B018


def test_cells_are_text_as_they_are_written(tmp_path: Path) -> None:
    """Types that are guessed depend on the other cells: 007 is 7 in one file, and "007" in the next."""
    (tmp_path / "a.csv").write_text("text,label\n1984,007\n2.50,true\nNA,1e3\n,\n")
    table = read_table(tmp_path / "a.csv")
    assert table["text"].tolist()[:3] == ["1984", "2.50", "NA"]
    assert table["label"].tolist()[:3] == ["007", "true", "1e3"]
    assert table.isna().sum().tolist() == [1, 1]
    (tmp_path / "a.csv").write_text("name,value\na,1\nb,2.5\n")
    assert read_table(tmp_path / "a.csv", numbers=True).to_dict("list") == {
        "name": ["a", "b"],
        "value": [1.0, 2.5],
    }
    assert (
        labelled(written(tmp_path, "text,label\n" + lines(texts=[str(i) for i in range(ROWS)])))["7"]
        == "good"
    )


def test_quotes_in_tsv_files_belong_to_the_text_and_a_quoted_file_is_named(tmp_path: Path) -> None:
    table = pd.DataFrame({"text": [f'He said "{text}"' for text in TEXTS], "label": LABELS})
    table.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    with pytest.warns(
        UserWarning, match=r"a\.tsv: its cells are quoted like those of a CSV file.*call it \.csv"
    ):
        read_table(tmp_path / "a.tsv")
    table.to_csv(tmp_path / "a.csv", sep="\t", index=False)
    assert set(labelled(Task("t", path=tmp_path / "a.csv"))) == set(table["text"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (tmp_path / "glue.tsv").write_text('text\tlabel\n"Yes\ta\n"No ""\tb\n"all of it"\tc\n')
        assert read_table(tmp_path / "glue.tsv")["text"].tolist() == ['"Yes', '"No ""', '"all of it"']


def test_columns_in_json_are_a_table(tmp_path: Path) -> None:
    for content in (
        json.dumps({"text": TEXTS, "label": LABELS}),
        pd.DataFrame({"text": TEXTS, "label": LABELS}).to_json(),
    ):
        assert labelled(written(tmp_path, content, "a.json")) == MEANT
    assert (
        labelled(
            written(
                tmp_path, json.dumps([{"text": t, "label": y} for t, y in MEANT.items()], indent=1), "a.json"
            )
        )
        == MEANT
    )
    with pytest.raises(
        HeadwiseError, match="must have one length, but text has 60 values, label has 59 values"
    ):
        written(tmp_path, json.dumps({"text": TEXTS, "label": LABELS[1:]}), "a.json").splits  # noqa: B018


def test_columns_in_python_are_a_table() -> None:
    columns = {"text": TEXTS, "label": LABELS}
    rows = Task("rows", data=list(zip(TEXTS, LABELS, strict=True)))
    assert Task("columns", data=columns).fingerprint == rows.fingerprint
    assert (
        Task("arrays", data={name: np.array(values) for name, values in columns.items()}).fingerprint
        == rows.fingerprint
    )
    divided = Task("t", data={"train": columns, "dev": {"text": ["new", "newer"], "label": ["bad", "good"]}})
    assert divided.splits == ("train", "validation")
    assert divided.split("validation").labels.tolist() == [0, 1]
    by_column = Task("t", data={**columns, "split": ["train"] * 50 + ["test"] * 10})
    assert len(by_column.split("test")) == 10
    for wrong, message in (
        ({"text": TEXTS, "label": LABELS[1:]}, "text has 60 values, label has 59"),
        ({"text": "one text", "label": LABELS}, "the column 'text' is 'one text'; expected a list"),
        ({"train": columns, "training": columns}, "two tables of the split train"),
        ([("a", "good"), "bc"], r"row 2 is 'bc'; expected a dict"),
        ([("a", "good"), ("b",)], r"row 2 is \('b',\); expected a dict"),
    ):
        with pytest.raises(HeadwiseError, match=message):
            Task("t", data=wrong).splits  # noqa: B018


@pytest.fixture
def dataset() -> Any:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
    )
    return datasets.Dataset.from_dict(
        {"text": TEXTS, "label": [int(label == "good") for label in LABELS]}, features=features
    )


def test_saved_datasets_are_read_with_their_class_names(tmp_path: Path, dataset: Any) -> None:
    datasets = pytest.importorskip("datasets")
    dataset.save_to_disk(tmp_path / "whole")
    task = Task("t", path=tmp_path / "whole")
    assert task.classes == ("bad", "good")
    assert labelled(task) == MEANT
    other = dataset.map(lambda row: {"text": f"another {row['text']}"}).select(range(4))
    datasets.DatasetDict({"train": dataset, "validation": other}).save_to_disk(tmp_path / "divided")
    task = Task("t", path=tmp_path / "divided")
    assert task.splits == ("train", "validation")
    assert task.split("validation").labels.tolist() == [0, 1, 0, 1]
    (tmp_path / "divided" / "dataset_dict.json").write_text('{"splits": ["train", "gone"]}')
    with pytest.raises(
        HeadwiseError, match=r"divided is damaged: its dataset_dict\.json names splits that are not there"
    ):
        Task("t", path=tmp_path / "divided").splits  # noqa: B018
    (tmp_path / "whole" / "state.json").write_text("{}")
    with pytest.raises(HeadwiseError, match="whole could not be read as a saved Dataset"):
        Task("t", path=tmp_path / "whole").splits  # noqa: B018


def test_saved_datasets_count_with_all_their_files(tmp_path: Path, dataset: Any) -> None:
    """A result's key reads the files that a tasks file names: those of a saved dataset are Arrow files."""
    dataset.save_to_disk(tmp_path / "whole")
    (tmp_path / "tasks.toml").write_text('[t]\npath = "whole"\n')
    assert data_files(tmp_path / "tasks.toml", ["t"]) == {"t": {"": tmp_path / "whole"}}
    assert labelled(read_toml(tmp_path / "tasks.toml")[0]) == MEANT


def test_streams_shuffled_and_formatted_datasets_are_what_they_hold(dataset: Any) -> None:
    for given in (
        dataset,
        dataset.to_iterable_dataset(),
        dataset.shuffle(seed=3),
        dataset.with_format("torch"),
    ):
        task = Task("t", data=given)
        assert task.classes == ("bad", "good")
        assert labelled(task) == MEANT


def test_class_numbers_are_read_by_the_names_of_their_own_split(dataset: Any) -> None:
    datasets = pytest.importorskip("datasets")

    def held_out(*names: str) -> Any:
        features = datasets.Features(
            {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=list(names))}
        )
        return datasets.Dataset.from_dict({"text": ["new", "newer"], "label": [0, 1]}, features=features)

    def numbers(*names: str, **options: Any) -> list[int]:
        return (
            Task("t", data={"train": dataset, "validation": held_out(*names)}, **options)
            .split("validation")
            .labels.tolist()
        )

    assert numbers("bad", "good") == [0, 1]
    assert numbers("Good", "BAD") == [1, 0]
    assert numbers("good", "bad", classes=("good", "bad")) == [0, 1]
    assert numbered(Task("t", data=dataset, classes=("good", "bad"))) == [1, 0]
    assert numbered(Task("t", data=dataset, classes=("poor", "fine"))) == [0, 1]  # other names
    with pytest.raises(
        HeadwiseError, match=r"column 'label' names its classes no, yes, but the task has bad, good"
    ):
        numbers("no", "yes")
    with pytest.raises(HeadwiseError, match="names its classes bad, good, but the task has good, fine"):
        Task("t", data=dataset, classes=("good", "fine")).splits  # noqa: B018


def test_numbers_are_names_unless_somebody_numbers_the_classes() -> None:
    """Sorted by name, "entailment" is class 1; whoever wrote 1 meant something else."""
    train = [(text, ("entailment", "neutral", "contradiction")[i % 3]) for i, text in enumerate(TEXTS)]
    with pytest.raises(
        HeadwiseError,
        match="label 1 is not among the classes of the training split: contradiction, entailment",
    ):
        Task("t", data={"train": train, "validation": [("new", 1)]}).splits  # noqa: B018
    classes = ("entailment", "neutral", "contradiction")
    task = Task(
        "t", data={"train": train, "validation": [("new", 1), ("newer", "contradiction")]}, classes=classes
    )
    assert task.split("validation").labels.tolist() == [1, 2]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "rows"])
def test_booleans_are_classes_of_their_own_names(tmp_path: Path, name: str) -> None:
    table = pd.DataFrame({"text": TEXTS, "label": [label == "good" for label in LABELS]})
    writers = {
        "a.csv": table.to_csv,
        "a.jsonl": lambda file: table.to_json(file, orient="records", lines=True),
        "a.parquet": table.to_parquet,
    }
    if name in writers:
        writers[name](tmp_path / name)
    source: dict[str, Any] = {"path": tmp_path / name} if name in writers else {"data": table}
    assert Task("t", **source).classes == ("False", "True")
    assert numbered(Task("t", **source, classes=("True", "False"))) == [1, 0]
    if name != "a.csv":  # there they are words
        assert numbered(Task("t", **source, classes=("no", "yes"))) == [0, 1]
    with pytest.raises(
        HeadwiseError,
        match=r"not among the classes .*: true, false \('(True|False)' differs from .* in letter case",
    ):
        Task("t", **source, classes=("true", "false")).splits  # noqa: B018


def test_labels_are_one_class_whatever_type_a_file_gives_them(tmp_path: Path) -> None:
    as_floats = written(tmp_path, "text,label\n" + lines([float(label == "good") for label in LABELS]))
    assert as_floats.classes == ("0", "1")
    table = pd.DataFrame({"text": TEXTS, "label": [int(label == "good") for label in LABELS]})
    for given in (
        table,
        table.astype({"label": "category"}),
        table.astype({"label": float}),
        table.astype({"label": "Int64"}),
    ):
        assert Task("t", data=given).fingerprint == as_floats.fingerprint
    mixed = [
        (text, (1, "1", 1.0)[i % 3] if label == "good" else ("0", 0, 0.0)[i % 3])
        for i, (text, label) in enumerate(MEANT.items())
    ]
    assert Task("t", data=mixed).fingerprint == as_floats.fingerprint


def test_one_empty_text_is_named_or_left_out() -> None:
    rows = [("" if i == 4321 else f"text {i}", i % 2) for i in range(5000)]
    with pytest.raises(
        HeadwiseError, match=r"^data, row 4322: text is empty; fix or remove the row, or .* drop_empty=True$"
    ):
        Task("t", data=rows).splits  # noqa: B018
    task = Task("t", data=rows, drop_empty=True)
    with pytest.warns(
        UserWarning, match=r"1 of [\d,]+ rows have an empty text and are left out; the first: data, row 4322"
    ):
        assert task.splits == ("train", "validation", "test")
    assert sum(len(task.split(name)) for name in task.splits) == 4999
    assert labelled(task) == {text: str(label) for text, label in rows if text}
    pairs = {
        "train": [("a", "b", "x"), ("c", " ", "y"), (None, "d", "y"), ("e", "f", "y")],
        "validation": [("g", "h", "x")],
    }
    with pytest.warns(
        UserWarning,
        match=r"2 of 4 rows have an empty text and are left out; the first: data\['train'\], row 2",
    ):
        kept = Task("t", data=pairs, text=("one", "two"), drop_empty=True, group="label").split("train")
    assert (kept.texts, kept.groups) == ([("a", "b"), ("e", "f")], ("x", "y"))


@pytest.mark.parametrize("options", [{}, {"kind": "classes"}])
@pytest.mark.parametrize("label", [["a", "b"], ("a",), np.array([0, 1]), {"a": 1}])
def test_several_labels_for_one_text_are_not_supported_and_why(label: Any, options: dict[str, Any]) -> None:
    rows = [{"text": text, "label": label} for text in TEXTS]
    with pytest.raises(
        HeadwiseError,
        match=r"row 1: the label is .*several labels for one text are not supported, because .*one task of",
    ):
        Task("t", data={"train": rows}, **options).splits  # noqa: B018


def test_lists_that_a_csv_file_holds_as_text_are_lists(tmp_path: Path) -> None:
    table = pd.DataFrame({"text": TEXTS, "label": [["a", "b"] if i % 2 else ["a"] for i in range(ROWS)]})
    table.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(
        HeadwiseError,
        match=r"column 'label' holds lists written as text, such as .*are not supported, because",
    ):
        Task("t", path=tmp_path / "a.csv").splits  # noqa: B018
    assert len(Task("t", path=tmp_path / "a.csv", kind="classes").classes) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pos", "pos "),
        ("pos", "Pos"),
        ("new york", "new_york"),
        (unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café")),
        ("pos", "pos\u200b"),
        ("pos", "\uff50os"),
        ("1", "01"),
        ("1", "True"),
    ],
)
def test_classes_that_look_alike_are_named(one: str, other: str) -> None:
    rows = [(text, (one, other, "neg")[i % 3]) for i, text in enumerate(TEXTS)]
    with pytest.warns(
        UserWarning,
        match=r"data: column 'label' has the classes .* \(\d+\) and .* \(\d+\), which differ only in",
    ):
        assert len(Task("t", data=rows).classes) == 3
    with pytest.raises(
        HeadwiseError, match=r"is not among the classes of the training split: .* differs from"
    ):
        Task("t", data={"train": rows[::3] + rows[2::3], "validation": [("x", other)]}).splits  # noqa: B018
    words = [{"tokens": ["a", "b"], "tags": [one, other if i % 2 else "neg"]} for i in range(20)]
    with pytest.warns(
        UserWarning, match=r"the training split \(tags\) has the classes .* which differ only in"
    ):
        Task("t", data={"train": words}, text="tokens", label="tags", kind="tags").splits  # noqa: B018


def test_a_class_that_stands_for_a_missing_label_is_named(tmp_path: Path) -> None:
    with pytest.warns(
        UserWarning, match=r"has 'nan' as a class \(\d+ labels\): where it stands for a missing label"
    ):
        written(tmp_path, "text,label\n" + lines(["good", "bad", "nan"] * 20)).splits  # noqa: B018
    with pytest.warns(
        UserWarning, match="1 of the 2 test examples have no label, so this split has no score"
    ):
        Task("t", data={"train": list(MEANT.items()), "test": [("new", "bad"), ("newer", None)]}).splits  # noqa: B018
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Task("t", data={"train": list(MEANT.items()), "test": [("new", -1), ("newer", -1)]}).splits  # noqa: B018


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["0,5", "1,5", "2", "3,5"], r"holds numbers with decimal commas, such as '1,5'; write 2.5 for 2,5"),
        (
            ["1.5", "2.5", "n/a", "3"],
            r"holds numbers such as '2.5' and others such as 'n/a'; fix those, or give kind=",
        ),
        (
            ["1", "-1"],
            r"label is '-1', that is, unlabelled; .* if -1 is a class of its own, name the classes with classes=",
        ),
    ],
)
def test_labels_of_two_minds_are_refused(tmp_path: Path, labels: list[str], message: str) -> None:
    with pytest.raises(HeadwiseError, match=message):
        written(tmp_path, "text;label\n" + lines(labels * 15, ";")).splits  # noqa: B018


def test_numbers_in_text_files_are_numbers(tmp_path: Path) -> None:
    task = written(tmp_path, "text,label\n" + lines([f"{i % 7}.{i % 2 * 5}" for i in range(ROWS)]))
    assert (task.kind, task.split("train").labels.dtype) == ("number", np.float64)
    signs = written(tmp_path, "text,label\n" + lines(["1", "-1"] * 30), classes=("-1", "1"))
    assert [signs.classes[i] for i in numbered(signs)] == ["1", "-1"]
    for label, remedy in (("2,5", "; write 2.5"), ("1_000", "$"), ("many", "$")):
        with pytest.raises(HeadwiseError, match=f"row 2: label is '{label}', not a number{remedy}"):
            written(tmp_path, f'text,label\na,1\nb,"{label}"\n', kind="number").splits  # noqa: B018


def test_a_split_has_one_file(tmp_path: Path) -> None:
    for name in ("dev.csv", "train.csv", "val.csv"):
        written(tmp_path, "text,label\n" + lines(), name)
    with pytest.raises(
        HeadwiseError, match=r"has two files of the split validation: dev\.csv and val\.csv; keep one"
    ):
        Task("t", path=tmp_path).splits  # noqa: B018
    (tmp_path / "val.csv").unlink()
    written(tmp_path, '{"text": "a", "label": "b"}\n', "train.jsonl")
    with pytest.raises(HeadwiseError, match=r"has two files of the split train: train\.csv and train\.jsonl"):
        Task("t", path=tmp_path).splits  # noqa: B018
    (tmp_path / "train.jsonl").rename(tmp_path / "._train.csv")  # what macOS leaves on foreign disks
    with pytest.warns(UserWarning, match="60 of the 60 validation examples also occur"):
        assert Task("t", path=tmp_path).splits == ("train", "validation")
    with pytest.raises(HeadwiseError, match="path= has two files of the split validation"):
        Task("t", path={"dev": tmp_path / "dev.csv", "valid": tmp_path / "dev.csv"}).splits  # noqa: B018


def test_a_split_that_no_row_fell_into_is_named() -> None:
    task = Task(
        "t", data=list(MEANT.items())[:30], fractions={"train": 0.98, "validation": 0.01, "test": 0.01}
    )
    with pytest.warns(
        UserWarning, match="data: by chance none of its 30 rows fell into the split validation"
    ):
        assert all(len(task.split(name)) for name in task.splits)


def test_rows_without_a_group_share_none() -> None:
    rows = [
        {"text": text, "label": label, "author": None if i % 2 else i % 10}
        for i, (text, label) in enumerate(MEANT.items())
    ]
    task = Task("t", data=rows, together="author")
    without = {text for i, text in enumerate(TEXTS) if i % 2}
    assert sum(bool(without & {text for (text,) in task.split(name).texts}) for name in task.splits) > 1


def test_annotated_sentences_are_no_table(tmp_path: Path) -> None:
    for options in ({}, {"kind": "classes"}, {"kind": "next-token"}):
        with pytest.raises(HeadwiseError, match="holds annotated sentences, not a table: name their kind="):
            written(tmp_path, "Anna\tB-PER\n\nOslo\tB-LOC\n\n", "a.conll", **options).splits  # noqa: B018


def test_texts_to_compare_are_read_as_what_they_are(tmp_path: Path) -> None:
    """Not a line of JSON or of a packed table as a text, nor an empty cell as the text "nan"."""
    table = pd.DataFrame({"sentence": TEXTS, "label": LABELS})
    table.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    table.to_csv(tmp_path / "a.csv.gz", index=False)
    table.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    for name in ("a.jsonl", "a.csv.gz", "a.tsv"):
        assert read_texts(tmp_path / name, 3) == TEXTS[:3]
    (tmp_path / "b.csv").write_text("sentence,label\none,a\n,b\n")
    assert read_texts(tmp_path / "b.csv", 1) == ["one"]
    with pytest.raises(HeadwiseError, match=r"b\.csv, row 2: sentence is nan; fix or remove the row"):
        read_texts(tmp_path / "b.csv", 2)
    (tmp_path / "c.csv").write_text("text,label\none,a\n")
    with pytest.raises(HeadwiseError, match="has no column 'sentence', only: text, label"):
        read_texts(tmp_path / "c.csv", 2)


def test_universal_ner(tmp_path: Path) -> None:
    rows = "# sent_id = {0}\n# text = Anna left Oslo .\n1\tAnna\tB-PER\t-\t-\n2\tleft\tO\t-\t-\n3\tOslo{0}\tB-LOC\t-\tann\n4\t.\tO\t-\t-\n\n"
    for split in ("train", "dev"):
        (tmp_path / f"{split}.iob2").write_text("".join(rows.format(f"{split}{i}") for i in range(3)))
    task = Task("ner", path=tmp_path, kind="spans")
    assert task.classes == ("LOC", "PER")
    assert task.split("train").sentences[0].words == ("Anna", "left", "Oslotrain0", ".")  # type: ignore[index]
    assert task.split("train").labels[0].tolist() == [[0, 1, 1], [2, 3, 0]]
    (tmp_path / "dev.iob2").write_text("2\tAnna\tB-PER\t-\t-\n")
    with pytest.raises(HeadwiseError, match="5 columns; say what they are with columns="):
        Task("ner", path=tmp_path, kind="spans").splits  # noqa: B018


def test_numbers_in_tensors_and_decimals_are_numbers() -> None:
    torch = pytest.importorskip("torch")
    numbers = [i % 2 for i in range(ROWS)]
    plain = Task("t", data=list(zip(TEXTS, numbers, strict=True)))
    for labels in (
        torch.tensor(numbers),
        np.array(numbers),
        [torch.tensor(i) for i in numbers],
        [Decimal(i) for i in numbers],
    ):
        assert Task("t", data={"text": TEXTS, "label": labels}).fingerprint == plain.fingerprint
    halves = Task("t", data={"text": TEXTS, "label": [Decimal(i) / 2 for i in range(ROWS)]})
    assert halves.kind == "number"
    with pytest.raises(HeadwiseError, match=r"row \d+: label is nan"):
        Task("t", data={"text": TEXTS, "label": [*numbers[1:], np.float32("nan")]}).splits  # noqa: B018


@pytest.mark.parametrize("label", [b"good", object(), Task])
def test_labels_are_names_or_numbers(label: Any) -> None:
    with pytest.raises(HeadwiseError, match=r"row 1: the label is .*; expected a name or a number"):
        Task("t", data={"train": [(text, label) for text in TEXTS]}).splits  # noqa: B018


def test_large_numbers_beside_a_missing_one_stay_apart(tmp_path: Path) -> None:
    ids = [2**53, 2**53 + 1, None]
    rows = [{"text": text, "label": ids[i % 3]} for i, text in enumerate(TEXTS)]
    columns = {name: [row[name] for row in rows] for name in ("text", "label")}
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for source in ({"data": rows}, {"data": columns}, {"path": tmp_path / "a.jsonl"}):
        assert Task("t", **source, skip_unlabelled=True).classes == (str(2**53), str(2**53 + 1))  # type: ignore[arg-type]


def test_tables_of_other_libraries_are_tables() -> None:
    table = pa.table({"text": TEXTS, "label": LABELS})
    assert labelled(Task("t", data=table)) == MEANT
    with pytest.raises(
        HeadwiseError, match="data has columns with 2 levels of names; give it one name a column"
    ):
        Task("t", data=pd.DataFrame({("text", "x"): TEXTS, ("label", "y"): LABELS})).splits  # noqa: B018
    shifted = {
        "text": pd.Series(TEXTS, index=range(5, ROWS + 5)),
        "label": pd.Series(LABELS),
    }  # pandas would align them by index
    assert labelled(Task("t", data=shifted)) == MEANT


def test_a_column_has_one_use_and_a_class_one_name() -> None:
    rows = pd.DataFrame({"text": TEXTS, "label": LABELS})
    with pytest.raises(HeadwiseError, match="text= names the column 'text' twice"):
        Task("t", data=rows, text=("text", "text"))
    with pytest.raises(HeadwiseError, match="the column 'label' is both the text and the label"):
        Task("t", data=rows, text="label").splits  # noqa: B018
    with pytest.raises(HeadwiseError, match="classes= names a class twice: bad, bad, good"):
        Task("t", data=rows, classes=("bad", "bad", "good"))


def test_compared_texts_that_are_the_same_are_counted() -> None:
    pairs = pd.DataFrame(
        {"good": ["a dog barks", "the same", "it is"], "bad": ["a dog bark", "the same", "it are"]}
    )
    with pytest.warns(
        UserWarning, match=r"data\['train'\], row 2: good and bad are the same text.* in 1 of 3 rows"
    ):
        Task("t", data={"train": pairs}, text=("good", "bad"), kind="minimal-pairs").splits  # noqa: B018
    prompts = pd.DataFrame({"clean": ["one"], "corrupted": ["two"], "answer": [" a"], "other": [" a"]})
    with pytest.warns(UserWarning, match="answer and other are the same text"):
        Task("t", data={"train": prompts}, kind="contrast").splits  # noqa: B018


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (
            [("a",), ("b",)],
            np.array([0, 5]),
            "labels run from 0 to 5; expected numbers of the 2 classes, from 0, or -1",
        ),
        ([("a",), ("b",)], np.array([-2, 1]), "labels run from -2 to 1"),
        (
            [("a",), ("b",)],
            np.array([0.0, 1.7]),
            r"labels are an array of float64; expected an array of class numbers",
        ),
        ([("a",), ("b",)], [0, 1], "labels are a list; expected an array of class numbers"),
        (["ab", "cd"], np.array([0, 1]), r"the text 'ab' is no tuple; expected \(text,\) or a pair"),
    ],
)
def test_examples_of_ones_own_are_checked(texts: Any, labels: Any, message: str) -> None:
    with pytest.raises(HeadwiseError, match=message):
        Examples(texts, labels, "classes", ("x", "y"))
    with pytest.raises(HeadwiseError, match="expected an array of floats"):
        Examples([("a",), ("b",)], np.array([1, 2]), "number")
    assert Examples([("a",), ("b",)], np.array([-1, 1]), "classes", ("x", "y")).labelled is False


def test_words_and_tags_are_there(tmp_path: Path) -> None:
    for words, tags in (
        (["Anna", None], ["X", "Y"]),
        (["Anna", " "], ["X", "Y"]),
        (["Anna", "runs"], ["X", float("nan")]),
    ):
        rows = {"train": [{"tokens": ["a"], "tags": ["X"]}, {"tokens": words, "tags": tags}]}
        with pytest.raises(
            HeadwiseError, match=r"data\['train'\], row 2: word 2 or its tag is empty; fix or remove the row"
        ):
            Task("t", data=rows, text="tokens", label="tags", kind="tags").splits  # noqa: B018
    (tmp_path / "train.conll").write_text("Anna \tB-PER \nruns\tO\n\nOslo\tB-LOC\n\nBo\tB-PER\n\n")
    task = Task("ner", path={"train": tmp_path / "train.conll"}, kind="spans")
    assert task.classes == ("LOC", "PER")
    assert task.split("train").sentences[0].words == ("Anna", "runs")  # type: ignore[index]


def test_a_split_that_lacks_the_layer_is_named() -> None:
    tagged = [Sentence((f"word{i}",), upos=("NOUN",)) for i in range(ROWS)]
    bare = [Sentence(("other",), xpos=("NN",))]
    with pytest.warns(
        UserWarning, match="no sentence of the split validation has the layer 'upos', so it is left out"
    ):
        assert "test" not in Task("t", data={"train": tagged, "validation": bare}, kind="tags").splits
