"""Scores of structured tasks, and the tasks' own decoders, against one sentence at a time with weight gradients on."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

import planted
from headwise import grammar
from headwise.heads import HeadSet
from headwise.lesions import lesion
from headwise.models._model import MultiTaskModel
from headwise.scoring import gate_gradient, score
from headwise.tasks import Task, batches, encode

HEADS = 4


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return grammar.tasks(["pos", "ner", "dep", "con", "srl"], size=16, held_out=16)


@pytest.fixture(scope="module")
def model(tasks: list[Task]) -> Any:
    torch.manual_seed(0)
    words = sorted(
        {
            word
            for task in tasks
            for split in ("train", "validation")
            for s in task.split(split).sentences or []
            for word in s.words
        }
    )
    tokenizer = planted.tokenizer()
    tokenizer.add_tokens(words)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=HEADS, intermediate_size=16, initializer_range=0.3,
        max_position_embeddings=64,
    )  # fmt: skip
    built = MultiTaskModel(BertModel(config), tokenizer, tasks)
    for weight in built.decoders.parameters():  # biaffine layers start at zero, where nothing has a gradient
        torch.nn.init.normal_(weight, std=0.1)
    return built.eval()


@pytest.mark.parametrize("name", ["pos", "ner", "dep", "con", "srl"])
def test_scores_equal_one_sentence_at_a_time(name: str, model: Any, tasks: list[Task]) -> None:
    (task,) = (task for task in tasks if task.name == name)
    stores: list[torch.Tensor] = []

    def keep(module: Any, args: Any) -> None:
        args[0].retain_grad()
        stores.append(args[0])

    handles = [
        layer.attention.output.dense.register_forward_pre_hook(keep) for layer in model.encoder.encoder.layer
    ]
    total = np.zeros((2, HEADS))
    for batch in batches(encode(task.split("train"), model.tokenizer, 64), 1):
        model(name, batch).loss.sum().backward()
        total += np.stack(
            [
                np.abs((z * z.grad).unflatten(-1, (HEADS, -1)).sum(dim=(0, 1, 3)).detach().numpy())
                for z in stores
            ]
        )  # type: ignore[operator]
        stores.clear()
    for handle in handles:
        handle.remove()
    model.zero_grad()
    expected = total / len(task.split("train"))
    for size in (1, 7):
        found = gate_gradient(model, task, batch_size=size, max_length=64, quiet=True).to_numpy()
        assert np.abs(found - expected).max() / expected.max() < 1e-5


def test_structured_tasks_can_be_lesioned_and_ablated(model: Any, tasks: list[Task]) -> None:
    result = lesion(model, tasks, [HeadSet([(1, 0), (1, 1)])], batch_size=5, quiet=True)
    table = result.table()
    assert len(table) == 2 * 5 * 16
    dep = table[table["task"] == "dep"]
    rows = dep[dep["lesion"] == "intact"]
    assert rows["correct"].sum() / rows["gold"].sum() == pytest.approx(rows["value"].iloc[0])
    again = lesion(model, tasks, [HeadSet([(1, 0), (1, 1)])], batch_size=16, way="one by one", quiet=True)
    assert (result.performance - again.performance).abs().max().max() < 1e-6
    assert score(model, tasks[0], method="ablation", quiet=True).shape == (2, HEADS)
