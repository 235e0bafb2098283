"""Inference-time intervention: a planted direction is found and steered, and every figure equals a slow computation."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from typer.testing import CliRunner

import headwise as hw
from headwise.cli import app
from headwise.errors import HeadwiseError
from words import word_tokenizer

NAMES = [f"w{i}" for i in range(60)]
WORDS = ["<pad>", "<s>", "</s>", "sun", "rain", "yes", "no", ".", *NAMES]
PLANTED, QUIET = (1, 2), {"quiet": True, "bootstrap": 200}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals of fewer examples than would hold their level, so that the arithmetic can be checked on small data."""
    monkeypatch.setattr("headwise.lesions._intervals.MIN_EXAMPLES", 2)


def tokenizer() -> Any:
    return word_tokenizer(WORDS)


def planted() -> Any:
    """Head (1, 2) carries the difference of "sun" and "rain" to where "yes" and "no" are read; no other head sees the words differ."""
    torch.manual_seed(0)
    sizes: Any = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "tie_word_embeddings": False}
    model = GPT2LMHeadModel(
        GPT2Config(**sizes, vocab_size=len(WORDS), bos_token_id=1, eos_token_id=2, pad_token_id=0)
    ).eval()
    body, sun, rain, yes, no = (
        model.transformer,
        *(WORDS.index(word) for word in ("sun", "rain", "yes", "no")),
    )
    with torch.no_grad():
        for block in body.h:
            block.attn.c_attn.weight[0] = block.attn.c_attn.weight[1] = (
                0  # dimensions 0 and 1 are read by the planted head alone
            )
            block.attn.c_proj.weight[:, :2] = 0
            block.mlp.c_fc.weight[:2] = 0
            block.mlp.c_proj.weight[:, :2] = 0
        body.wte.weight[rain] = body.wte.weight[sun]
        body.wte.weight[:, :2] = body.wpe.weight[:, :2] = 0
        body.wte.weight[sun, 0], body.wte.weight[rain, 0] = 0.05, -0.05
        value, head = 64 + 8 * PLANTED[1], 8 * PLANTED[1]
        body.h[1].attn.c_attn.weight[0, value] = 1.0
        body.h[1].attn.c_proj.weight[head] = 0
        body.h[1].attn.c_proj.weight[head, 1] = 1.0
        model.lm_head.weight[:, :2] = 0
        model.lm_head.weight[yes, 1], model.lm_head.weight[no, 1] = 1.0, -1.0
    return model


def statements(n: int = 80) -> hw.Task:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(n):
        word, label = (("sun", "fine"), ("rain", "foul"))[i % 2]
        rows.append((f"{' '.join(rng.choice(NAMES, 2))} {word} .", label))
    parts = {"train": rows[: n // 2], "validation": rows[n // 2 : 3 * n // 4], "test": rows[3 * n // 4 :]}
    return hw.Task("weather", data=parts, kind="classes", label="label")


def pairs(n: int = 24) -> hw.Task:
    rng = np.random.default_rng(1)
    rows = [(f"{one} yes", f"{one} no") for one in (" ".join(rng.choice(NAMES, 2)) for _ in range(n))]
    table = {"validation": rows[: n // 2], "test": rows[n // 2 :]}
    data = {name: [{"good": good, "bad": bad} for good, bad in part] for name, part in table.items()}
    return hw.Task("agree", data=data, kind="minimal-pairs", text=("good", "bad"))


@pytest.mark.parametrize("directions", ["mean", "probe"])
def test_a_planted_direction_is_found_and_steered(directions: str) -> None:
    model = planted()
    found = hw.steer(
        model,
        [statements(), pairs()],
        tokenizer=tokenizer(),
        target="fine",
        top=1,
        directions=directions,
        max_kl=5.0,
        **QUIET,
    )
    assert list(found.vectors) == [PLANTED]
    assert found.heads.loc[0, "validation"] == found.heads.loc[0, "test"] == 1.0
    vector = found.vectors[PLANTED]
    assert float(vector[0] / vector.norm()) > 0.9  # "fine" is what raises the planted dimension
    test = found.table[found.table["split"] == "test"].set_index("strength")
    assert found.strength > 0
    assert test.loc[found.strength, "change_low"] > 0
    assert test["effect"].is_monotonic_increasing
    assert found.strength == test.index.max()
    assert "a stronger one may do more" in found.notes[0]
    assert test["kl"].is_monotonic_increasing
    assert test.loc[0.0, "kl"] == test.loc[0.0, "change"] == 0
    other = hw.steer(
        model, [statements(), pairs()], tokenizer=tokenizer(), target="foul", top=1, strengths=(5.0,), **QUIET
    )
    assert other.strength == 0
    assert "strength is 0" in other.notes[0]


def test_figures_equal_slow_ones() -> None:
    model, words = planted(), tokenizer()
    found = hw.steer(
        model,
        [statements(), pairs()],
        tokenizer=words,
        target="fine",
        top=3,
        strengths=(4.0,),
        batch_size=5,
        **QUIET,
    )
    heads = hw.Heads(model)
    train = statements().split("train")
    for (layer, head), vector in found.vectors.items():
        outputs = []
        for (text,) in train.texts:
            with torch.no_grad(), heads.recorded("last") as tape:
                model(**words(text, return_tensors="pt"))
            outputs.append(tape.layer(layer)[0, head].double().numpy())
        x, fine = np.array(outputs), np.asarray(train.labels) == 0
        unit = x[fine].mean(0) - x[~fine].mean(0)
        unit /= np.linalg.norm(unit)
        np.testing.assert_allclose(vector.numpy(), (x @ unit).std() * unit, rtol=1e-4, atol=1e-7)

    def log_p(text: str, scale: float) -> tuple[float, np.ndarray]:
        ids = words(text, return_tensors="pt")["input_ids"]
        with torch.no_grad(), found.applied(heads, scale):
            each = model(ids).logits[0].double().log_softmax(-1)
        return sum(float(each[i, ids[0, i + 1]]) for i in range(ids.shape[1] - 1)), each[:-1].numpy()

    table = found.table.set_index(["split", "strength"])
    for split in ("validation", "test"):
        for scale in (0.0, 4.0):
            effects, costs = [], []
            for good, bad in pairs().split(split).texts:
                effects.append(log_p(good, scale)[0] - log_p(bad, scale)[0])
                intact, steered = (
                    np.concatenate([log_p(text, s)[1] for text in (good, bad)]) for s in (0.0, scale)
                )
                costs.append((np.exp(intact) * (intact - steered)).sum(-1).mean())
            row = table.loc[split, scale]
            assert row["effect"] == pytest.approx(np.mean(effects), abs=1e-4)
            assert row["kl"] == pytest.approx(np.mean(costs), abs=1e-5)
            assert row["accuracy"] == pytest.approx(np.mean(np.array(effects) > 0))
            assert row["effect_low"] <= row["effect"] <= row["effect_high"]
            assert row["note"] == ""  # there is no reason why an interval that is there should be missing


def test_the_strongest_effect_on_validation_within_the_limit_is_chosen() -> None:
    """By a loop over the rows, at limits on either side of the divergence of every strength on either split."""
    options: dict[str, Any] = {"tokenizer": tokenizer(), "target": "fine", "top": 1, **QUIET}
    options["strengths"] = (3.0, 1.0, 2.0)  # in any order
    rows = hw.steer(planted(), [statements(), pairs()], **options).table
    validation = rows[rows["split"] == "validation"]
    assert set(rows["split"]) == {"validation", "test"}
    limits = sorted({float(kl) for kl in rows["kl"] if kl > 0})
    assert len(limits) == 6
    for limit in limits:
        found = hw.steer(planted(), [statements(), pairs()], max_kl=limit, **options)
        best, strength = -np.inf, None
        for _, row in validation.iterrows():
            if row["kl"] <= limit and row["effect"] > best:
                best, strength = row["effect"], row["strength"]
        assert found.strength == strength
        remarks = {0.0: "strength is 0", 3.0: "a stronger one may do more"}
        assert len(found.notes) == (strength in remarks)
        assert all(remarks[found.strength] in note for note in found.notes)


def test_without_pairs_the_statements_are_judged() -> None:
    model, words = planted(), tokenizer()
    found = hw.steer(model, statements(), tokenizer=words, target="fine", top=1, strengths=(3.0,), **QUIET)
    heads, test = hw.Heads(model), statements().split("test")
    means = []
    for (text,) in test.texts:
        ids = words(text, return_tensors="pt")["input_ids"]
        with torch.no_grad(), found.applied(heads, 3.0):
            each = model(ids).logits[0].double().log_softmax(-1)
        means.append(np.mean([float(each[i, ids[0, i + 1]]) for i in range(ids.shape[1] - 1)]))
    fine = np.asarray(test.labels) == 0
    row = found.table.set_index(["split", "strength"]).loc["test", 3.0]
    assert row["effect"] == pytest.approx(
        np.mean(np.array(means)[fine]) - np.mean(np.array(means)[~fine]), abs=1e-5
    )
    assert "accuracy" not in found.table
    assert found.settings["model"] == "GPT2LMHeadModel"  # which came from no folder


def test_a_saved_result_opens_again_with_a_baked_model(tmp_path: Path) -> None:
    model, words = planted(), tokenizer()
    model.save_pretrained(tmp_path / "model")
    words.save_pretrained(tmp_path / "model")
    options: dict[str, Any] = {
        "target": "fine",
        "top": 1,
        "strengths": (2.0, 4.0),
        "max_kl": 5.0,
        "out": tmp_path / "out",
        **QUIET,
    }
    first = hw.steer(str(tmp_path / "model"), [statements(), pairs()], **options)
    again = hw.steer(str(tmp_path / "model"), [statements(), pairs()], **options)
    loaded = hw.load(tmp_path / "out")
    for other in (again, loaded):
        assert other.settings["model"] == str(tmp_path / "model")
        assert other.strength == first.strength > 0
        assert torch.equal(other.vectors[PLANTED], first.vectors[PLANTED])
        np.testing.assert_allclose(other.table["effect"], first.table["effect"])
    baked = GPT2LMHeadModel.from_pretrained(tmp_path / "out" / "model").eval()
    ids = words("w1 w2 sun .", return_tensors="pt")["input_ids"]
    heads = hw.Heads(model)
    with torch.no_grad(), loaded.applied(heads):
        torch.testing.assert_close(baked(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-5)
    assert type(hw.load(tmp_path / "out" / "model")).__name__ == "TaskModel"


def test_what_cannot_be_steered_is_refused() -> None:
    with pytest.raises(HeadwiseError, match=r"one task of labelled statements .* got agree \(minimal-pairs"):
        hw.steer(planted(), pairs(), tokenizer=tokenizer())
    with pytest.raises(HeadwiseError, match=r"target is 'fin' \(did you mean 'fine'\?\)"):
        hw.steer(planted(), statements(), tokenizer=tokenizer(), target="fin")
    with pytest.raises(HeadwiseError, match=r"strengths\.1: given 0(\.0)? .* greater than 0"):
        hw.steer(planted(), statements(), tokenizer=tokenizer(), strengths=(1e-6, 0))
    with pytest.raises(HeadwiseError, match="top is 99; the model has 8 heads"):
        hw.steer(planted(), statements(), tokenizer=tokenizer(), top=99, quiet=True)


def test_the_verb_shows_strengths_and_keeps_the_model(tmp_path: Path) -> None:
    planted().save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    for task, name, columns in (
        (statements(), "weather", ["text", "label"]),
        (pairs(), "agree", ["good", "bad"]),
    ):
        rows = []
        for split in task.splits:
            for example in task.split(split):
                given = (
                    [*example.text]
                    if len(columns) == len(example.text)
                    else [*example.text, task.classes[example.label]]
                )
                rows.append(dict(zip(columns, given, strict=True)) | {"split": split})
        pd.DataFrame(rows).to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "tasks.toml").write_text(
        '[weather]\npath = "weather.csv"\nkind = "classes"\n\n'
        '[agree]\npath = "agree.csv"\nkind = "minimal-pairs"\ntext = ["good", "bad"]\n'
    )
    arguments = [
        "steer",
        "--model",
        str(tmp_path / "model"),
        "--tasks-file",
        str(tmp_path / "tasks.toml"),
        "--target",
        "fine",
    ]
    arguments += [
        "--top",
        "1",
        "--strengths",
        "2",
        "4",
        "--max-kl",
        "5",
        "--out",
        str(tmp_path / "out"),
        "--quiet",
    ]
    shown = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    record = json.loads(shown.stdout)
    assert [row["head"] for row in record["tables"]["steering-heads"]] == ["{}.{}".format(*PLANTED)]
    assert record["strength"] in (2.0, 4.0)
    again = CliRunner().invoke(app, arguments, catch_exceptions=False)  # shown from the folder
    assert "Every strength on both splits" in again.output
    assert (tmp_path / "out" / "model" / "model.safetensors").is_file()
