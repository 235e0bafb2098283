"""After a finished run anything that decides the result is changed: never is an old or a wrong result given back in silence."""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
import toy

import headwise as hw
from headwise.cli import app
from headwise.errors import HeadwiseError
from headwise.store._checksums import DamagedResult
from headwise.store._decision import decision, differences, key_of
from headwise.store._entry import claimed_folder
from headwise.tasks import read_toml
from headwise.training._grid import BRANCHES, compare
from headwise.training._loop import TrainingRun
from light import shown_without_torch
from opened import opened_files

QUICK = {"epochs": 1, "batch_size": 16, "learning_rate": 1e-3, "max_length": 16}
WORDS = ["--epochs", "1", "--batch-size", "16", "--lr", "1e-3", "--max-length", "16"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model/, tasks.toml with two tasks of train, validation and test, and run/, a training of them."""
    place = tmp_path_factory.mktemp("finished")
    toy.encoder(dropout=0.0).save_pretrained(place / "model")
    toy.tokenizer().save_pretrained(place / "model")
    blocks = []
    for name in ("mood", "animal"):
        task = toy.task(name, n=24)
        for split in ("train", "validation", "test"):
            with (place / f"{name}-{split}.csv").open("w", newline="") as file:
                rows = [
                    [text[0], task.classes[label]]
                    for text, label in task.split("train" if split == "train" else "validation")
                ]
                csv.writer(file).writerows([["text", "label"], *rows])
        files = ", ".join(f'{split} = "{name}-{split}.csv"' for split in ("train", "validation", "test"))
        blocks.append(f'[{name}]\npath = {{{files}}}\nlabel = "label"\n')
    (place / "tasks.toml").write_text("\n".join(blocks))
    by_words(place)
    return place


@pytest.fixture
def place(finished: Path, tmp_path: Path) -> Path:
    """A copy of it in another place, which is no other result."""
    shutil.copytree(finished, tmp_path / "moved")
    return tmp_path / "moved"


def words_of(place: Path, *more: str) -> list[str]:
    return [
        "train",
        "--model",
        f"{place}/model",
        "--tasks-file",
        f"{place}/tasks.toml",
        "--method",
        "multi-task",
        *WORDS,
        *more,
    ]


def by_words(place: Path, *more: str) -> str:
    """The training from the command line; what it says."""
    found = CliRunner().invoke(app, [*words_of(place, *more), "--out", f"{place}/run"])
    if isinstance(found.exception, HeadwiseError):
        raise found.exception
    assert found.exit_code == 0, found.output
    return found.output


def by_python(place: Path, **more: Any) -> Any:
    tasks = read_toml(place / "tasks.toml")
    return hw.train(f"{place}/model", tasks, "multi-task", out=place / "run", **{**QUICK, **more})


def other_row(split: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        rows = (place / f"mood-{split}.csv").read_text().splitlines()
        rows[1] = rows[1].replace("up", "?").replace("down", "up").replace("?", "down")
        (place / f"mood-{split}.csv").write_text("\n".join(rows) + "\n")

    return change


def other_metric(place: Path) -> None:
    (place / "tasks.toml").write_text(
        (place / "tasks.toml").read_text().replace("[animal]", "[animal]\nmetric = 'f1'")
    )


def fewer_tasks(place: Path) -> None:
    (place / "tasks.toml").write_text((place / "tasks.toml").read_text().split("[animal]")[0])


def other_weights(place: Path) -> None:
    toy.encoder(dropout=0.0, seed=1).save_pretrained(place / "model")


def other_tokenizer(place: Path) -> None:
    file = place / "model" / "tokenizer.json"
    record = json.loads(file.read_text())
    words = record["model"]["vocab"]
    words["good"], words["bad"] = words["bad"], words["good"]
    file.write_text(json.dumps(record))


def other_configuration(place: Path) -> None:
    file = place / "model" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "layer_norm_eps": 1e-3}))


CHANGES: list[tuple[Callable[[Path], None], str]] = [
    (other_row("train"), "the training data of mood changed"),
    (other_row("validation"), "the validation data of mood changed"),
    (other_metric, "the metric of animal was accuracy and is f1"),
    (fewer_tasks, "its tasks are mood, animal, and this one's mood"),
    (other_weights, "the model's weights changed"),
    (other_tokenizer, "the tokenizer changed"),
    (other_configuration, "the model's configuration changed"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES, ids=[said for _, said in CHANGES])
def test_changed_files_are_noticed(place: Path, change: Callable[[Path], None], said: str) -> None:
    change(place)
    with pytest.raises(HeadwiseError, match=f"holds another result: {said}; choose another folder"):
        by_words(place)
    with pytest.raises(HeadwiseError, match=f"holds another result: {said}; choose another folder"):
        by_python(place)


def test_changed_settings_are_noticed(place: Path) -> None:
    with pytest.raises(HeadwiseError, match="pooling was None and is 'mean'"):
        by_words(place, "--pooling", "mean")
    with pytest.raises(HeadwiseError, match="pooling was None and is 'mean'"):
        by_python(place, pooling="mean")
    said = r"predict was \[\] and is \['test'\]; the test data of mood are now read"
    with pytest.raises(HeadwiseError, match=said):
        by_words(place, "--predict", "test")
    with pytest.raises(HeadwiseError, match=said):
        by_python(place, predict=["test"])
    with pytest.raises(HeadwiseError, match="the metric of mood was accuracy and is f1"):
        by_words(place, "--metric", "f1")
    animal = read_toml(place / "tasks.toml")[1]
    with pytest.raises(HeadwiseError, match="animal is now evaluated too"):
        by_python(place, also={"mood": animal})


def test_the_same_again_is_shown_without_a_model(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = json.loads((place / "run" / "training.json").read_text())["description"]["seconds"]
    monkeypatch.setattr("headwise._base.opener.open_weights", None)
    monkeypatch.setattr(TrainingRun, "train", None)
    (place / "mood-train.csv").rename(
        place / "renamed.csv"
    )  # the data by another name, the model in another place
    (place / "tasks.toml").write_text(
        (place / "tasks.toml").read_text().replace("mood-train.csv", "renamed.csv")
    )
    shutil.copytree(place / "model", tmp_path / "elsewhere")
    with opened_files() as paths:
        again = hw.train(
            tmp_path / "elsewhere", read_toml(place / "tasks.toml"), "multi-task", out=place / "run", **QUICK
        )
    assert len(paths) < 24
    assert {paths.count(path) for path in paths if not path.endswith((".json", ".toml"))} == {1}
    assert again.description["seconds"] == before
    assert "mood" in by_words(place)


def test_the_same_again_is_shown_without_torch(place: Path) -> None:
    assert "mood" in shown_without_torch(*words_of(place), "--out", place / "run")


def test_a_live_model_counts_by_its_weights_and_tokenizer(tmp_path: Path) -> None:
    task = toy.task("mood", 24)
    shared: Any = {"tasks": [task], "method": "multi-task", "out": tmp_path / "run", **QUICK}
    first = toy.model([task], seed=0)
    done = hw.train(first, **shared)
    assert (
        hw.train(first, **shared).description["seconds"] == done.description["seconds"]
    )  # trained in place, by this very call
    with torch.no_grad():
        next(first.parameters()).add_(1.0)
    with pytest.raises(HeadwiseError, match="the model's weights changed"):
        hw.train(first, **shared)  # and changed since
    assert hw.train(toy.model([task], seed=0), **shared).description["seconds"] == done.description["seconds"]
    with pytest.raises(HeadwiseError, match="the model's weights changed"):
        hw.train(toy.model([task], seed=1), **shared)
    other = toy.model([task], seed=0)
    other.tokenizer.truncation_side = "left"
    with pytest.raises(HeadwiseError, match="the tokenizer changed"):
        hw.train(other, **shared)


def test_a_flipped_bit_is_named(place: Path) -> None:
    for name in ("encoder/model.safetensors", "predictions.parquet"):
        file = place / "run" / name
        raw = bytearray(file.read_bytes())
        raw[-5] ^= 1
        stat = file.stat()
        file.write_bytes(raw)
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        with pytest.raises(DamagedResult, match=f"{file.name} has flipped bits"):
            hw.load(place / "run")
        if name.endswith("parquet"):
            with pytest.raises(DamagedResult, match=r"predictions\.parquet has flipped bits"):
                by_words(place)
        raw[-5] ^= 1
        file.write_bytes(raw)
    assert hw.load(place / "run").tasks.keys() == {"mood", "animal"}
    record = json.loads((place / "run" / "headwise.json").read_text())
    (place / "run" / "headwise.json").write_text(json.dumps({**record, "pooling": "last"}))
    with pytest.raises(DamagedResult, match="does not match its own seal"):
        hw.load(place / "run")


def test_two_trainings_into_one_folder(place: Path) -> None:
    shutil.rmtree(place / "run")
    with claimed_folder(place / "run"):
        for start in (by_words, by_python):
            with pytest.raises(
                HeadwiseError, match=rf"run is being written by process {os.getpid()} on .*, since"
            ):
                start(place)
    assert by_python(place).folder == place / "run"
    assert not list(place.glob(".run*"))


def test_a_claim_ends_with_its_process(tmp_path: Path) -> None:
    code = f"import os\nfrom headwise.store._entry import claimed\nwith claimed({str(tmp_path / 'run')!r}):\n    os._exit(1)"
    subprocess.run([sys.executable, "-c", code], check=False)
    with claimed_folder(tmp_path / "run"):
        pass


def test_another_rate_never_starts_from_an_old_branch(place: Path, tmp_path: Path) -> None:
    tasks = read_toml(place / "tasks.toml")
    given: Any = {
        "methods": ["multi-task", "iat"],
        "seeds": [0],
        "epochs": 2,
        "batch_size": 16,
        "delta": 0.5,
        "quiet": True,
    }

    def killed(self: TrainingRun) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headwise.training.methods.iat.ImportantHeads.at_branch", lambda self, run: killed(run))
        with pytest.raises(KeyboardInterrupt):
            compare(f"{place}/model", tasks, out=tmp_path / "both", learning_rate=1e-2, **given)
    assert list(
        (tmp_path / "both" / BRANCHES).rglob("state.json")
    )  # the beginning that the first rate shared
    shutil.rmtree(tmp_path / "both" / "multi-task")
    shutil.rmtree(tmp_path / "both" / "iat")
    compare(f"{place}/model", tasks, out=tmp_path / "both", learning_rate=1e-4, **given)
    compare(f"{place}/model", tasks, out=tmp_path / "anew", learning_rate=1e-4, **given)
    for method in ("multi-task", "iat"):
        found, anew = (
            load_file(tmp_path / run / method / "seed-0/encoder/model.safetensors")
            for run in ("both", "anew")
        )
        toy.assert_identical(found, anew)


def test_decisions_in_words() -> None:
    task = toy.task("mood", 8)
    before = decision(
        "train",
        {"rate": 0.1, "method": {"alpha": 0.3}},
        tasks=[task],
        model={"given": "as files", "weights": "a"},
    )
    assert (
        decision(
            "train",
            {"method": {"alpha": 0.3}, "rate": 0.1},
            tasks=[toy.task("mood", 8)],
            model=before["model"],
        )
        == before
    )
    now = decision(
        "train",
        {"rate": 0.2, "method": {"alpha": 0.3}},
        tasks=[task.with_metric("f1")],
        model=before["model"],
        version=2,
    )
    assert differences(before, now) == [
        "train has changed (version 1 and 2)",
        "rate was 0.1 and is 0.2",
        "the metric of mood was accuracy and is f1",
    ]
    assert key_of(before) != key_of(now)
    assert differences(before, json.loads(json.dumps(before))) == []
    assert pd.Series(before["tasks"][0][1]["splits"]).index.tolist() == ["train", "validation"]
