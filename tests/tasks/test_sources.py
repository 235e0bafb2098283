"""Every way to bring data in, and how splits come about."""

import gzip
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headwise.errors import HeadwiseError, MissingExtra
from headwise.tasks import Sentence, Task, structured
from headwise.tasks._splits import by_fraction

ROWS = [(f"text number {i}, with a comma", "good" if i % 2 else "bad") for i in range(40)]


@pytest.fixture
def table() -> pd.DataFrame:
    return pd.DataFrame(ROWS, columns=["review", "stars"])


@pytest.mark.parametrize(
    "name", ["a.csv", "a.tsv", "a.parquet", "a.jsonl", "a.csv.gz", "a.jsonl.xz", "a.tsv.xz", "a.json"]
)
def test_every_file_format_gives_the_same_examples(tmp_path: Path, table: pd.DataFrame, name: str) -> None:
    path = tmp_path / name
    table["stars"] = table["stars"].where(table.index != 3, "NA")  # a word, not a missing value
    kind = name.split(".")[1]
    if kind == "parquet":
        table.to_parquet(path)
    elif kind == "jsonl":
        table.to_json(path, orient="records", lines=True)
    elif kind == "json":
        path.write_text(json.dumps(table.to_dict("records")))
    else:
        table.to_csv(path, sep="\t" if kind == "tsv" else ",", index=False)
    read = Task("reviews", path=path, text="review", label="stars", classes=("NA", "bad", "good"))
    given = Task("reviews", data=table, text="review", label="stars", classes=("NA", "bad", "good"))
    for split in ("train", "validation", "test"):
        assert read.split(split).texts == given.split(split).texts
        assert read.split(split).labels.tolist() == given.split(split).labels.tolist()
        assert read.split(split).fingerprint == given.split(split).fingerprint


def test_a_reader_of_your_own_is_called_when_examples_are_needed(table: pd.DataFrame) -> None:
    given = Task("reviews", data=table, text="review", label="stars")
    calls = []

    def rows():  # type: ignore[no-untyped-def]
        calls.append("rows")
        yield from ({"review": text, "stars": stars} for text, stars in ROWS)

    read = Task("reviews", data=rows, text="review", label="stars")
    assert not calls
    assert all(read.split(name).fingerprint == given.split(name).fingerprint for name in given.splits)
    assert calls == ["rows"]
    divided = Task(
        "reviews", data=lambda: {"train": ROWS[:30], "dev": ROWS[30:]}, text="review", label="stars"
    )
    assert [len(divided.split(name)) for name in divided.splits] == [30, 10]
    with pytest.raises(HeadwiseError, match="data is a int; expected a table, or rows"):
        Task("reviews", data=lambda: 3).split("train")


def test_folder_files_by_split_and_split_column(tmp_path: Path, table: pd.DataFrame) -> None:
    table[:20].to_csv(tmp_path / "train.csv", index=False)
    table[20:30].to_parquet(tmp_path / "dev.parquet")
    table[30:].to_json(tmp_path / "test.jsonl", orient="records", lines=True)
    folder = Task("f", path=tmp_path, text="review", label="stars")
    named = Task(
        "n",
        path={"train": tmp_path / "train.csv", "valid": tmp_path / "dev.parquet"},
        text="review",
        label="stars",
    )
    assert folder.splits == ("train", "validation", "test")
    assert [len(folder.split(s)) for s in folder.splits] == [20, 10, 10]
    assert named.splits == ("train", "validation")
    table["split"] = ["train"] * 20 + ["dev"] * 10 + ["test"] * 10
    column = Task("c", data=table, text="review", label="stars")
    assert all(column.split(s).texts == folder.split(s).texts for s in folder.splits)
    with pytest.raises(HeadwiseError, match=r"no split 'extra', only: train, validation, test"):
        column.split("extra")


@pytest.mark.parametrize("name", ["holdout", "heldout", "dev2"])
def test_splits_that_nobody_asked_for_are_named(name: str, tmp_path: Path, table: pd.DataFrame) -> None:
    for split, rows in {"train": table[:20], "dev": table[20:30], name: table[30:]}.items():
        rows.to_csv(tmp_path / f"{split}.csv", index=False)
    table["split"] = ["train"] * 20 + ["dev"] * 10 + [name] * 10
    said = rf"splits .*{name}.*: train, validation are read; {name} only when requested by name .*splits=.*'test': '{name}'"
    for task in (
        Task("f", path=tmp_path, text="review", label="stars"),
        Task("c", data=table, text="review", label="stars"),
    ):
        with pytest.warns(UserWarning, match=said) as noted:
            assert len(task.split(name)) == 10
        assert set(task.splits) == {"train", "validation", name}
        assert len(noted) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked = Task(
            "f",
            path=tmp_path,
            text="review",
            label="stars",
            splits={"train": "train", "validation": "dev", "test": name},
        )
        assert asked.splits == ("train", "validation", "test")
        parts = {"train": table[:20], "validation": table[20:30], name: table[30:]}
        assert name in Task("d", data=parts, text="review", label="stars").splits  # the user's own names


def test_a_split_whose_name_hides_train_or_validation_is_an_error(
    tmp_path: Path, table: pd.DataFrame
) -> None:
    table[:30].to_csv(tmp_path / "train.csv", index=False)
    table[30:].to_csv(tmp_path / "holdout.csv", index=False)
    with pytest.raises(
        HeadwiseError,
        match=r"no validation split: its splits are train, holdout, and.*Rename holdout.*splits=",
    ):
        Task("f", path=tmp_path, text="review", label="stars").splits  # noqa: B018
    parts = {"train": table[:30], "holdout": table[30:]}
    with pytest.raises(HeadwiseError, match="no validation split"):
        Task("f", data=parts, text="review", label="stars").splits  # noqa: B018
    (tmp_path / "train.csv").rename(tmp_path / "trainset.csv")
    with pytest.raises(
        HeadwiseError, match="no train and no validation split: its splits are holdout, trainset"
    ):
        Task("f", path=tmp_path, text="review", label="stars").splits  # noqa: B018


def test_strange_splits_of_annotated_sentences_are_named(tmp_path: Path) -> None:
    for split in ("train", "holdout"):
        (tmp_path / f"{split}.conllu").write_text("1\tdogs\tdog\tNOUN\tNNS\t_\t0\troot\t_\t_\n\n")
    with pytest.raises(HeadwiseError, match="no validation split: its splits are train, holdout"):
        structured(tmp_path, ["pos"])
    shutil.copy(tmp_path / "train.conllu", tmp_path / "dev.conllu")
    with pytest.warns(UserWarning, match="train, validation are read; holdout only"):
        structured(tmp_path, ["pos"])


def test_python_rows_of_every_shape() -> None:
    tuples = Task("t", data=ROWS)
    dicts = Task("d", data=[{"text": text, "label": label} for text, label in ROWS])
    assert tuples.split("train").texts == dicts.split("train").texts
    pairs = Task("p", data=[(f"a {i}", f"b {i}", i / 7) for i in range(60)], text=("one", "two"))
    assert (pairs.kind, pairs.metric, pairs.pairs) == ("number", "spearman", True)
    raw = Task("raw", data=[f"line {i}" for i in range(50)], kind="next-token")
    assert (raw.metric, raw.split("train").texts[0][0][:4]) == ("token-accuracy", "line")
    with pytest.raises(HeadwiseError, match=r"row 1 is 5; expected a dict"):
        Task("x", data=[5]).splits  # noqa: B018
    with pytest.raises(HeadwiseError, match="exactly one of"):
        Task("x", data=[], path="y")


def test_a_text_file_is_one_text_a_line(tmp_path: Path) -> None:
    """For language modelling; in a folder it may be a README, and is left alone."""
    lines = [f'line {i}, "quoted" , naïve' for i in range(50)]
    (tmp_path / "wiki.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    task = Task("wiki", path=tmp_path / "wiki.txt", kind="next-token")
    assert sorted(text for name in task.splits for (text,) in task.split(name).texts) == sorted(lines)
    (tmp_path / "named.txt.gz").write_bytes(gzip.compress("\n".join(lines[:3]).encode()))
    named = Task(
        "wiki",
        path={"train": tmp_path / "named.txt.gz", "validation": tmp_path / "wiki.txt"},
        kind="masked-token",
    )
    assert [text for (text,) in named.split("train").texts] == lines[:3]
    with pytest.raises(HeadwiseError, match="no column 'label', only: text"):
        Task("wiki", path=tmp_path / "wiki.txt").splits  # noqa: B018
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(HeadwiseError, match=r"empty\.txt holds no rows$"):
        Task("wiki", path=tmp_path / "empty.txt", kind="next-token").splits  # noqa: B018
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "train.txt").write_text("about this folder")
    (folder / "train.csv").write_text("text,label\n" + "".join(f"row {i},{i % 2}\n" for i in range(40)))
    assert len(Task("rows", path=folder).split("train").texts) > 20


def test_word_lists_with_tag_lists_become_sentences() -> None:
    data = [{"tokens": ["Anna", "sleeps", str(i)], "tags": ["B-PER", "O", "O"]} for i in range(30)]
    task = Task("ner", data=data, kind="spans", text="tokens", label="tags")
    assert task.classes == ("PER",)
    assert task.split("train").labels[0].tolist() == [[0, 1, 0]]
    assert Task("pos", data=data, text="tokens", label="tags").kind == "tags"


def test_sentences_in_files_and_lists(tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text("Anna\tB-PER\nsleeps\tO\n\nBo\tB-PER\n\n")
    (tmp_path / "test.conll").write_text("Oslo\tB-LOC\n\n")
    with pytest.raises(HeadwiseError, match="validation"):
        Task("ner", path=tmp_path, kind="spans").split("validation")
    task = Task("ner", path=tmp_path, kind="spans")
    assert task.classes == ("PER", "LOC")  # classes only held-out sentences have come last
    given = Task(
        "ner", data={"train": [Sentence(("Anna",), upos=("PROPN",)), Sentence(("no", "tags"))]}, kind="tags"
    )
    assert len(given.split("train")) == 1  # a sentence without the layer is left out


def test_division_keeps_equal_texts_together_and_old_rows_in_place() -> None:
    texts = [f"text {i % 60}" for i in range(180)]
    data = [(text.upper() if i % 3 else text + " ", "ab"[i % 2]) for i, text in enumerate(texts)]
    task = Task("t", data=data)
    where = {split: {t[0].strip().lower() for t in task.split(split).texts} for split in task.splits}
    assert not where["train"] & where["validation"]
    assert not where["train"] & where["test"]
    assert sum(len(task.split(s)) for s in task.splits) == 180
    longer = Task("t", data=[*data, ("a new text", "a")])
    assert set(task.split("test").texts) <= set(longer.split("test").texts)
    assert Task("t", data=data, seed=1).split("test").texts != task.split("test").texts
    grouped = Task(
        "t",
        data=[{"text": f"x {i}", "label": i % 2, "author": i % 20} for i in range(200)],
        together="author",
        group="author",
    )
    seen = [set(grouped.split(s).groups) for s in grouped.splits]
    assert sum(len(part) for part in seen) == len(set.union(*seen))


def test_fractions_are_met_up_to_chance_and_checked() -> None:
    parts = by_fraction(
        [str(i) for i in range(20_000)], {"train": 0.7, "validation": 0.1, "test": 0.2}, seed=3
    )
    assert {name: round(len(rows) / 20_000, 1) for name, rows in parts.items()} == {
        "train": 0.7,
        "validation": 0.1,
        "test": 0.2,
    }
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(20_000))
    with pytest.raises(HeadwiseError, match="add up to 1"):
        by_fraction(["a"], {"train": 0.5}, seed=0)


def test_validation_is_made_from_train_where_there_is_none() -> None:
    """Each example is in one of the two with its label; the two examples of one text are in the same."""
    rows = [(f"text {i // 2}", i % 2) for i in range(600)]
    task = Task("t", data={"train": rows, "test": [("other", 0)]})
    train, validation = (
        [(text, int(label)) for (text,), label in task.split(split)] for split in ("train", "validation")
    )
    assert sorted(train + validation) == sorted(rows)
    assert not {text for text, _ in train} & {text for text, _ in validation}
    assert 30 < len(validation) < 100
    assert task.split("test").texts == [("other",)]


def test_a_hub_name_is_never_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    asked = []

    def load(name: str, subset: str | None, revision: str | None) -> dict[str, object]:
        asked.append(name)
        return {
            split: datasets.Dataset.from_list([{"text": f"{split} {i}", "label": i % 2} for i in range(20)])
            for split in ("train", "test")
        }

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert len(Task("reviews", hub="imdb").split("test")) == 20
    Path("imdb").mkdir()
    pd.DataFrame(ROWS, columns=["text", "label"]).to_csv("imdb/train.csv", index=False)
    assert len(Task("reviews", hub="imdb").split("test")) == 20
    assert asked == ["imdb", "hf://datasets/imdb"]  # the second is what the library calls the hub's own
    for folder in (str(tmp_path / "imdb"), "./imdb"):
        with pytest.raises(
            HeadwiseError, match="imdb is a folder, not a dataset of the hub: give it as path="
        ):
            Task("reviews", hub=folder).splits  # noqa: B018
    assert Task("reviews", path="imdb").classes == ("bad", "good")


def test_the_library_itself_leaves_the_folder_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    name = "headwise-no-such-set"
    Path(name).mkdir()
    pd.DataFrame(ROWS, columns=["text", "label"]).to_csv(f"{name}/train.csv", index=False)
    real = datasets.load_dataset
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *a, **k: real(*a, cache_dir=str(tmp_path / "cache"), **k)
    )
    with pytest.raises(
        HeadwiseError,
        match=f"could not be loaded from the hub: .*; to read {name} in the working folder, give path=",
    ):
        Task("reviews", hub=name).splits  # noqa: B018


def test_hub_class_names_subsets_and_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    asked = []

    def load(name: str, subset: str | None, revision: str | None) -> dict[str, object]:
        asked.append((name, subset, revision))
        rows = {"text": [f"{subset} text {i}" for i in range(20)], "label": [i % 2 for i in range(20)]}
        made = datasets.Dataset.from_dict(rows, features=features)
        return {
            "train": made,
            "validation_matched": made.select(range(4)),
            "validation_mismatched": made.select(range(6)),
        }

    made = load("n", "given", None)
    given = Task(
        "given", data=datasets.DatasetDict({"train": made["train"], "test": made["validation_matched"]})
    )
    with pytest.warns(UserWarning, match="of the 4 test examples"):
        assert given.classes == ("no", "yes")
    asked.clear()
    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(datasets, "get_dataset_config_names", lambda name, revision: ["a", "b"])
    task = Task(
        "m",
        hub="some/set",
        subset="x",
        revision="abc",
        splits={"train": "train", "validation": "validation_matched"},
    )
    with pytest.warns(UserWarning, match="4 of the 4 validation examples"):
        assert task.classes == ("no", "yes")
    assert asked == [("some/set", "x", "abc")]
    assert len(task.split("validation")) == 4
    both = Task("all", hub="some/set", subset="*", splits={"train": "train"})
    assert len(both.split("train")) + len(both.split("validation")) == 40
    with pytest.raises(HeadwiseError, match="no split 'nowhere', only"):
        Task("m", hub="s", splits={"train": "nowhere"}).splits  # noqa: B018

    def fail(*args: object, **options: object) -> None:
        raise FileNotFoundError("offline")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(
        HeadwiseError, match=r"'some/set' \(default\) could not be loaded from the hub: offline"
    ):
        Task("m", hub="some/set").splits  # noqa: B018
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"headwise\[data\]"):
        Task("m", hub="some/set").splits  # noqa: B018
