"""A model whose heads were removed trains, and its folder opens again as the model that was trained."""

from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from transformers import BertForSequenceClassification

import headwise as hw
from headwise.errors import HeadwiseError
from headwise.heads import Heads
from headwise.models import MultiTaskModel
from headwise.training._evaluation import evaluate

QUICK: dict[str, Any] = {"epochs": 1, "batch_size": 8, "learning_rate": 1e-3, "max_length": 12}
GONE = hw.HeadSet([(0, 1), (1, 0)])


@pytest.mark.parametrize("method", ["multi-task", "iat", "lora"])
def test_an_encoder_without_some_heads(method: str, tmp_path: Path) -> None:
    if method == "lora":
        pytest.importorskip("peft")
    task = toy.task("mood", 16)
    smaller = Heads(toy.encoder(dropout=0.0)).remove(GONE)
    done = hw.train(smaller, [task], method, tokenizer=toy.tokenizer(), out=tmp_path / "run", **QUICK)
    found = hw.load(tmp_path / "run")
    assert Heads(found.encoder).total == Heads(smaller).total
    toy.assert_identical(found.state_dict(), done.model.state_dict())
    assert evaluate(found, task, "validation", max_length=12).score == done.scores["score"][0]
    again = (
        hw.train(tmp_path / "run", [task], "multi-task", out=tmp_path / "more", **QUICK)
        if method == "iat"
        else done
    )
    assert again.model is not None


def test_a_classifier_without_some_heads(tmp_path: Path) -> None:
    task = toy.task("mood", 16)
    torch.manual_seed(0)
    whole = BertForSequenceClassification(toy.encoder(dropout=0.0).config)
    smaller: Any = Heads(whole).remove(GONE)
    done = hw.train(smaller, [task], "multi-task", tokenizer=toy.tokenizer(), out=tmp_path / "run", **QUICK)
    found = hw.load(tmp_path / "run")
    toy.assert_identical(found.state_dict(), done.model.state_dict())
    assert Heads(found.encoder).total == Heads(smaller).total


def test_what_could_not_be_saved_is_refused_before_the_training(tmp_path: Path) -> None:
    task = toy.task("mood", 16)
    smaller: Any = Heads(BertForSequenceClassification(toy.encoder(dropout=0.0).config)).remove(GONE)
    part = hw.models.open_model(smaller, need="encoder", tokenizer=toy.tokenizer())
    model = MultiTaskModel(part.encoder, part.tokenizer, [task])
    with pytest.raises(
        HeadwiseError, match="heads were removed from the BertForSequenceClassification that this BertModel"
    ):
        hw.train(model, [task], "multi-task", out=tmp_path / "run", **QUICK)
    assert {file.name for file in (tmp_path / "run").rglob("*")} == {"seconds.json", "started.json"}
