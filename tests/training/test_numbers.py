"""Numbers are learnt on the scale of their targets, and predicted in their own unit."""

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import toy

import headwise
from headwise.errors import HeadwiseError
from headwise.models import MultiTaskModel, SavedTask, export_task
from headwise.scoring import gate_gradient
from headwise.tasks import Task, batches, encode
from headwise.training._fewshot import few_shot, sample_shots
from headwise.training._loop import TrainingRun
from headwise.training._trainer import TrainerData, TrainerModel
from headwise.training.methods.distil import Distiller


def grades(scale: float = 1.0, shift: float = 0.0, n: int = 60) -> Task:
    """The toy task "warmth" in another unit."""
    warmth = toy.task("warmth", n)
    splits = {name: warmth.split(name) for name in warmth.splits}
    rows = {
        name: [(*text, scale * label + shift) for text, label in zip(part.texts, part.labels, strict=True)]
        for name, part in splits.items()
    }
    return Task("warmth", data=rows, kind="number")


def batch(task: Task, model: MultiTaskModel) -> Any:
    return next(iter(batches(encode(task.split("train"), model.tokenizer, 64), 60)))


def test_the_loss_is_the_squared_error_in_units_of_the_targets_spread() -> None:
    task = grades(20, 70)
    model = toy.model([task], dropout=0.0).eval()
    asked = batch(task, model)
    raw = model("warmth", asked)
    torch.testing.assert_close(
        raw.loss, (raw.prediction - asked.labels.float()).square()
    )  # nothing is known of the targets yet
    targets = np.asarray(task.split("train").labels)
    model.standardise("warmth", targets)
    found = model("warmth", asked)
    expected = ((found.prediction.double() - asked.labels) / targets.std()).square()
    torch.testing.assert_close(found.loss.double(), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        found.prediction.double(),
        raw.prediction.double() * targets.std() + targets.mean(),
        rtol=1e-5,
        atol=1e-4,
    )
    torch.testing.assert_close(found.logits.squeeze(-1), found.prediction)
    assert raw.loss.mean() > 1000
    assert 0.5 < found.loss.mean() < 2
    model.standardise("warmth", targets * 3)  # weights that were trained under one scale keep it
    assert float(model.decoders["warmth"].sd) == pytest.approx(targets.std())


def test_training_does_not_depend_on_the_unit() -> None:
    found = []
    for scale, shift in ((1, 0), (20, 70)):
        task = grades(scale, shift)
        model = toy.model([task, toy.task("mood")], dropout=0.0)
        TrainingRun(model, [task, toy.task("mood")], settings=toy.settings(epochs=3)).train()
        asked = batch(grades(), model)
        found.append(
            (
                (model("warmth", asked).prediction - shift) / scale,
                model("mood", batch(toy.task("mood"), model)).logits,
            )
        )
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(found[0][1], found[1][1], atol=1e-3, rtol=1e-3)


def test_saved_models_keep_the_scale(tmp_path) -> None:
    task = grades(20, 70)
    model = toy.model([task])
    TrainingRun(model, [task], settings=toy.settings(epochs=1)).train()
    model.save(tmp_path)
    asked = batch(task, model)
    again = headwise.load(tmp_path)
    assert torch.equal(again("warmth", asked).prediction, model("warmth", asked).prediction)
    TrainingRun(again, [grades()], settings=toy.settings(epochs=1)).train()  # trained on: the scale stays
    assert float(again.decoders["warmth"].sd) == float(model.decoders["warmth"].sd)


def test_weights_copied_before_training_do_not_count_as_trained() -> None:
    task = grades(20, 70)
    one, other = toy.model([task]), toy.model([task])
    other.load_state_dict(one.state_dict())
    other.standardise("warmth", np.array([1.0, 3.0]))
    assert (float(other.decoders["warmth"].mean), float(other.decoders["warmth"].sd)) == (2, 1)


def test_exports_predict_in_the_own_unit_or_say_why_they_cannot() -> None:
    task = grades(20, 70)
    model = toy.model([task], dropout=0.0).eval()
    model.standardise("warmth", task.split("train").labels)
    asked = batch(task, model)
    plain = export_task(model, "warmth")
    torch.testing.assert_close(
        plain(**asked.inputs).logits, model("warmth", asked).logits, atol=1e-4, rtol=1e-5
    )
    left = toy.model([task], "gpt2", dropout=0.0).eval()  # its classifier has no bias
    export_task(left, "warmth")
    left.standardise("warmth", task.split("train").labels)
    with pytest.raises(HeadwiseError, match="no bias to hold that mean"):
        export_task(left, "warmth")


def test_gate_gradients_of_numbers_are_those_of_the_loss_that_is_trained() -> None:
    """Against central differences of each example's loss, and Eq. 4 of the plain squared error divided by the targets' variance."""
    task = grades(20, 70, n=6)
    model = toy.model([task], dropout=0.0).eval().double()
    plain = copy.deepcopy(model)
    model.standardise("warmth", task.split("train").labels)
    scores = gate_gradient(model, task, quiet=True).to_numpy()
    heads, asked, step = headwise.Heads(model.encoder), batch(task, model), 1e-3
    expected = np.zeros_like(scores)
    for layer, head in np.ndindex(*scores.shape):
        sides = []
        for value in (1 + step, 1 - step):
            gates = torch.ones(scores.shape, dtype=torch.float64)
            gates[layer, head] = value
            with heads.gated(gates), torch.no_grad():
                prediction = model.decoders["warmth"](model.states(asked), asked).prediction.double()
            sides.append((prediction - asked.labels).square())
        expected[layer, head] = float(((sides[0] - sides[1]) / (2 * step)).abs().mean())
    variance = float(np.asarray(task.split("train").labels).var())
    np.testing.assert_allclose(scores, expected / variance, rtol=0.02, atol=1e-6)
    # the same weights in the own unit: what the last layer gives is scaled and shifted, the squared error by the variance
    decoder = plain.decoders["warmth"]
    with torch.no_grad():
        decoder.out.weight *= model.decoders["warmth"].sd
        decoder.out.bias.mul_(model.decoders["warmth"].sd).add_(model.decoders["warmth"].mean)
    own = gate_gradient(plain, task, quiet=True).to_numpy()
    np.testing.assert_allclose(scores * variance, own, rtol=1e-3)


def test_a_classifier_is_not_given_a_scale() -> None:
    model = MultiTaskModel(
        toy.encoder(), toy.tokenizer(), [SavedTask("topic", "classes", ("a", "b"), "accuracy")]
    )
    model.standardise("topic", np.array([0, 1]))
    assert not list(model.decoders["topic"].buffers())
    asked = SimpleNamespace(inputs={"attention_mask": torch.ones(1, 2)}, labels=torch.tensor([1]))
    assert model.decoders["topic"](torch.zeros(1, 2, 32), asked).logits.shape == (1, 2)


def test_few_shot_seeds_each_learn_on_the_scale_of_their_own_examples() -> None:
    """Side by side as alone, and the same in any unit; at learning rate 0 every prediction is near the mean of the seed's own shots."""
    model = toy.model([], dropout=0.0).eval()
    settings = {"epochs": 4, "learning_rate": 3e-3, "batch_size": 4}
    task, other = grades(20, 70), grades()
    together = few_shot(model, task, 8, [0, 1, 2], **settings, quiet=True)
    alone = few_shot(model, task, 8, [0, 1, 2], **settings | {"copies": 1}, quiet=True)
    np.testing.assert_allclose(together.prediction, alone.prediction, atol=0.05)
    np.testing.assert_allclose(together.loss, alone.loss, atol=0.02)
    unit = few_shot(model, other, 8, [0, 1, 2], **settings, quiet=True)
    np.testing.assert_allclose(together.prediction, unit.prediction * 20 + 70, atol=0.05)
    still = few_shot(model, task, 8, [0, 1, 2], **settings | {"learning_rate": 1e-30}, quiet=True)
    labels = np.asarray(task.split("train").labels)
    for row, seed in enumerate((0, 1, 2)):
        shots = labels[sample_shots(task.split("train"), 8, seed)]
        assert abs(float(still.prediction[row].mean()) - shots.mean()) < 0.5 * shots.std()
        expected = (
            (still.prediction[row].to_numpy() - np.asarray(task.split("validation").labels)) / shots.std()
        ) ** 2
        np.testing.assert_allclose(still.loss[row], expected, rtol=1e-3, atol=1e-4)


def test_students_imitate_numbers_on_the_scale_of_their_targets() -> None:
    losses = []
    for scale, shift in ((1, 0), (20, 70)):
        task = grades(scale, shift)
        teacher, student = toy.model([task], dropout=0.0, seed=1), toy.model([task], dropout=0.0)
        for one in (teacher, student):
            one.standardise("warmth", task.split("train").labels)
        distiller = Distiller(student, teacher)
        distiller.imitate_predictions()
        losses.append(distiller("warmth", batch(task, student)).loss)
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-3, atol=1e-5)


def test_a_trainer_of_transformers_learns_the_scale_too(tmp_path) -> None:
    task = grades(20, 70)
    model = toy.model([task])
    trainer = SimpleNamespace(model=TrainerModel(model))
    TrainerData([task], model.tokenizer, batch_size=16, epochs=1).feed(trainer)
    assert float(model.decoders["warmth"].mean) == pytest.approx(np.mean(task.split("train").labels))
