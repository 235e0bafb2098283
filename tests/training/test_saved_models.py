"""A model is saved whole or not at all, and never in the place of another one without a word; also when the process is killed."""

import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from transformers import AutoModelForSequenceClassification, BertForSequenceClassification

import headwise as hw
from headwise._base.writing import ASIDE
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet, save_removed
from headwise.models import as_task_model, export_task
from headwise.probing import HeadEmbedding
from headwise.probing._finetuning import EmbeddedModel
from headwise.sharing import save_cache_policy
from headwise.store import _manifest as manifest, _saving as saving
from headwise.store._entry import Entry
from headwise.training import TrainingResult, train

TASKS = [toy.task("mood", 24)]
KILLED = 9


def multi(seed: int) -> Any:
    return toy.model(TASKS, seed=seed).eval()


def classifier(seed: int) -> Any:
    return as_task_model(BertForSequenceClassification(toy.encoder(seed=seed).config), toy.tokenizer(), TASKS)


def removed(seed: int) -> Any:
    return Heads(toy.encoder(seed=seed)).remove(HeadSet([(0, seed), (1, 0), (1, 1)]))


def trained(seed: int) -> TrainingResult:
    return train(multi(seed), TASKS, "multi-task", **toy.settings(epochs=1, seed=seed).given())


def single(seed: int) -> TrainingResult:
    return train(
        toy.encoder(seed=seed),
        TASKS,
        "single-task",
        tokenizer=toy.tokenizer(),
        **toy.settings(epochs=1).given(),
    )


# what writes the folder of a model, of either of two that differ: (makes it, saves it)
WAYS: dict[str, tuple[Any, Any]] = {
    "MultiTaskModel": (multi, lambda made, *args, **options: made.save(*args, **options)),
    "TaskModel": (classifier, lambda made, *args, **options: made.save(*args, **options)),
    "EmbeddedModel": (
        lambda seed: EmbeddedModel(toy.encoder(seed=seed), toy.tokenizer(), TASKS, HeadSet([(0, 1)])),
        lambda made, *args, **options: made.save(*args, **options),
    ),
    "HeadEmbedding": (
        lambda seed: HeadEmbedding(toy.encoder(seed=seed), HeadSet([(0, 1)]), toy.tokenizer()),
        lambda made, *args, **options: made.save(*args, **options),
    ),
    "save_removed": (removed, save_removed),
    "export_task": (multi, lambda made, folder, **options: export_task(made, "mood", folder, **options)),
    "TrainingResult": (trained, lambda made, *args, **options: made.save(*args, **options)),
    "TrainingResult of single tasks": (single, lambda made, *args, **options: made.save(*args, **options)),
}


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder but the dates in manifests."""
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    return {name: content for name, content in found.items() if not name.endswith(manifest.NAME)}


@pytest.mark.parametrize("way", WAYS)
def test_another_model_stays_unless_it_is_to_be_overwritten(way: str, tmp_path: Path) -> None:
    make, save = WAYS[way]
    one, other = make(0), make(1)
    folder, alone = tmp_path / "model", tmp_path / "alone"
    save(one, folder)
    save(other, alone)
    before = files(folder)
    assert before.keys() == files(alone).keys()
    assert before != files(alone)
    save(one, folder)  # the same once more is no error
    with pytest.raises(HeadwiseError, match=rf"{folder} holds another model.*overwrite=True"):
        save(other, folder)
    assert files(folder) == before
    save(other, folder, overwrite=True)
    assert files(folder) == files(alone)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(ASIDE)] == []
    if way != "export_task":
        manifest.check(folder, manifest.read(folder))
        hw.load(folder)


def test_a_result_of_single_tasks_has_their_models_wherever_it_is_saved(tmp_path: Path) -> None:
    result = single(0)
    result.save(tmp_path / "saved")
    again = hw.load(tmp_path / "saved")
    toy.assert_identical(toy.weights(again["mood"]), toy.weights(result.model["mood"]))


def test_the_protocol_of_transformers_replaces_what_is_there(tmp_path: Path) -> None:
    """A Trainer saves into one folder more than once; its other files and the tokenizer stay."""
    toy.tokenizer().save_pretrained(tmp_path / "out")
    removed(0).save_pretrained(tmp_path / "out")
    (tmp_path / "out" / "trainer_state.json").write_text("{}")
    (tmp_path / "out" / "checkpoint-2").mkdir()
    (tmp_path / "out" / "checkpoint-2" / "optimizer.pt").write_text("state")
    later = removed(1)
    later.save_pretrained(tmp_path / "out")
    toy.assert_identical(toy.weights(hw.load(tmp_path / "out")), toy.weights(later))
    for name in ("trainer_state.json", "checkpoint-2/optimizer.pt", "tokenizer.json", "README.md"):
        assert (tmp_path / "out" / name).is_file(), name


def test_what_belongs_to_no_model_stays_and_what_belongs_to_the_old_one_goes(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    classifier(0).save(folder)
    (folder / "notes.md").write_text("mine")
    (folder / "plots").mkdir()
    (folder / "plots" / "a.png").write_bytes(b"png")
    multi(1).save(folder, overwrite=True)
    assert {path.name for path in folder.iterdir()} == {
        "headwise.json", "encoder", "decoders.safetensors", "adapters.safetensors", "notes.md", "plots",
    }  # fmt: skip
    assert (folder / "plots" / "a.png").read_bytes() == b"png"
    classifier(0).save(folder, overwrite=True)
    assert not (folder / "encoder").exists()
    removed(1).save_pretrained(tmp_path / "smaller")
    assert (tmp_path / "smaller" / "README.md").read_text().startswith("Open this folder with ")
    multi(1).save(tmp_path / "smaller", overwrite=True)
    assert not (tmp_path / "smaller" / "README.md").exists()  # it said how to open the other model


def test_a_plain_model_of_somebody_else_is_not_overwritten_either(tmp_path: Path) -> None:
    theirs = BertForSequenceClassification(toy.encoder().config)
    theirs.save_pretrained(tmp_path / "bert")
    before = files(tmp_path / "bert")
    for save in (multi(0).save, classifier(0).save):
        with pytest.raises(HeadwiseError, match="holds another model:"):
            save(tmp_path / "bert")
    with pytest.raises(HeadwiseError, match="holds another model:"):
        save_cache_policy(HeadSet([(0, 1)]), Heads(toy.encoder("llama")), tmp_path / "bert")
    assert files(tmp_path / "bert") == before
    multi(0).save(tmp_path / "bert", overwrite=True)
    assert not (tmp_path / "bert" / "config.json").exists()


def test_results_folders_and_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hw.score(multi(0), TASKS[0], out=tmp_path / "scores", quiet=True)
    with pytest.raises(
        HeadwiseError, match="holds a 'scores', which is no model: choose another folder, or remove it first"
    ):
        multi(0).save(tmp_path / "scores", overwrite=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "started.json").write_text("{}")
    with pytest.raises(HeadwiseError, match="holds a result that is not finished"):
        multi(0).save(tmp_path / "run", overwrite=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(HeadwiseError, match="is a file: give the name of a folder"):
        multi(0).save(tmp_path / "file")
    multi(0).save(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(HeadwiseError, match="is the current folder, which cannot be replaced"):
        multi(1).save(".", overwrite=True)
    multi(0).save(".")  # the same
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    multi(1).save(".")
    toy.assert_identical(toy.weights(hw.load(".")), toy.weights(multi(1)))


def test_a_link_to_a_folder_stays_one(tmp_path: Path) -> None:
    multi(0).save(tmp_path / "first")
    (tmp_path / "latest").symlink_to(tmp_path / "first")
    multi(1).save(tmp_path / "latest", overwrite=True)
    assert (tmp_path / "latest").is_symlink()
    toy.assert_identical(toy.weights(hw.load(tmp_path / "first")), toy.weights(multi(1)))


def test_a_cache_policy_is_replaced_when_asked(tmp_path: Path) -> None:
    heads = Heads(toy.encoder("llama"))
    save_cache_policy(HeadSet([(0, 1)]), heads, tmp_path / "policy")
    save_cache_policy(HeadSet([(0, 1)]), heads, tmp_path / "policy")
    with pytest.raises(HeadwiseError, match="holds another model"):
        save_cache_policy(HeadSet([(1, 1)]), heads, tmp_path / "policy")
    save_cache_policy(HeadSet([(1, 1)]), heads, tmp_path / "policy", overwrite=True)
    assert np.loadtxt(tmp_path / "policy" / "full_attention_heads.tsv").tolist() == [[0, 0], [1, 0]]


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"
    multi(0).save(folder)
    before, broken = files(folder), multi(1)

    def fail(place: Path) -> None:
        (place / "half").mkdir(parents=True)
        raise RuntimeError("planted")

    broken.save_encoder = fail
    for target in (folder, tmp_path / "new"):
        with pytest.raises(RuntimeError, match="planted"):
            broken.save(target, overwrite=True)
    assert files(folder) == before
    assert {path.name for path in tmp_path.iterdir()} == {"model"}

    # where the system cannot let two folders change places: two renames, of which the second may fail
    monkeypatch.setattr(saving, "exchanged", lambda one, other: False)
    rename, calls = os.rename, []

    def second_fails(one: Any, other: Any) -> None:
        calls.append(other)
        if len(calls) == 2:
            raise OSError(5, "planted")
        rename(one, other)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", second_fails)
        with pytest.raises(OSError, match="planted"):
            multi(1).save(folder, overwrite=True)
    assert files(folder) == before
    with monkeypatch.context() as patch:

        def busy(one: Any, other: Any) -> None:
            raise OSError(16, "Device or resource busy")

        patch.setattr(os, "rename", busy)
        with pytest.raises(HeadwiseError, match=r"cannot be replaced as a whole \(Device or resource busy\)"):
            multi(1).save(folder, overwrite=True)
    assert files(folder) == before
    multi(1).save(folder, overwrite=True)
    toy.assert_identical(toy.weights(hw.load(folder)), toy.weights(multi(1)))
    folder.rename(tmp_path / f"{ASIDE}model-before-0")  # killed between the two
    with pytest.raises(
        HeadwiseError,
        match=rf"has left what was there in {tmp_path}/{ASIDE}model-before-0: rename that folder",
    ):
        hw.load(folder)


def test_a_training_that_fails_between_its_model_and_its_seal_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    options = toy.settings(epochs=1, out=folder, checkpoint_minutes=0).given()

    def fail(entry: Entry) -> None:
        raise RuntimeError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(Entry, "finish", fail)
        with pytest.raises(RuntimeError, match="planted"):
            train(multi(0), TASKS, "multi-task", **options)
    assert (folder / manifest.NAME).is_file()
    with pytest.raises(HeadwiseError, match="holds a result that is not finished"):
        multi(1).save(folder, overwrite=True)
    result = train(multi(0), TASKS, "multi-task", **options)
    assert not (folder / "started.json").exists()
    toy.assert_identical(toy.weights(hw.load(folder)), toy.weights(result.model))


def save_and_be_killed(place: str, there: str) -> None:
    """Saves a model again and again, each time killed one operation on files later, until it is saved."""
    made = multi(1)
    for number in range(1, 1000):
        folder = Path(place) / str(number) / "model"
        if there != "nothing":
            shutil.copytree(Path(place) / "before", folder)
        child = os.fork()
        if not child:
            killed_at(number, str(folder.parent))
            made.save(folder, overwrite=there == "another model")
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != KILLED:
            return


def killed_at(number: int, place: str) -> None:
    """Ends this process at its `number`th operation on files in a folder."""
    seen = 0

    def note(event: str, args: Any) -> None:
        nonlocal seen
        if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "shutil.rmtree"):
            seen += isinstance(args[0], str | os.PathLike) and str(args[0]).startswith(place)
            if seen == number:
                os._exit(KILLED)

    sys.addaudithook(note)


@pytest.mark.parametrize("there", ["another model", "a tokenizer", "nothing"])
def test_killed_at_any_moment_there_is_one_model_or_the_other(there: str, tmp_path: Path) -> None:
    if there == "another model":
        multi(0).save(tmp_path / "before")
        (tmp_path / "before" / "mine.txt").write_text("mine")
    elif there == "a tokenizer":
        toy.tokenizer().save_pretrained(tmp_path / "before")
    process = multiprocessing.get_context("forkserver").Process(
        target=save_and_be_killed, args=(str(tmp_path), there)
    )
    process.start()
    process.join()
    assert process.exitcode == 0
    one, other = toy.weights(multi(0)), toy.weights(multi(1))
    outcomes: dict[int, str] = {}
    for folder in (tmp_path / name / "model" for name in os.listdir(tmp_path) if name != "before"):
        number = int(folder.parent.name)
        if (folder / manifest.NAME).is_file():
            weights = toy.weights(hw.load(folder))
            outcomes[number] = (
                "new" if all(torch.equal(weights[name], other[name]) for name in other) else "old"
            )
            toy.assert_identical(weights, other if outcomes[number] == "new" else one)
        else:
            outcomes[number] = "none"
            with pytest.raises(HeadwiseError, match=r"there is no folder|was not saved by headwise"):
                hw.load(folder)
        if there == "another model":
            assert (folder / "mine.txt").read_text() == "mine"
        if there == "a tokenizer":
            assert (folder / "tokenizer.json").is_file()
    assert len(outcomes) > 20
    before = "old" if there == "another model" else "none"
    in_order = [outcomes[number] for number in sorted(outcomes)]
    assert set(in_order) == {before, "new"}
    assert in_order == sorted(in_order, key=[before, "new"].index)  # once it is there it stays


def test_whole_models_open_in_plain_transformers(tmp_path: Path) -> None:
    """What was written aside has no trace of that."""
    export_task(multi(0), "mood", tmp_path / "plain")
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "plain").config.num_labels == 2
    done = subprocess.run(["grep", "-r", ASIDE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout == ""
