"""Scores, lesions and dissociations say how good the intact model is on what they read, at little cost, and warn of one that is no good."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel
from typer.testing import CliRunner

import headwise as hw
import planted
from headwise import grammar
from headwise._passes.answers import MOST, unjudged
from headwise.cli import app
from headwise.scoring import ESTIMATORS, _estimators as estimators
from headwise.tasks import Task
from words import LANGUAGE, word_tokenizer

QUICK: dict[str, dict[str, Any]] = {
    "l0": {"steps": 2},
    "subset": {"steps": 2},
    "causal-gating": {"steps": 2},
    "integrated-gradients": {"steps": 1},
    "attention-attribution": {"steps": 1},
    "shapley": {"permutations": 1},
}
FREE = ("gate-gradient", "ablation", "attention-attribution", "causal-gating", "shapley", "taylor-mean")
PLAIN = [name for name in ESTIMATORS if "patching" not in name]


@pytest.fixture(scope="module")
def both() -> dict[str, Task]:
    """Task "a" with the wrong label on every fifth example, so that a model of it is right on some examples, not on all; and task "b"."""
    found = planted.tasks(size=24)
    rows = [
        (text, str(int(label) ^ (i % 5 == 0))) for i, ((text,), label) in enumerate(found["a"].split("train"))
    ]
    return {
        **found,
        "a": Task("a", data={"train": rows, "validation": rows}, kind="classes", classes=["0", "1"]),
    }


@pytest.fixture(scope="module")
def model(both: dict[str, Task]) -> Any:
    return planted.model({"a": (0, 2)}, both)


def slow(model: Any, task: Task, split: str = "train") -> tuple[np.ndarray, np.ndarray]:
    """Labels and predictions, one text at a time, by nothing but the modules."""
    examples = task.split(split)
    found = []
    for (text,) in examples.texts:
        inputs = model.tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            state = model.encoder(**inputs).last_hidden_state[:, 0]
            decoder = model.decoders[task.name]
            found.append(int(decoder.out(torch.tanh(decoder.dense(state))).argmax()))
    return np.asarray(examples.labels), np.array(found)


@pytest.mark.parametrize("method", PLAIN)
def test_every_estimator_says_how_good_the_intact_model_is(
    model: Any, both: dict[str, Task], method: str
) -> None:
    labels, predictions = slow(model, both["a"])
    assert 0 < (labels == predictions).mean() < 1
    scores = hw.score(model, both["a"], method=method, batch_size=7, quiet=True, **QUICK.get(method, {}))
    expected = {
        "accuracy": accuracy_score(labels, predictions),
        "f1": f1_score(labels, predictions),
        "macro-f1": f1_score(labels, predictions, average="macro"),
        "matthews": matthews_corrcoef(labels, predictions),
    }
    assert scores.attrs["performance"] == {"a": pytest.approx(expected)}
    assert scores.attrs["chance"] == {"a": max(labels.mean(), 1 - labels.mean())}


@pytest.mark.parametrize("method", PLAIN)
def test_it_costs_no_pass_where_the_intact_model_is_read_anyway(
    model: Any, both: dict[str, Task], method: str
) -> None:
    def rows() -> int:
        read = 0

        def count(module: Any, args: Any, inputs: Any) -> None:
            nonlocal read
            read += len(inputs["input_ids"])

        handle = model.encoder.register_forward_pre_hook(count, with_kwargs=True)
        hw.scoring.ESTIMATORS[method](model, both["a"], quiet=True, **QUICK.get(method, {}))
        handle.remove()
        return read

    with unjudged():
        bare = rows()
    assert rows() - bare == (0 if method in FREE else 24)


@pytest.mark.parametrize("direction", ["denoise", "noise"])
@pytest.mark.parametrize("method", ["patching", "attribution-patching"])
def test_patching_says_how_often_clean_prompts_are_answered(method: str, direction: str) -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=16, vocab_size=20)).eval()
    words = word_tokenizer([*LANGUAGE, *(f"w{i}" for i in range(3, 20))], "<s>")
    rows = [(f"w{i} w{i + 1}", f"w{i + 2} w{i + 1}", f"w{i + 3}", f"w{i + 4}") for i in range(3, 15)]
    task = Task("ioi", data={"train": rows, "validation": rows}, kind="contrast")
    scores = hw.score(
        model, task, method=method, tokenizer=words, direction=direction, batch_size=5, quiet=True
    )
    expected = []
    for clean, _, answer, other in rows:
        with torch.no_grad():
            logits = model(**words(clean, return_tensors="pt")).logits[0, -1]
        expected.append(
            float(logits[words.convert_tokens_to_ids(answer)] - logits[words.convert_tokens_to_ids(other)])
        )
    assert scores.attrs["performance"]["ioi"]["logit-difference"] == pytest.approx(
        np.mean(expected), rel=1e-4
    )


@pytest.mark.parametrize("name", ["pos", "dep", "con", "srl", "ner"])
def test_structured_tasks_say_it_too(name: str) -> None:
    (task,) = grammar.tasks([name], size=16, held_out=16)
    sentences = task.split("train").sentences or []
    tokenizer = word_tokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted({w for s in sentences for w in s.words})],
        "[CLS]",
        "[SEP]",
    )
    torch.manual_seed(0)
    from transformers import BertModel

    size: Any = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    built = hw.models.MultiTaskModel(
        BertModel(BertConfig(vocab_size=len(tokenizer), **size)), tokenizer, [task]
    ).eval()
    scores = hw.score(built, task, batch_size=5, quiet=True)
    lesioned = hw.lesion(built, [task], {}, split="train", quiet=True)
    value = scores.attrs["performance"][name][str(task.metric)]
    assert value == pytest.approx(float(lesioned.performance.loc["intact", name]))


def test_metrics_of_two_classes_are_left_out_where_there_are_more() -> None:
    rows = [(f"w{i % 5} a{i % 2}", str(i % 3)) for i in range(30)]
    task = Task("three", data={"train": rows, "validation": rows}, kind="classes")
    torch.manual_seed(0)
    plain = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(planted.WORDS),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_labels=3,
        )
    )
    scores = hw.score(plain, task, tokenizer=planted.tokenizer(), quiet=True)
    assert set(scores.attrs["performance"]["three"]) == {"accuracy", "macro-f1", "matthews"}


def test_a_live_classifier_with_a_random_head_is_warned_of(both: dict[str, Task], tmp_path: Path) -> None:
    """It was scored, lesioned and evaluated without a word."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(planted.WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        id2label={0: "0", 1: "1"},
    )  # fmt: skip
    plain, options = (
        BertForSequenceClassification(config).eval(),
        {"tokenizer": planted.tokenizer(), "quiet": True},
    )
    said = r"a: the intact model is at chance \(0.5\d+; a guess that ignores the text: 0.5\d+\), so {}: was it trained for this task"
    with pytest.warns(UserWarning, match=said.format("scores of its heads say little")):
        scores = hw.score(plain, both["a"], out=tmp_path / "scores", **options)
    assert list(scores.attrs["at_chance"]) == ["a"]
    with pytest.warns(UserWarning, match="scores of its heads say little"):  # of kept scores too
        hw.score(plain, both["a"], out=tmp_path / "scores", **options)
    with pytest.warns(UserWarning, match=said.format("lesions show little")):
        lesions = hw.lesion(plain, both["a"], {"one": [(0, 0)]}, **options)
    assert lesions.notes[0] in " ".join(repr(lesions).split())
    with pytest.warns(UserWarning, match=said.format("its score says little")):
        hw.evaluate(plain, both["a"], **options)


def test_a_model_that_can_do_the_task_is_not_warned_of() -> None:
    both = planted.tasks(size=24)
    able = planted.model({"a": (0, 2), "b": (1, 1)}, both)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        scores = hw.score(able, list(both.values()), quiet=True)
        hw.lesion(able, list(both.values()), {}, quiet=True)
        hw.evaluate(able, both["a"], quiet=True)
        hw.dissociate(able, list(both.values()), fraction=0.2, random_draws=0, bootstrap=0, quiet=True)
    assert "at_chance" not in scores.attrs
    assert scores.attrs["performance"] == {
        name: dict.fromkeys(("accuracy", "f1", "macro-f1", "matthews"), 1.0) for name in "ab"
    }


def test_a_dissociation_warns_once_of_each_task(both: dict[str, Task]) -> None:
    """Task b is carried by no head; scores on training data and lesions on validation data are one dissociation."""
    half = planted.model({"a": (0, 2)}, both)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = hw.dissociate(
            half, list(both.values()), fraction=0.2, also=("mean",), random_draws=0, bootstrap=0, quiet=True
        )
    said = [str(one.message) for one in caught if "at chance" in str(one.message)]
    assert len(said) == 1
    assert said[0].startswith("b: the intact model is at chance (")
    assert "so its lesions show little" in said[0]
    assert said[0] in found.notes
    assert set(found.scores.attrs["performance"]) == {"a", "b"}


def test_random_scores_are_judged_on_the_examples_asked_for(model: Any, both: dict[str, Task]) -> None:
    """On those that another estimator reads; of all of them the model is right on another share."""
    performance = {
        (method, examples): hw.score(model, both["a"], method=method, examples=examples, quiet=True).attrs[
            "performance"
        ]
        for method in ("gate-gradient", "random")
        for examples in (3, None)
    }
    assert performance["random", 3] == performance["gate-gradient", 3] != performance["random", None]
    assert performance["random", None] == performance["gate-gradient", None]


def test_it_is_that_of_the_intact_model(model: Any, both: dict[str, Task]) -> None:
    """Of the first of iterative rounds, and with the heads that a user keeps silenced."""
    once = hw.score(model, both["a"], quiet=True).attrs["performance"]
    for method in ("gate-gradient", "ablation", "random"):
        assert hw.score(model, both["a"], method=method, iterative=3, quiet=True).attrs["performance"] == once
    silenced = hw.HeadSet([(0, 2)])
    lesioned = hw.lesion(model, both["a"], {"silenced": silenced}, split="train", quiet=True).performance.loc[
        "silenced", "a"
    ]
    scores = hw.score(model, both["a"], silenced=silenced, quiet=True)
    assert (
        scores.attrs["performance"]["a"]["accuracy"]
        == pytest.approx(float(lesioned))
        != once["a"]["accuracy"]
    )


def test_functions_of_ones_own_are_judged_on_what_they_read(model: Any, both: dict[str, Task]) -> None:
    def mine(model: Any, task: Task, heads: hw.Heads) -> Any:
        return np.arange(np.prod(heads.shape)).reshape(heads.shape)

    def few(model: Any, task: Task, heads: hw.Heads) -> Any:
        return (
            hw.scoring.gate_gradient(model, task, heads=heads, examples=5, quiet=True)
            .drop_attrs()
            .assign_attrs(examples=5)
        )

    whole = hw.score(model, both["a"], quiet=True).attrs["performance"]
    assert hw.score(model, both["a"], method=mine, quiet=True).attrs["performance"] == whole
    five = hw.score(model, both["a"], examples=5, quiet=True).attrs["performance"]
    assert hw.score(model, both["a"], method=few, quiet=True).attrs["performance"] == five != whole


def test_at_most_a_thousand_examples_are_read_only_to_judge() -> None:
    several = planted.tasks(size=MOST + 40)
    able, read = planted.model({"a": (0, 2), "b": (1, 1)}, several), 0

    def count(module: Any, args: Any, inputs: Any) -> None:
        nonlocal read
        read += len(inputs["input_ids"])

    handle = able.encoder.register_forward_pre_hook(count, with_kwargs=True)
    scores = hw.score(able, several["a"], method="l0", steps=1, batch_size=500, quiet=True)
    handle.remove()
    assert MOST < read < MOST + 520  # one step of at most 500, and what `Heads` reads
    assert scores.attrs["performance"]["a"]["accuracy"] == 1.0
    assert scores.attrs["examples"] == MOST + 40


def test_saved_scores_say_it_and_older_ones_that_they_do_not(
    model: Any, both: dict[str, Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = hw.score(model, both["a"], out=tmp_path / "new", quiet=True)
    for name in ("scores.nc", "scores.json"):
        assert hw.load(tmp_path / "new" / name).attrs["performance"] == scores.attrs["performance"]
    whole = estimators.estimate

    def before(*args: Any) -> Any:
        found = whole(*args)
        found.attrs = {
            name: value
            for name, value in found.attrs.items()
            if name not in ("performance", "chance", "at_chance")
        }
        return found

    monkeypatch.setattr(estimators, "estimate", before)
    hw.score(model, both["a"], out=tmp_path / "old", quiet=True)
    monkeypatch.setattr(estimators, "estimate", whole)
    old = hw.score(model, both["a"], out=tmp_path / "old", quiet=True)
    np.testing.assert_array_equal(old, scores)
    assert "does not say how good the intact model is" in old.attrs["notes"][0]
    assert "notes" not in hw.score(model, both["a"], out=tmp_path / "new", quiet=True).attrs


def test_the_verb_says_it(model: Any, both: dict[str, Task], tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    for task in both.values():
        rows = [
            json.dumps({"text": text[0], "label": task.classes[label]}) for text, label in task.split("train")
        ]
        (tmp_path / f"{task.name}.jsonl").write_text("\n".join(rows))
    (tmp_path / "tasks.toml").write_text(
        "\n".join(f'[{n}]\npath = {{train = "{n}.jsonl"}}\nclasses = ["0", "1"]' for n in "ab")
    )
    command = [
        "score",
        "--model",
        tmp_path / "model",
        "--tasks-file",
        tmp_path / "tasks.toml",
        "--device",
        "cpu",
    ]
    with pytest.warns(UserWarning, match="b: the intact model is at chance"):
        shown = CliRunner().invoke(app, [*map(str, command)], catch_exceptions=False)
    record = json.loads(
        CliRunner().invoke(app, [*map(str, command), "--json"], catch_exceptions=False).stdout
    )
    accuracy = record["settings"]["performance"]["a"]["accuracy"]
    assert f"Intact model: a {100 * accuracy:.1f} %, b " in " ".join(shown.stdout.split())
    assert shown.stdout.count("(at chance)") == 1
    assert list(record["settings"]["at_chance"]) == ["b"]
