"""The table of kinds: whatever a kind decides is read from its entry, so that a new kind is one entry and one decoder."""

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from headwise import models as decoders
from headwise.models import DecoderOutput, SavedTask
from headwise.tasks import KINDS, Examples, Kind, Task, batches, encode
from headwise.training._evaluation import evaluate

# of a configuration, what tells how the tokens of a text are pooled
BERT_LIKE = {"is_encoder_decoder": False, "is_decoder": False, "model_type": "bert"}
TEXTS = [("a red fox",), ("a red fox runs",), ("the owl",), ("an old owl sleeps here",)]


def compared_strings(tree: ast.AST) -> set[str]:
    """The texts that a module compares something with."""
    compares = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    sides = [side for node in compares for side in (node.left, *node.comparators)]
    constants = [node for side in sides for node in ast.walk(side) if isinstance(node, ast.Constant)]
    return {node.value for node in constants if isinstance(node.value, str)}


def test_kinds_are_compared_by_name_in_no_other_place() -> None:
    """What a kind decides is read from its entry. Some names are words of English too, or what a kind reads."""
    src = Path(decoders.__file__).parents[1]
    words = {"number", "contrast"}
    for file in src.rglob("*.py"):
        compared = compared_strings(ast.parse(file.read_text()))
        assert not compared & (set(KINDS) - words), file


def test_a_new_kind_is_an_entry_and_a_decoder(wordpiece: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of its own, counting long words: split, batch, evaluation and score work by its entry."""
    monkeypatch.setitem(
        KINDS,
        "lengths",
        Kind(
            "text",
            ("token-accuracy",),
            "example",
            dtype="float32",
            numbers=True,
            counts=("right", "tokens", "nll"),
            chance=0.25,
        ),
    )

    class Encoder(nn.Linear):
        def __init__(self) -> None:
            super().__init__(1, 1)
            self.config = type("C", (), {"get_text_config": lambda self: self, **BERT_LIKE})()

        def get_input_embeddings(self) -> Any:
            raise NotImplementedError

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.tokenizer = Encoder(), wordpiece
            self.device = torch.device("cpu")

        def forward(self, name: str, batch: Any) -> DecoderOutput:
            assert batch.labels.dtype == torch.float32
            right = batch.labels
            return DecoderOutput(right, torch.stack([right, right + 1, right], dim=1), right)

    labels = np.array([1.0, 2.0, 3.0, 4.0])
    task = Task.from_examples("t", {"validation": Examples(TEXTS, labels, "lengths")})
    assert (task.metric, task.chance) == ("token-accuracy", 0.25)
    (batch,) = batches(encode(task.split("validation"), wordpiece, 16), 4)
    np.testing.assert_array_equal(batch.labels, labels[batch.index])
    found = evaluate(Model(), task, max_length=16, quiet=True)
    assert list(found.table().columns) == ["task", "split", "example", "right", "tokens", "nll", "loss"]
    assert found.score == pytest.approx(10 / 14)


def test_every_kind_has_a_decoder_or_a_head() -> None:
    for name, kind in KINDS.items():
        assert kind.decoder or kind.head, name
        if kind.decoder:
            task = SavedTask(name, name, () if kind.numbers else ("V", "b"), kind.metrics[0])
            assert isinstance(decoders.build(task, 8), nn.Module)
        assert (kind.reads == "words") == bool(kind.layers) == (kind.rows is not None)
        if kind.batched == "word":
            assert len(kind.filling) == kind.width
