"""`probe(..., out=)`: what is finished is shown again with no model opened, and nothing else is shown in its place."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_probes import planted_model, sentences

import headwise as hw
from headwise.errors import HeadwiseError
from headwise.probing import Encoder, _probes
from headwise.probing._results import Probes
from headwise.probing._splits import three_splits
from headwise.tasks import Task

DATA = {"train": sentences(60, 0), "validation": sentences(20, 1), "test": sentences(30, 2)}
FEW: dict[str, Any] = {"controls": (), "layers": False, "strengths": (0.01,), "quiet": True}


def planted_task(**changes: Any) -> Task:
    return Task("planted", data={**DATA, **changes}, kind="classes", classes=["0", "1"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models") / "model"
    model, tokenizer = planted_model()
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def finished(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Probes]:
    out = tmp_path_factory.mktemp("results") / "probes"
    return out, hw.probe(folder, planted_task(), out=out, **FEW)


def untouched(*args: Any) -> Any:
    raise AssertionError("a finished result was computed again")


def test_the_same_call_shows_the_finished_result(
    folder: Path, finished: tuple[Path, Probes], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, first = finished
    monkeypatch.setattr(_probes, "_probes", untouched)
    again = hw.probe(
        folder, planted_task(), out=str(out), batch_size=7, **FEW
    )  # how many at a time decides nothing
    assert again.data.equals(first.data)
    assert np.array_equal(again.predictions["planted"], first.predictions["planted"])
    assert hw.load(out).data.equals(first.data)
    assert "notes" not in again.data.attrs


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a strength": ({"strengths": (0.1,)}, {}, r"strengths was \[0\.01\] and is \[0\.1\]"),
    "the seed": ({"seed": 1}, {}, "seed was 0 and is 1"),
    "controls": ({"controls": ("labels",)}, {}, "controls was"),
    "layers": ({"layers": True}, {}, "layers was False and is True"),
    "pooling": ({"pooling": "mean"}, {}, "pooling was None and is 'mean'"),
    "half precision": ({"dtype": "float32"}, {}, "dtype was"),
    "an estimator": ({"estimator": LogisticRegression(C=2.0)}, {}, "estimator was None and is"),
    "test data": ({}, {"test": sentences(30, 9)}, "the test data of planted changed"),
    "validation data": ({}, {"validation": sentences(20, 9)}, "the validation data of planted changed"),
    "training data": ({}, {"train": sentences(60, 9)}, "the training data of planted changed"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_decides_the_result_makes_it_another(
    folder: Path, finished: tuple[Path, Probes], change: str
) -> None:
    settings, data, said = CHANGES[change]
    with pytest.raises(HeadwiseError, match=f"holds another result: .*{said}"):
        hw.probe(folder, planted_task(**data), out=finished[0], **{**FEW, **settings})


def test_another_model_and_another_operation_are_named(
    folder: Path, finished: tuple[Path, Probes], tmp_path: Path
) -> None:
    model, tokenizer = planted_model()
    with pytest.raises(HeadwiseError, match="the model was given as files, and now as a live model"):
        hw.probe(model, planted_task(), out=finished[0], tokenizer=tokenizer, **FEW)
    live = tmp_path / "live"
    hw.probe(model, planted_task(), out=live, tokenizer=tokenizer, **FEW)
    model.encoder.layer[0].output.dense.weight.data[0, 0] += 1
    with pytest.raises(HeadwiseError, match="the model's weights changed"):
        hw.probe(model, planted_task(), out=live, tokenizer=tokenizer, **FEW)
    with pytest.raises(HeadwiseError, match="it is of 'probe', and this one of 'score'"):
        hw.score(folder, planted_task(), out=finished[0], quiet=True)


def test_which_splits_choose_is_part_of_it(folder: Path, tmp_path: Path) -> None:
    """The same examples in the same splits, once with a validation split of its own and once with one cut out of train: folds choose then."""
    cut = Task(
        "planted",
        data={"train": [*DATA["train"], *DATA["validation"]], "test": DATA["test"]},
        kind="classes",
        classes=["0", "1"],
    )
    own = Task.from_examples("planted", {split: cut.split(split) for split in cut.splits})
    assert [own.split(split).fingerprint for split in own.splits] == [
        cut.split(split).fingerprint for split in cut.splits
    ]
    found = hw.probe(folder, cut, out=tmp_path / "cut", **FEW)
    assert (found.data["folds"].item(), hw.probe(folder, own, **FEW).data["folds"].item()) == (5, 0)
    with pytest.raises(HeadwiseError, match="chosen by folds was"):
        hw.probe(folder, own, out=tmp_path / "cut", **FEW)


def test_a_table_without_splits_is_divided_in_three() -> None:
    """Validation and test are cut out of train one after the other: by one hash nothing would be left for the second."""
    task = Task("planted", data={"train": sentences(400, 3)}, kind="classes", classes=["0", "1"])
    found = three_splits(task)
    train, validation, test = (set(found[name].texts) for name in ("train", "validation", "test"))
    assert len(found["train"]) > 250
    assert min(len(validation), len(test)) > 20
    assert train.isdisjoint(validation | test)
    assert validation.isdisjoint(test)


def test_an_encoder_is_a_model_too(folder: Path, tmp_path: Path) -> None:
    encoder = Encoder.of(folder)
    first = hw.probe(encoder, planted_task(), out=tmp_path / "p", **FEW)
    assert hw.probe(encoder, planted_task(), out=tmp_path / "p", **FEW).data.equals(first.data)
    with pytest.raises(HeadwiseError, match="pooling was 'cls' and is 'mean'"):
        hw.probe(Encoder.of(folder, pooling="mean"), planted_task(), out=tmp_path / "p", **FEW)


class Silent:
    """Says nothing of what it is made with."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        self.label = int(y[0])

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), self.label)


class Telling(Silent):
    def __init__(self, text: str) -> None:
        self.text = text

    def fingerprint(self) -> str:
        return self.text


def test_estimators_count_by_what_they_are_made_with(folder: Path, tmp_path: Path) -> None:
    run = {**FEW, "out": tmp_path / "pipeline"}
    hw.probe(
        folder, planted_task(), estimator=make_pipeline(StandardScaler(), LogisticRegression(C=0.5)), **run
    )
    hw.probe(
        folder, planted_task(), estimator=make_pipeline(StandardScaler(), LogisticRegression(C=0.5)), **run
    )
    for other in (make_pipeline(StandardScaler(), LogisticRegression(C=0.6)), LogisticRegression(C=0.5)):
        with pytest.raises(HeadwiseError, match="holds another result: estimator"):
            hw.probe(folder, planted_task(), estimator=other, **run)
    with pytest.raises(
        HeadwiseError,
        match=r"a Silent does not say what it is made with: give its class a get_params\(\) method",
    ):
        hw.probe(folder, planted_task(), estimator=Silent(), **{**FEW, "out": tmp_path / "silent"})
    assert not (tmp_path / "silent").exists()
    hw.probe(folder, planted_task(), estimator=Telling("a"), **{**FEW, "out": tmp_path / "telling"})
    with pytest.raises(HeadwiseError, match="estimator changed"):
        hw.probe(folder, planted_task(), estimator=Telling("b"), **{**FEW, "out": tmp_path / "telling"})
