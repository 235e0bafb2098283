"""Bad data is found before training: every error names file, row and value."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from headwise.errors import HeadwiseError
from headwise.tasks import Examples, Task

GOOD = [("one", "a"), ("two", "b"), ("three", "a"), ("four", "b")]


def loaded(**options: object) -> tuple[str, ...]:
    return Task("t", **options).splits  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("splits", "options", "message"),
    [
        ({"train": [*GOOD, ("", "a")]}, {}, r"data\['train'\], row 5: text is empty"),
        ({"train": [*GOOD, (None, "a")]}, {}, r"data\['train'\], row 5: text is empty"),
        ({"train": [*GOOD, (7, "a")]}, {}, r"row 5: text is 7, not text"),
        ({"train": [*GOOD, ("five", None)]}, {}, r"row 5: label is (None|nan), that is, unlabelled"),
        (
            {"train": GOOD, "validation": [("five", "c")]},
            {},
            r"data\['validation'\], row 1: label 'c' is not among the classes",
        ),
        ({"train": [("one", "a"), ("two", "a")]}, {}, r"all 2 training examples have the label a"),
        (
            {"train": [("one", 0.5), ("two", float("nan"))]},
            {"kind": "number"},
            r"row 2: label is nan, not a finite number",
        ),
        ({"train": [("one", 0.5), ("two", "x")]}, {"kind": "number"}, r"row 2: label is 'x', not a number"),
        (
            {"train": [("one", 0.5), ("two", 0.5)]},
            {"kind": "number"},
            r"all 2 training examples have the label",
        ),
        (
            {"train": [(f"t {i}", f"label {i}") for i in range(60)]},
            {},
            r"60 different values in 60 rows, such as 'label 0'",
        ),
        ({"train": GOOD}, {"classes": ("a", "x")}, r"row 2: label 'b' is not among"),
    ],
)
def test_errors_name_file_row_and_value(
    splits: dict[str, list[tuple[object, object]]], options: dict[str, object], message: str
) -> None:
    with pytest.raises(HeadwiseError, match=message):
        loaded(data=splits, **options)


def test_rows_keep_their_numbers_when_a_file_is_divided(tmp_path: Path) -> None:
    lines = [f"text {i},{'ab'[i % 2]}" for i in range(50)]
    for row in (7, 31, 44):
        (tmp_path / "r.csv").write_text("text,label\n" + "\n".join([*lines[: row - 1], ",a", *lines[row:]]))
        with pytest.raises(HeadwiseError, match=rf"r.csv, row {row}: text is empty"):
            loaded(path=tmp_path / "r.csv")


def test_missing_columns_suggest_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("reveiw,stars\nfine,1\nbad,0\n")
    with pytest.raises(
        HeadwiseError, match=r"r.csv has no column 'review', only: reveiw, stars \(did you mean 'reveiw'\?\)"
    ):
        loaded(path=tmp_path / "r.csv", text="review", label="stars")
    with pytest.raises(HeadwiseError, match="no column 'label', only: reveiw, stars; name it with label="):
        loaded(path=tmp_path / "r.csv", text="reveiw")
    with pytest.raises(HeadwiseError, match=r"there is no file .*nothing.csv"):
        loaded(path=tmp_path / "nothing.csv")
    (tmp_path / "wide.csv").write_text("text,label\na,1\nb,2,3\n")
    with pytest.raises(HeadwiseError, match=r"wide.csv could not be read as csv: .*line 3"):
        loaded(path=tmp_path / "wide.csv")
    (tmp_path / "bad.jsonl").write_text('{"text": "a", "label": 1}\n{"text": \n')
    with pytest.raises(HeadwiseError, match=r"bad.jsonl, line 2 is not valid JSON"):
        loaded(path=tmp_path / "bad.jsonl")
    (tmp_path / "odd.xyz").write_text("")
    with pytest.raises(HeadwiseError, match=r"unknown format '.xyz'"):
        loaded(path=tmp_path / "odd.xyz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(HeadwiseError, match="holds no data file"):
        loaded(path=tmp_path / "empty")


def test_overlap_between_splits_is_a_warning_with_the_count() -> None:
    with pytest.warns(
        UserWarning, match="task 't': 2 of the 3 validation examples also occur in the training split"
    ):
        loaded(data={"train": GOOD, "validation": [("ONE", "a"), (" two ", "b"), ("new", "a")]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded(data={"train": GOOD, "validation": [("new", "a")]})


def test_unlabelled_rows_are_allowed_in_test_and_can_be_skipped() -> None:
    task = Task("t", data={"train": GOOD, "test": [("x", -1), ("y", -1)]}, classes=("a", "b"))
    assert not task.split("test").labelled
    assert task.split("train").labelled
    snli = Task(
        "t",
        data={"train": [*GOOD, ("none", -1)], "validation": [("v", "a"), ("w", -1)]},
        skip_unlabelled=True,
    )
    assert [len(snli.split(s)) for s in ("train", "validation")] == [4, 1]
    number = Task("t", data={"train": [("a", 1.5), ("b", 2.5)], "test": [{"text": "c"}]}, kind="number")
    assert np.isnan(number.split("test").labels).all()
    glue = Task(
        "t", data={"train": [("a", 1.5), ("b", 2.5)], "test": [("c", -1.0), ("d", -1.0)]}, kind="number"
    )
    assert not glue.split("test").labelled


def test_labels_by_name_number_and_order() -> None:
    by_number = Task("t", data={"train": [("x", 1), ("y", 0)]}, classes=("no", "yes"))
    by_name = Task("t", data={"train": [("x", "yes"), ("y", "no")]}, classes=("no", "yes"))
    assert by_number.split("train").labels.tolist() == by_name.split("train").labels.tolist() == [1, 0]
    stars = Task("t", data={"train": [(f"t{i}", i) for i in (10, 9, 1, 2)]})
    assert stars.classes == ("1", "2", "9", "10")
    assert stars.split("train").labels.tolist() == [3, 2, 0, 1]
    floats = Task("t", data={"train": [("a", 1.0), ("b", 2.0), ("c", 2.0)]})
    assert (floats.kind, floats.classes) == ("classes", ("1", "2"))
    booleans = Task("t", data={"train": [("a", True), ("b", False)]})
    assert booleans.classes == ("False", "True")


def test_chance_is_the_best_blind_guess() -> None:
    rows = {"train": [("a", 0), ("b", 1)], "validation": [(f"v{i}", int(i < 3)) for i in range(10)]}
    assert Task("t", data=rows).chance == pytest.approx(0.7)
    assert Task("t", data=rows, metric="f1").chance == pytest.approx(2 * 3 / 13)
    assert Task("t", data=rows, metric="matthews").chance == 0
    assert (
        Task("t", data={"train": [("a", "b")] * 3}, text=("text", "bad"), kind="minimal-pairs").chance == 0.5
    )
    with pytest.raises(HeadwiseError, match="metric 'las' does not fit"):
        Task("t", data=rows, kind="classes", metric="las")


def test_examples_subsets_samples_and_fingerprints() -> None:
    examples = Task("t", data={"train": GOOD}).split("train")
    assert [e.text for e in examples.subset([2, 0])] == [("three",), ("one",)]
    assert examples.subset(np.array([True, False, False, True])).texts == [("one",), ("four",)]
    assert examples.sample(10) is examples
    assert len(examples.sample(2, seed=1)) == 2
    assert examples.fingerprint == Task("other name", data={"train": GOOD}).split("train").fingerprint
    assert examples.fingerprint != examples.subset([1, 0, 2, 3]).fingerprint
    with pytest.raises(
        HeadwiseError, match=r"unknown metric 'macrof1' \(did you mean 'macro-f1'\?\); there are accuracy, "
    ):
        Task("mine", data={"train": [("fine", "a"), ("bad", "b")]}, metric="macrof1")
    with pytest.raises(HeadwiseError, match="unknown kind 'sums'"):
        Examples([], np.zeros(0), "sums")
    with pytest.raises(HeadwiseError, match="1 texts and 2 labels"):
        Examples([("a",)], np.zeros(2), "classes")


def test_tasks_of_examples_can_be_renamed_and_changed() -> None:
    task = Task("t", data={"train": GOOD, "validation": [("v", "a")]}, metric="macro-f1")
    small = task.with_splits("small", train=task.split("train").subset([0, 1]))
    assert (small.name, len(small.split("train")), len(small.split("validation")), small.metric) == (
        "small",
        2,
        1,
        "macro-f1",
    )
    assert task.renamed("u").split("train").task == "u"
    assert task.split("train").task == "t"
    assert task.renamed("u").fingerprint == task.fingerprint != small.fingerprint
    other = Task("x", data={"train": [("a", "c"), ("b", "d")]}).split("train")
    with pytest.raises(HeadwiseError, match="differ in kind or classes"):
        Task.from_examples("bad", {"train": task.split("train"), "test": other})


def test_f1_is_of_two_classes() -> None:
    rows = [(f"text {i}", name) for i, name in enumerate(["a", "b", "c"] * 8)]
    with pytest.raises(HeadwiseError, match="has 3 classes, and f1 is of 2: choose macro-f1"):
        Task("letters", data=rows, metric="f1").split("train")
    read = Task("letters", data=rows)
    read.split("train")
    with pytest.raises(HeadwiseError, match="has 3 classes"):
        read.with_metric("f1")
    assert Task("letters", data=rows, metric="macro-f1").split("train").classes == ("a", "b", "c")
