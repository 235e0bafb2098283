"""`hw.train` and comparisons of methods and seeds, from Python."""

import numpy as np
import pandas as pd
import pytest
import torch
import toy
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
)

import headwise as hw
from headwise.errors import HeadwiseError
from headwise.tasks import Task, batches, encode
from headwise.training import TrainingResult
from headwise.training._grid import BRANCHES, compare
from headwise.training._submission import write_submissions

TASKS = [toy.task("mood", 40), toy.task("warmth", 30)]
QUICK = {"epochs": 1, "batch_size": 16, "learning_rate": 1e-3, "quiet": True, "device": "cpu"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    """A model folder, as from_pretrained wants it."""
    place = tmp_path_factory.mktemp("model")
    toy.encoder().save_pretrained(place)
    toy.tokenizer().save_pretrained(place)
    return str(place)


@pytest.fixture(scope="module")
def result(folder, tmp_path_factory) -> TrainingResult:
    return hw.train(
        folder,
        TASKS,
        method="iat",
        alpha=0.3,
        delta=0.5,
        out=tmp_path_factory.mktemp("run") / "first",
        **QUICK,
    )


def test_result_has_model_scores_and_every_prediction(result: TrainingResult) -> None:
    assert set(result.heads) == {"mood", "warmth"}
    table = result.table()
    assert list(table.index) == ["mood", "warmth", "average"]
    assert table.loc["average", "score"] == pytest.approx(table["score"][:2].mean(), abs=0.01)
    rows = result.predictions[result.predictions["task"] == "mood"]
    gold = TASKS[0].split("validation").labels
    assert rows["label"].to_numpy(int).tolist() == list(gold)
    score = result.scores.set_index("task")["score"]
    assert score["mood"] == TASKS[0].score(rows["prediction"].to_numpy(int), gold)
    assert len(result.history) == 5
    assert result.history["loss"].notna().all()


def test_saved_result_and_model_read_back(result: TrainingResult) -> None:
    again = TrainingResult.load(result.folder)
    pd.testing.assert_frame_equal(again.predictions, result.predictions)
    assert again.heads == result.heads
    model = hw.load(result.folder)
    toy.assert_identical(toy.weights(model), toy.weights(result.model))
    assert not any(result.folder.glob("checkpoint/*"))


def test_each_task_exports_as_a_plain_classifier(result: TrainingResult, tmp_path) -> None:
    from headwise.models import export_task

    for task in TASKS:
        export_task(result.model, task.name, tmp_path / task.name)
        plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / task.name)
        batch = next(iter(batches(encode(task.split("validation"), result.model.tokenizer), 8)))
        with torch.no_grad():
            exact = (
                0 if task.kind == "classes" else 1e-6
            )  # numbers: their mean and sd became part of the last layer
            torch.testing.assert_close(
                plain(**batch.inputs).logits, result.model(task.name, batch).logits, rtol=0, atol=exact
            )
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "mood").config.id2label == {
        0: "down",
        1: "up",
    }


def test_the_same_call_reads_back_and_another_is_refused(result: TrainingResult, folder) -> None:
    seconds = result.description["seconds"]
    again = hw.train(folder, TASKS, method="iat", alpha=0.3, delta=0.5, out=result.folder, **QUICK)
    assert again.description["seconds"] == seconds  # nothing was computed
    with pytest.raises(HeadwiseError, match=r"holds another result: alpha was 0\.3 and is 0\.2; choose"):
        hw.train(folder, TASKS, method="iat", alpha=0.2, delta=0.5, out=result.folder, **QUICK)
    shared = {"method": "iat", "alpha": 0.3, "delta": 0.5, "out": result.folder}
    with pytest.raises(HeadwiseError, match=r"result: learning_rate was .* and is 0\.5; choose"):
        hw.train(folder, TASKS, **shared, **{**QUICK, "learning_rate": 0.5})
    with pytest.raises(HeadwiseError, match=r"result: its tasks are .*, and this one's mood; choose"):
        hw.train(folder, [toy.task("mood")], **shared, **QUICK)
    assert "Scores on validation in percent" in repr(result)
    with pytest.raises(HeadwiseError, match="did you mean 'batch_size'"):
        hw.train(folder, TASKS, batchsize=3)


def test_a_folder_is_refused_to_other_data_under_the_same_names(result: TrainingResult, folder) -> None:
    others = [toy.task(task.name, len(task.split("train")), seed=9) for task in TASKS]
    with pytest.raises(
        HeadwiseError,
        match="the training data of mood changed; the validation data of mood changed; the training data of warmth",
    ):
        hw.train(folder, others, method="iat", alpha=0.3, delta=0.5, out=result.folder, **QUICK)


def test_models_with_their_own_head_train_and_open_again(tmp_path) -> None:
    tokenizer = toy.tokenizer()
    size = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "vocab_size": 25,
    }
    headed = BertForSequenceClassification(BertConfig(**size, num_labels=2))
    found = hw.train(headed, TASKS[0], "prune", delta=0.5, tokenizer=tokenizer, out=tmp_path, **QUICK)
    assert found.model.encoder is headed
    again = hw.load(tmp_path)
    batch = next(iter(batches(encode(TASKS[0].split("validation"), tokenizer), 8)))
    with torch.no_grad():
        torch.testing.assert_close(
            again("mood", batch).logits, found.model("mood", batch).logits, rtol=0, atol=0
        )
        masked = AutoModelForSequenceClassification.from_pretrained(tmp_path)(**batch.inputs).logits
    assert not torch.allclose(
        masked, again("mood", batch).logits
    )  # plain transformers knows nothing of the mask
    with pytest.raises(HeadwiseError, match="pass tokenizer="):
        hw.train(toy.encoder(), TASKS, **QUICK)


def test_two_kinds_of_text_share_a_language_models_head(tmp_path) -> None:
    parts = [{"train": toy.texts(20, i), "validation": toy.texts(8, i + 5)} for i in range(2)]
    tasks = [Task(name, data=part, kind="next-token") for name, part in zip("ab", parts, strict=True)]
    config = GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=25, n_positions=64)
    options = {**QUICK, "epochs": 3, "checkpoint_minutes": 0, "tokenizer": toy.tokenizer()}
    found = hw.train(GPT2LMHeadModel(config), tasks, "iat", delta=0.5, out=tmp_path, **options)
    assert found.history["loss"].iloc[-3:].mean() < found.history["loss"].iloc[:3].mean()
    assert set(found.predictions.columns) >= {"right", "tokens", "nll"}
    again = hw.load(tmp_path)
    assert again.encoder.lm_head.weight is again.encoder.transformer.wte.weight
    toy.assert_identical(toy.weights(again), toy.weights(found.model))


def test_a_trained_model_learns_another_task(result: TrainingResult) -> None:
    more = hw.train(str(result.folder), toy.task("animal", 30), "multi-task", **QUICK)
    assert set(more.model.tasks) == {"mood", "warmth", "animal"}


def test_further_splits_and_a_second_validation_set(folder) -> None:
    unlabelled = TASKS[0].split("validation")
    hidden = TASKS[0].with_splits(
        "mnli",
        test=type(unlabelled)(unlabelled.texts, np.full(len(unlabelled), -1), "classes", unlabelled.classes),
    )
    second = TASKS[0].with_splits("mnli_mm", validation=TASKS[0].split("train"))
    found = hw.train(folder, hidden, "multi-task", also={"mnli": second}, predict=["test"], **QUICK)
    assert list(found.scores["task"]) == ["mnli", "mnli", "mnli_mm"]
    test = found.predictions[found.predictions["split"] == "test"]
    validation = found.predictions[
        (found.predictions["split"] == "validation") & (found.predictions["task"] == "mnli")
    ]
    assert test["prediction"].tolist() == validation["prediction"].tolist()
    assert np.isnan(found.scores.set_index("split").loc["test", "score"])


def test_methods_and_seeds_are_compared_in_pairs(folder, tmp_path) -> None:
    options = {**QUICK, "delta": 0.5}
    found = compare(folder, TASKS, ["iat", "multi-task", "mt-dnn"], seeds=2, out=tmp_path, **options)
    table = found.table()
    assert list(table.columns) == ["iat", "multi-task", "mt-dnn"]
    assert list(table.index) == ["mood", "warmth", "average"]
    by_hand = found.scores.query("method == 'iat' and task == 'mood'")["score"] * 100
    assert table.loc["mood", "iat"] == f"{by_hand.mean():.1f} ± {by_hand.std():.1f} at chance"  # ten examples
    # started from the plain training's checkpoint, and the same as if it had been trained from the beginning
    alone = hw.train(folder, TASKS, "iat", seed=1, **options)
    toy.assert_identical(toy.weights(hw.load(tmp_path / "iat" / "seed-1")), toy.weights(alone.model))
    np.testing.assert_array_equal(found.results["iat", 1].history["loss"], alone.history["loss"])
    assert not (tmp_path / BRANCHES).exists()
    with pytest.raises(HeadwiseError, match="did you mean 'epochs'"):
        compare(folder, TASKS, ["iat"], seeds=1, out=tmp_path / "x", epoch=1)


def test_glue_files_of_a_comparison(folder, tmp_path) -> None:
    sst2 = TASKS[0].with_splits("sst2", test=TASKS[0].split("validation"))
    found = compare(folder, [sst2], ["multi-task"], seeds=1, out=tmp_path, predict=["test"], **QUICK)
    files = write_submissions(found, tmp_path)
    assert [path.name for path in files] == ["SST-2.tsv"]
    lines = files[0].read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert len(lines) == 1 + len(sst2.split("test"))


def test_a_metric_that_is_no_share_is_refused_before_any_work() -> None:
    """A perplexity would be shown times a hundred, and a lower one as worse."""
    task = Task(
        "text", data={"train": ["w3 w4"], "validation": ["w5 w6"]}, kind="next-token", metric="perplexity"
    )
    with pytest.raises(
        HeadwiseError, match=r"judged by perplexity.*choose another metric, one of token-accuracy"
    ):
        hw.train("nowhere", task, method="multi-task")
