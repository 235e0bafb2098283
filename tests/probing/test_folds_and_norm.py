"""A task without a validation split is chosen on by five folds of train; the last layer is read after the model's final norm."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

import planted
from headwise.heads import Heads
from headwise.probing import Probe
from headwise.probing._early_exit import layer_output
from headwise.probing._encoder import Encoder
from headwise.probing._finetuning import EmbeddedModel
from headwise.probing._fits import fold_order
from headwise.probing._probes import probe
from headwise.probing._recording import record
from headwise.probing._splits import three_splits
from headwise.tasks import Task

pytestmark = pytest.mark.filterwarnings("ignore:task 'word'")  # short texts of few words meet again
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": len(planted.WORDS),
}


def sentences(size: int, seed: int) -> list[tuple[str, int]]:
    """Which of two words a text has, and now and then the wrong answer."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(size):
        word, wrong = rng.integers(2), rng.random() < 0.15
        found.append(
            (" ".join(rng.permutation([f"a{word}", *rng.choice(planted.FILLERS, 5)])), int(word != wrong))
        )
    return found


def task(**sizes: int) -> Task:
    data = {split: sentences(size, seed) for seed, (split, size) in enumerate(sizes.items())}
    return Task("word", data=data, kind="classes", classes=["0", "1"])


def bert() -> Any:
    torch.manual_seed(1)
    return BertModel(BertConfig(intermediate_size=16, max_position_embeddings=32, **SIZES)).eval()


def gpt() -> Any:
    """A decoder whose final norm changes much: it turns most axes off."""
    torch.manual_seed(1)
    model = GPT2Model(
        GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, vocab_size=len(planted.WORDS))
    ).eval()
    with torch.no_grad():
        model.ln_f.weight.copy_(torch.linspace(0, 2, 16))
        model.ln_f.bias.copy_(torch.linspace(-1, 1, 16))
    return model


@pytest.mark.parametrize("left", ["test", "validation"])
def test_five_folds_of_train_choose_as_a_loop_of_scikit_learn_does(left: str, tmp_path: Path) -> None:
    """Of the strengths the one that is best over five held-out folds, and a fit of all of train; nothing else is looked at."""
    given = task(**{"train": 90, left: 60})
    encoder = Encoder.of(bert(), planted.tokenizer())
    found = probe(encoder, given, controls=(), dtype="float32", tolerance=1e-5, quiet=True)
    assert found.data["folds"].values.tolist() == [5]
    parts = three_splits(given)
    read = {
        s: record(encoder, parts[s], tmp_path / s, dtype="float32", quiet=True)
        for s in ("train", "validation", "test")
    }
    pool = [(text[0], int(label)) for s in ("train", "validation") for text, label in parts[s]]
    assert sorted(pool) == sorted(sentences(90, 0))  # every one of them is used
    answers, right_answers = (np.array([label for _, label in rows]) for rows in (pool, sentences(60, 1)))
    order, sizes = fold_order(answers, 5, "classes", 0)
    folds = np.split(order, np.cumsum(sizes)[:-1])
    chosen = np.full((2, 2), np.nan)
    for layer, head in np.ndindex(2, 2):
        features = {s: read[s].heads([(layer, head)])[0].double().numpy() for s in read}
        x = np.concatenate([features["train"], features["validation"]])
        means = []
        for strength in Probe().strengths:
            scores = []
            for held in folds:
                rest = np.setdiff1d(order, held)
                model = LogisticRegression(C=1 / (len(rest) * strength), tol=1e-10, max_iter=10_000)
                scores.append(model.fit(x[rest], answers[rest]).score(x[held], answers[held]))
            means.append(np.mean(scores))
        best = max(i for i, mean in enumerate(means) if np.isclose(mean, max(means)))
        again = LogisticRegression(C=1 / (90 * Probe().strengths[best]), tol=1e-10, max_iter=10_000)
        right = again.fit(x, answers).score(features["test"], right_answers)
        part = found.data.sel(task="word")
        assert part["validation"].values[layer, head] == pytest.approx(means[best], abs=1e-9)
        assert part["strength"].values[layer, head] == Probe().strengths[best]
        assert part["test"].values[layer, head] == pytest.approx(right, abs=1e-9)
        chosen[layer, head] = means[best]
    assert next(iter(found.top(1))) == np.unravel_index(chosen.argmax(), (2, 2))


def test_a_validation_split_chooses_where_there_is_one_and_folds_can_be_asked_for() -> None:
    model, three = bert(), task(train=60, validation=30, test=30)
    options: dict[str, Any] = {
        "tokenizer": planted.tokenizer(),
        "controls": (),
        "layers": False,
        "quiet": True,
    }
    assert probe(model, three, **options).data["folds"].values.tolist() == [0]
    assert probe(model, three, folds=3, **options).data["folds"].values.tolist() == [3]
    assert probe(model, task(train=60, test=30), folds=3, **options).data["folds"].values.tolist() == [3]


def test_examples_are_those_of_train_together() -> None:
    splits = three_splits(task(train=90, validation=60), examples=40)
    assert len(splits["train"]) + len(splits["validation"]) == 40
    assert len(splits["test"]) == 40


def test_the_last_layer_of_a_decoder_is_read_after_its_final_norm(tmp_path: Path) -> None:
    model, tokenizer = gpt(), planted.tokenizer()
    encoder = Encoder.of(model, tokenizer)
    given = task(train=80, validation=40, test=40)
    found = record(encoder, given.split("test"), tmp_path / "gpt", batch_size=7, dtype="float32", quiet=True)
    for row, (text,) in enumerate(given.split("test").texts):
        with torch.no_grad():
            inputs = tokenizer(text, return_tensors="pt")
            states = model(
                **inputs, output_hidden_states=True
            ).hidden_states  # the last of which transformers norms
        torch.testing.assert_close(found.output()[0, row], states[-1][0, -1], atol=2e-5, rtol=0)
        torch.testing.assert_close(found.hidden(0)[0, row], states[1][0, -1], atol=2e-5, rtol=0)
        torch.testing.assert_close(model.ln_f(found.hidden(1)[0, row]), states[-1][0, -1], atol=2e-5, rtol=0)
    assert found.normed
    probes = probe(encoder, given, controls=(), dtype="float32", quiet=True)
    rows = probes.embeddings.set_index("embedding")
    assert list(rows.index) == ["last layer", "best layer", "top 2 heads", "before the final norm"]
    for name, read in (
        ("last layer", lambda r: r.output()),
        ("before the final norm", lambda r: r.hidden(1)),
    ):
        x, y = {}, {}
        for split in ("train", "validation", "test"):
            part = record(encoder, given.split(split), tmp_path / split, dtype="float32", quiet=True)
            x[split], y[split] = read(part)[0].double().numpy(), np.asarray(given.split(split).labels)
        fits = [
            LogisticRegression(C=1 / (80 * s), tol=1e-9, max_iter=10_000).fit(x["train"], y["train"])
            for s in Probe().strengths
        ]
        scores = [fit.score(x["validation"], y["validation"]) for fit in fits]
        best = fits[max(i for i, score in enumerate(scores) if score == max(scores))]
        assert rows.loc[name, "test"] == pytest.approx(best.score(x["test"], y["test"]), abs=0.026)
        assert rows.loc[name, "validation"] == pytest.approx(max(scores), abs=0.026)
    assert (
        probes.table().loc["word", "last"]
        == rows.loc["last layer", "test"]
        == probes.data["layer_test"].values[0, -1]
    )


def test_a_model_without_a_final_norm_has_no_second_row(tmp_path: Path) -> None:
    encoder = Encoder.of(bert(), planted.tokenizer())
    given = task(train=30, validation=20, test=20)
    found = record(encoder, given.split("test"), tmp_path, quiet=True)
    assert not found.normed
    torch.testing.assert_close(found.output(), found.hidden(1), atol=0, rtol=0)
    assert "before the final norm" not in set(
        probe(encoder, given, controls=(), quiet=True).embeddings["embedding"]
    )


def test_fine_tuning_from_the_last_layer_reads_after_the_norm_and_trains_it() -> None:
    model, tokenizer = gpt(), planted.tokenizer()
    inputs = dict(tokenizer(["a0 w1 w2", "a1 w3"], padding=True, return_tensors="pt"))
    heads = Heads(model)
    with torch.no_grad():
        right = model(**inputs).last_hidden_state
        torch.testing.assert_close(layer_output(heads, 1, inputs, "all"), right)
        states = model(**inputs, output_hidden_states=True).hidden_states
        torch.testing.assert_close(layer_output(heads, 0, inputs, "all"), states[1])
    tuned = EmbeddedModel(model, tokenizer, [task(train=20, validation=20)], source=1)
    assert tuned.encoder.ln_f.weight.requires_grad
    below = EmbeddedModel(gpt(), tokenizer, [task(train=20, validation=20)], source=0)
    assert not below.encoder.ln_f.weight.requires_grad
