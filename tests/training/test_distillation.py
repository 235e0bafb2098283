"""The two losses of distillation, written out for one example at a time."""

import pytest
import torch
import toy
from torch.nn.functional import mse_loss

from headwise.tasks import batches, encode
from headwise.training.methods.distil import Distiller

TASKS = [toy.task("mood", 12), toy.task("warmth", 12)]


@pytest.fixture
def pair() -> Distiller:
    """A student of two layers under a teacher of four."""
    student, teacher = (
        toy.model(TASKS, layers=2, dropout=0.0, seed=1),
        toy.model(TASKS, layers=4, dropout=0.0, seed=2),
    )
    for model in (student, teacher):
        for name, weight in model.encoder.named_parameters():
            if "query.weight" in name or "key.weight" in name:
                weight.data *= 20  # attention as good as even would hardly differ between layers
    return Distiller(student, teacher).eval()


def batch_of(name: str):
    task = next(task for task in TASKS if task.name == name)
    return next(iter(batches(encode(task.split("train"), toy.tokenizer()), 12)))


def alone(encoder, batch, row: int):
    """What an encoder shows of one text without padding."""
    length = int(batch.inputs["attention_mask"][row].sum())
    inputs = {name: value[row : row + 1, :length] for name, value in batch.inputs.items()}
    return encoder(**inputs, output_hidden_states=True, output_attentions=True)


def test_layers_imitate_states_and_attention_of_every_second_layer(pair: Distiller) -> None:
    batch = batch_of("mood")
    assert not batch.inputs["attention_mask"].all()  # some texts are padded
    found = pair("mood", batch).loss
    for row in range(len(batch)):
        own, taught = alone(pair.student.encoder, batch, row), alone(pair.teacher.encoder, batch, row)
        states = [
            mse_loss(own.hidden_states[i], taught.hidden_states[j]) for i, j in ((0, 0), (1, 2), (2, 4))
        ]
        maps = [mse_loss(own.attentions[i], taught.attentions[j]) for i, j in ((0, 1), (1, 3))]
        assert min(maps) > 1e-3
        torch.testing.assert_close(found[row], sum(states) + sum(maps), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["mood", "warmth"])
def test_predictions_imitate_the_teachers_output_and_not_the_labels(pair: Distiller, name: str) -> None:
    pair.imitate_predictions()
    batch = batch_of(name)
    with torch.no_grad():
        found, own, taught = (
            pair(name, batch).loss,
            pair.student(name, batch).logits,
            pair.teacher(name, batch).logits,
        )
    if name == "warmth":
        expected = (own - taught).square()[:, 0]
    else:
        expected = -(taught.softmax(-1) * own.log_softmax(-1)).sum(-1)
    torch.testing.assert_close(found, expected)
    batch.labels.copy_(batch.labels.flip(0))
    with torch.no_grad():
        torch.testing.assert_close(pair(name, batch).loss, found)
