"""`hw.evaluate`: the metric of whatever answers a task, against a loop over single texts; every answer kept."""

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
)

import headwise as hw
import planted
from headwise.errors import HeadwiseError
from headwise.evaluation import Evaluation, Evaluations
from headwise.tasks import Sentence, Task
from words import LANGUAGE, word_tokenizer

NAMES = {0: "bad", 1: "good", 2: "so-so"}
SIZE: Any = {
    "vocab_size": len(planted.WORDS), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
    "initializer_range": 0.5, "max_position_embeddings": 32,
}  # fmt: skip


def texts(n: int) -> list[str]:
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(planted.FILLERS, draw.integers(2, 8))) for _ in range(n)]


@pytest.fixture(scope="module")
def classifier() -> Any:
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(**SIZE, id2label=NAMES)).eval()


def answered(model: Any, words: Any, text: str) -> str:
    with torch.no_grad():
        return NAMES[int(model(**words(text, return_tensors="pt")).logits[0].argmax())]


@pytest.fixture(scope="module")
def reviews(classifier: Any) -> Task:
    """What the classifier says, but for every fourth text."""
    rows = []
    for i, text in enumerate(texts(80)):
        own = answered(classifier, planted.tokenizer(), text)
        rows.append((text, own if i % 4 else next(name for name in NAMES.values() if name != own)))
    return Task("reviews", data={"train": rows[:8], "validation": rows}, kind="classes")


def test_a_live_classifier_is_evaluated(classifier: Any, reviews: Task) -> None:
    """The pattern of the README with a classifier of one's own, which was an AttributeError; the model stays as it was."""
    classifier.train()
    classifier.bert.embeddings.eval()
    modes = [module.training for module in classifier.modules()]
    found = hw.evaluate(classifier, reviews, tokenizer=planted.tokenizer(), quiet=True)
    assert [module.training for module in classifier.modules()] == modes
    classifier.eval()
    examples = reviews.split("validation")
    gold = [reviews.classes[label] for label in examples.labels]
    said = [answered(classifier, planted.tokenizer(), text) for (text,) in examples.texts]
    assert [reviews.classes[i] for i in found.predictions] == said
    assert found.score == accuracy_score(gold, said) == 0.75
    assert found.metrics["macro-f1"] == pytest.approx(f1_score(gold, said, average="macro"))
    assert found.chance == max(np.mean([label == name for label in gold]) for name in set(gold))
    table = found.table()
    assert list(table.columns) == ["task", "split", "example", "label", "prediction", "loss"]
    assert (table["label"] == table["prediction"]).mean() == found.score
    assert (
        hw.training.evaluate(classifier, reviews, tokenizer=planted.tokenizer(), quiet=True).score
        == found.score
    )


def test_a_compiled_classifier_is_evaluated_scored_and_lesioned(classifier: Any, reviews: Task) -> None:
    """`torch.compile(model)` is another class, with the model inside."""
    compiled: Any = torch.compile(classifier, backend="eager")
    read: Any = {"tokenizer": planted.tokenizer(), "quiet": True}
    assert hw.evaluate(compiled, reviews, **read).score == 0.75
    assert hw.score(compiled, reviews, **read).identical(hw.score(classifier, reviews, **read))
    heads = [hw.HeadSet([(0, 1), (1, 0)])]
    found, expected = (hw.lesion(m, [reviews], heads, **read).performance for m in (compiled, classifier))
    assert found.equals(expected)
    torch._dynamo.reset()


def test_the_interval_is_a_bootstrap_over_examples(classifier: Any, reviews: Task) -> None:
    options: Any = {"tokenizer": planted.tokenizer(), "quiet": True}
    found = hw.evaluate(classifier, reviews, **options)
    assert found.interval[0] == pytest.approx(0.75 - 1.96 * np.sqrt(0.75 * 0.25 / 80), abs=0.02)
    assert found.interval[1] == pytest.approx(0.75 + 1.96 * np.sqrt(0.75 * 0.25 / 80), abs=0.02)
    assert not found.no_interval
    wider = hw.evaluate(classifier, reviews, level=0.99, **options)
    assert wider.interval[0] < found.interval[0] < 0.75 < found.interval[1] < wider.interval[1]
    assert found.finding.startswith("reviews, validation, 80 examples: accuracy 75.0 % (95 % interval 6")
    few = hw.evaluate(classifier, reviews, examples=20, **options)
    assert len(few) == 20
    assert np.isnan(few.interval).all()
    assert few.no_interval == "20 held-out examples; 50 are needed"
    assert "no interval, since 20 held-out examples" in few.finding
    assert hw.evaluate(classifier, reviews, bootstrap=0, **options).no_interval.startswith("no resamples")


def test_resamples_are_of_all_examples_and_differ_with_the_seed(
    classifier: Any, reviews: Task, tmp_path: Path
) -> None:
    """Of 80 examples 60 are right: resamples have k ÷ 80 right, with the mean and spread of a binomial."""
    options: Any = {"tokenizer": planted.tokenizer(), "quiet": True, "bootstrap": 250}
    found = hw.evaluate(classifier, reviews, seed=4, out=tmp_path / "out", **options)
    spread, draws = np.sqrt(0.75 * 0.25 / 80), found._draws
    assert draws.shape == (250,)
    np.testing.assert_allclose(80 * draws, np.round(80 * draws))
    assert len(np.unique(draws)) > 10
    assert abs(draws.mean() - 0.75) < 4 * spread / 250**0.5
    assert draws.std() == pytest.approx(spread, rel=0.2)
    assert not np.array_equal(draws, hw.evaluate(classifier, reviews, seed=5, **options)._draws)
    kept = {
        name: found.settings[name]
        for name in ("examples", "seed", "precision", "bootstrap", "level", "silenced")
    }
    assert kept == {
        "examples": None,
        "seed": 4,
        "precision": "float32",
        "bootstrap": 250,
        "level": 0.95,
        "silenced": [],
    }
    summary = pd.read_csv(tmp_path / "out" / "summary.csv")
    pd.testing.assert_frame_equal(
        summary.drop(columns="note"), found.summary().drop(columns="note"), check_dtype=False
    )
    assert (found.summary()["note"][0], summary["score"][0], summary["low"][0]) == (
        "",
        0.75,
        pytest.approx(found.interval[0]),
    )
    (note,) = hw.evaluate(classifier, reviews, examples=20, **options).summary()["note"]
    assert note == "no interval: 20 held-out examples; 50 are needed"


def test_settings_are_those_of_scores_and_lesions(classifier: Any, reviews: Task) -> None:
    options: Any = {"tokenizer": planted.tokenizer(), "quiet": True}
    whole = hw.evaluate(classifier, reviews, **options)
    for some in ({"batch_size": 3}, {"batch_size": 80}, {"device": "cpu"}, {"seed": 5}):
        other = hw.evaluate(classifier, reviews, **options, **some)
        np.testing.assert_array_equal(other.predictions, whole.predictions)
        np.testing.assert_allclose(other.losses, whole.losses, rtol=1e-5)
    drawn = {"examples": 30, "seed": 3, "split": "validation"}
    few, lesioned = (
        hw.evaluate(classifier, reviews, **options, **drawn),
        hw.lesion(classifier, reviews, {}, **options, **drawn),
    )
    assert len(few) == 30
    np.testing.assert_array_equal(few.predictions, lesioned.tasks["reviews"].predictions[0])
    assert few.score == float(lesioned.performance.loc["intact", "reviews"])
    scores = hw.score(classifier, reviews, examples=30, seed=3, split="validation", **options)
    assert scores.attrs["performance"]["reviews"] == few.metrics
    assert len(hw.evaluate(classifier, reviews, split="train", **options)) == 8
    short = hw.evaluate(classifier, reviews, max_length=4, **options)
    assert short.settings["max_length"] == 4
    assert not np.array_equal(short.losses, whole.losses)
    low = hw.evaluate(classifier, reviews, precision="bf16", **options)
    assert 0 < np.abs(low.losses - whole.losses).max() < 0.2
    with pytest.raises(HeadwiseError, match="did you mean 'batch_size'"):
        hw.evaluate(classifier, reviews, batchsize=3, **options)


def test_a_changed_model_answers_inside_a_block(classifier: Any, reviews: Task) -> None:
    options: Any = {"tokenizer": planted.tokenizer(), "quiet": True}
    head = hw.HeadSet([(0, 1), (1, 0)])
    lesioned = hw.lesion(classifier, reviews, {"x": head}, **options).performance.loc["x", "reviews"]
    with hw.Heads(classifier).silenced(head):
        inside = hw.evaluate(classifier, reviews, **options)
    asked = hw.evaluate(classifier, reviews, silenced=[(0, 1), (1, 0)], **options)
    assert inside.score == asked.score == float(lesioned)
    np.testing.assert_allclose(inside.losses, asked.losses, rtol=1e-5)
    assert asked.settings["silenced"] == [(0, 1), (1, 0)]
    assert hw.evaluate(classifier, reviews, **options).score == 0.75


def saved(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    planted.tokenizer().save_pretrained(folder)
    return folder


def test_folders_taggers_and_language_models_are_evaluated_too(
    classifier: Any, reviews: Task, tmp_path: Path
) -> None:
    with torch.inference_mode():  # where a server may call it
        assert (
            hw.evaluate(saved(classifier, tmp_path / "plain"), reviews, device="cpu", quiet=True).score
            == 0.75
        )
    with pytest.raises(HeadwiseError, match="no trained"):  # from a folder without a head, as ever
        hw.evaluate(saved(classifier.bert, tmp_path / "encoder"), reviews, device="cpu", quiet=True)
    torch.manual_seed(0)
    tagger = BertForTokenClassification(BertConfig(**SIZE, id2label=NAMES)).eval()
    sentences = [
        Sentence(tuple(text.split()), upos=tuple(NAMES[len(w) % 3] for w in text.split()))
        for text in texts(60)
    ]
    tags = Task("tags", data={"validation": sentences}, kind="tags", classes=["bad", "good", "so-so"])
    found, right = hw.evaluate(tagger, tags, tokenizer=planted.tokenizer(), quiet=True), []
    for sentence in sentences:
        with torch.no_grad():
            own = (
                tagger(**planted.tokenizer()(" ".join(sentence.words), return_tensors="pt"))
                .logits[0, 1:-1]
                .argmax(-1)
            )
        right += [NAMES[int(i)] == tag for i, tag in zip(own, sentence.upos or (), strict=True)]
    assert found.score == pytest.approx(np.mean(right))
    assert list(found.table().columns) == ["task", "split", "example", "correct", "predicted", "gold", "loss"]
    words = word_tokenizer([*LANGUAGE, *planted.FILLERS], "<s>")
    lm = GPT2LMHeadModel(
        GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=16, vocab_size=len(words))
    ).eval()
    text = Task(
        "text", data={"validation": [(one,) for one in texts(60)]}, kind="next-token", metric="perplexity"
    )
    found, nll, count = hw.evaluate(lm, text, tokenizer=words, quiet=True), 0.0, 0
    for one in texts(60):
        ids = words(one, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            p = lm(ids).logits[0, :-1].log_softmax(-1)
        nll, count = nll - float(p.gather(1, ids[0, 1:, None]).sum()), count + ids.shape[1] - 1
    assert found.score == pytest.approx(np.exp(nll / count), rel=1e-5)
    assert "perplexity" in found.finding
    assert "%" not in found.finding.partition("95 %")[0]


def test_several_tasks_and_what_is_kept(tmp_path: Path) -> None:
    both = planted.tasks(size=64)
    model = planted.model({"a": (0, 2)}, both)
    with pytest.warns(UserWarning, match="b: the intact model is at chance"):
        found = hw.evaluate(model, list(both.values()), out=tmp_path / "both", quiet=True)
    assert isinstance(found, Evaluations)
    assert found["a"].score == 1.0
    assert found["a"].interval == pytest.approx((0.025 ** (1 / 64), 1.0))  # exact where no example is wrong
    assert found["a"].no_interval == ""
    summary = found.summary().set_index("task")
    assert list(summary["at_chance"]) == [False, True]
    assert set(summary["examples"]) == {64}
    assert len(found.table()) == 128
    assert found.notes[0] in " ".join(repr(found).split())
    again = hw.load(tmp_path / "both")
    pd.testing.assert_frame_equal(again.table(), found.table())
    pd.testing.assert_frame_equal(again.summary(), found.summary())
    assert repr(again) == repr(found)
    with pytest.raises(HeadwiseError, match=r"level was 0\.95 and is 0\.9"):
        hw.evaluate(model, list(both.values()), out=tmp_path / "both", level=0.9, quiet=True)
    one = hw.evaluate(model, both["a"], out=tmp_path / "one", quiet=True)
    assert isinstance(one, Evaluation)
    assert isinstance(hw.load(tmp_path / "one"), Evaluation)
    assert repr(hw.evaluate(model, both["a"], out=tmp_path / "one", quiet=True)) == repr(one)


def test_a_kept_evaluation_is_shown_without_torch(classifier: Any, reviews: Task, tmp_path: Path) -> None:
    rows = [(text[0], reviews.classes[label]) for text, label in reviews.split("validation")]
    pd.DataFrame(rows, columns=["text", "label"]).to_csv(tmp_path / "reviews.csv", index=False)
    saved(classifier, tmp_path / "model")
    code = f"""
import sys, headwise as hw
task = hw.Task("reviews", path={{"validation": {str(tmp_path / "reviews.csv")!r}}})
print(hw.evaluate({str(tmp_path / "model")!r}, task, out={str(tmp_path / "out")!r}, device="cpu", quiet=True).score, "torch" in sys.modules)
"""
    said = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()[-2:]
        for _ in range(2)
    ]
    assert said == [["0.75", "True"], ["0.75", "False"]]


def test_numbers_keep_their_kind(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SIZE, num_labels=1)).eval()
    rows = [(text, len(text) / 7) for text in texts(60)]
    task = Task("length", data={"validation": rows}, kind="number")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = hw.evaluate(model, task, tokenizer=planted.tokenizer(), out=tmp_path / "out", quiet=True)
    again = hw.load(tmp_path / "out")
    np.testing.assert_array_equal(again.predictions, found.predictions)
    np.testing.assert_array_equal(again.labels, found.labels)
    assert again.score == found.score


def test_what_cannot_be_evaluated_is_said(classifier: Any, reviews: Task) -> None:
    options: Any = {"tokenizer": planted.tokenizer(), "quiet": True}
    with pytest.raises(HeadwiseError, match="has no split 'test'"):
        hw.evaluate(classifier, reviews, split="test", **options)
    with pytest.raises(HeadwiseError, match="there is no task"):
        hw.evaluate(classifier, [], **options)
    with pytest.raises(HeadwiseError, match="an encoder without a head"):
        hw.evaluate(BertModel(BertConfig(**SIZE)), reviews, **options)
    train = [("w0", "bad"), ("w1", "good")]
    unlabelled = Task(
        "reviews", data={"test": [(text, None) for text in texts(4)], "train": train}, kind="classes"
    )
    with pytest.raises(HeadwiseError, match="has no labels"):
        hw.evaluate(classifier, unlabelled, split="test", **options)
