"""Structured tasks and gates as captured steps: on a CPU with tapes for graphs (see tape.py), on a GPU with graphs."""

import gc
import random
import weakref
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import pytest
import torch
import toy
from tape import NotCapturable, Tape, TapedSteps, taped

from headwise import grammar
from headwise.lesions import lesion
from headwise.models import MultiTaskModel
from headwise.tasks import encode
from headwise.tasks._batches import collate
from headwise.training import TrainingRun, train
from headwise.training._data import steps
from headwise.training._graphs import PAD, _alike
from headwise.training.methods import METHODS, GatedTraining, ImportantHeads, Method, PruneLeast
from words import initial_tokenizer

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
LAYERS = {"tags": "pos", "spans": "ner", "dependencies": "dep", "constituents": "con", "roles": "srl"}
GATES = {
    "multi-task": Method,
    "gated": GatedTraining,
    "fixed price": lambda: GatedTraining(penalty=0.01),
    "iat": lambda: ImportantHeads(delta=0.5),
    "iat with accidents": lambda: ImportantHeads(delta=0.5, leak=True, eval_mode=True),
    "prune": lambda: PruneLeast(delta=0.5),
}
NARROW = {
    "spans": {"width": 12},
    "dependencies": {"arc": 16, "relation": 8},
    "constituents": {"span": 16, "label": 8},
    "roles": {"width": 12},
}
TASKS = {task.kind: task for task in grammar.tasks(list(LAYERS.values()), size=64, held_out=16)}


def model(*tasks, dropout=0.0):
    torch.manual_seed(0)
    options = {
        task.name: {**NARROW.get(task.kind, {}), "dropout": dropout} for task in tasks if task.kind in LAYERS
    }
    made = MultiTaskModel(
        toy.encoder(dropout=dropout), initial_tokenizer(25, model_max_length=64), tasks, options=options
    )
    for part in made.decoders.modules():  # biaffine weights begin at zero
        if hasattr(part, "weight") and part.weight.dim() == 3:
            torch.nn.init.normal_(part.weight, std=0.3)
    return made


def trained(tasks, method=None, dropout=0.0, **changes):
    settings = toy.settings(**{"epochs": 4, "batch_size": 8, "clip": 1.0, "balance": 3, **changes})
    run = TrainingRun(model(*tasks, dropout=dropout), tasks, method or Method(), settings)
    run.train()
    return run


def both(tasks, method=Method, **changes):
    """A training with tapes for graphs, and one without."""
    with taped():
        replayed = trained(tasks, method(), **changes)
    return replayed, trained(tasks, method(), graphs=False, **changes)


@pytest.mark.parametrize("kind", LAYERS)
def test_structured_tasks_in_half_precision(kind) -> None:
    """Predictions are decoded when they are read, which may be outside the pass and its precision."""
    task, made = TASKS[kind], model(TASKS[kind])
    trained = train(made, [task], epochs=1, batch_size=8, precision="bf16", device="cpu", quiet=True)
    assert trained.scores["score"].notna().all()
    exact, half = (lesion(made, task, [[(0, 1)]], precision=name, quiet=True) for name in ("float32", "bf16"))
    np.testing.assert_allclose(half.performance, exact.performance, atol=0.1)
    np.testing.assert_allclose(
        half.tasks[task.name].losses, exact.tasks[task.name].losses, rtol=0.05, atol=0.05
    )


def test_graphs_are_let_go_after_a_training() -> None:
    with taped():
        run = trained([TASKS["tags"]])
    assert run.graphs.replayed > 0
    assert not run.graphs.graphs


@pytest.mark.parametrize(("failures", "said"), [(1, False), (2, True)])
def test_a_capture_that_fails_is_tried_again_once(monkeypatch, failures, said) -> None:
    usual, left = TapedSteps._recorded, [failures]

    def failing(self, static):
        if left[0]:
            left[0] -= 1
            self._failed(static.task, "something else was compiled")
            return None
        return usual(self, static)

    monkeypatch.setattr(TapedSteps, "_recorded", failing)
    replayed, plain = both([TASKS["tags"]])
    assert bool(replayed.graphs.notes) == said
    assert (replayed.graphs.replayed > 0) != said
    np.testing.assert_allclose(replayed.losses, plain.losses, atol=1e-4)


def test_a_training_leaves_nothing_behind(monkeypatch) -> None:
    """On a GPU its memory is given back before the next one begins."""
    made, asked = [], []
    usual = TrainingRun.__init__

    def noted(self, *args, **kwargs):
        made.append(weakref.ref(self))
        usual(self, *args, **kwargs)

    monkeypatch.setattr(TrainingRun, "__init__", noted)
    if torch.cuda.is_available():
        torch.cuda.init()  # seeding takes the next line's word for it
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: asked.append([ref() for ref in made]))
    gc.disable()  # no collection by chance
    try:
        with taped():  # graphs and their training hold on to each other
            kept = train(
                model(TASKS["tags"]), [TASKS["tags"]], epochs=1, batch_size=8, device="cpu", quiet=True
            )
    finally:
        gc.enable()
    assert asked[-1] == [None]
    assert kept.model is not None


def test_a_tape_refuses_what_a_gpu_refuses() -> None:
    x, places = torch.randn(4), torch.arange(2)
    for read in (
        lambda: float(x.sum()),
        lambda: bool(x[0] > 0),
        lambda: x[x > 0],
        lambda: x.nonzero(),
        lambda: torch.tensor([1.0, 2.0]) + x[:2],
        lambda: torch.from_numpy(np.ones(4)),
        lambda: x.tolist(),
        lambda: x.cpu(),
        lambda: x.index_put_((x > 0,), torch.zeros(())),
        lambda: x.__setitem__(places, 1),
        lambda: x.__setitem__(places, torch.tensor(1.0)),
    ):
        with pytest.raises(NotCapturable), Tape():
            read()


@pytest.mark.parametrize("kind", ["classes", *LAYERS])
def test_a_step_reads_nothing_back(kind) -> None:
    """Forward and backward pass of each kind under the tape; a decoder that reads a value is refused."""
    task = toy.task("mood", 16) if kind == "classes" else TASKS[kind]
    made = model(task).train()
    encoded = encode(task.split("train"), made.tokenizer, 32)
    batch = collate(encoded, np.arange(6), 16)
    with Tape():
        made(task.name, batch).loss.mean().backward()
    made.decoders[task.name].register_forward_hook(lambda *args: float(args[2].loss.sum()) and None)
    with pytest.raises(NotCapturable), Tape():
        made(task.name, batch)


@pytest.mark.parametrize("kind", LAYERS)
def test_padding_changes_nothing(kind) -> None:
    """Losses, gradients and counts of a padded batch are those of the batch as it is; windows of long sentences included."""
    task = TASKS[kind]
    made = model(task).eval()
    encoded = encode(task.split("train"), made.tokenizer, 12)
    assert encoded.rows[-1] > len(encoded)  # windows
    found = []
    for pad in (None, 16):
        batch = collate(encoded, np.arange(3, 16), pad)
        assert (batch.room.words % 16 == 0) == bool(pad)
        made.zero_grad()
        output = made(task.name, batch)
        output.loss.mean().backward()
        grads = torch.cat([p.grad.flatten() for p in made.parameters() if p.grad is not None])
        found.append((output.loss.detach(), grads, output.prediction))
        twice = made(task.name, batch.repeated(2))
        assert torch.equal(twice.prediction, output.prediction.repeat(2, 1))
        torch.testing.assert_close(twice.loss, output.loss.repeat(2), rtol=1e-5, atol=1e-6)
    (loss, grads, counts), (other, others, again) = found
    assert grads.abs().max() > 1e-3
    torch.testing.assert_close(other, loss, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(others, grads, rtol=0, atol=1e-6 * max(1, float(grads.abs().max())))
    assert torch.equal(again, counts)


@pytest.mark.parametrize("kind", LAYERS)
def test_replayed_steps_are_ordinary_ones(kind) -> None:
    """Each replay reads its own batch: labels, words and trees are copied, and no number of the captured one stays behind."""
    replayed, plain = both([TASKS[kind]])
    assert replayed.graphs.replayed > 0.5 * len(replayed.plan), replayed.graphs.notes
    np.testing.assert_allclose(replayed.losses, plain.losses, atol=1e-5)


@pytest.mark.parametrize("name", GATES)
def test_methods_draw_and_count_on_the_device(name, monkeypatch) -> None:
    """With dropout: a replay draws what an ordinary step would, gates included, and their price falls with the steps."""
    monkeypatch.setattr(
        "headwise.training._loop.steps", padded
    )  # all alike, so that as many numbers are drawn
    replayed, plain = both(
        [TASKS["tags"], TASKS["dependencies"]], GATES[name], dropout=0.1, gate_learning_rate=0.1
    )
    assert replayed.graphs.replayed > 0.3 * len(replayed.plan), replayed.graphs.notes
    np.testing.assert_allclose(replayed.losses, plain.losses, atol=1e-4)
    if isinstance(plain.method, GatedTraining):
        torch.testing.assert_close(replayed.method.gates, plain.method.gates, atol=1e-4, rtol=1e-4)
        assert replayed.method.state_dict() == plain.method.state_dict() == {"step": len(plain.plan)}


@pytest.mark.parametrize("name", ["pals", "ca-mtl", "lora", "houlsby", "distil"])
def test_methods_with_modules_of_their_own(name, monkeypatch) -> None:
    monkeypatch.setattr("headwise.training._loop.steps", padded)
    tasks = [toy.task("mood", 48), toy.task("animal", 48) if name == "distil" else TASKS["tags"]]
    options = {
        "pals": {"size": 16, "n_heads": 4},
        "distil": {"teacher": model(*tasks), "intermediate": 0.5},
    }.get(name, {})
    replayed, plain = both(tasks, lambda: METHODS[name](**options), dropout=0.1)
    assert replayed.graphs.replayed > 0.5 * len(replayed.plan), replayed.graphs.notes
    np.testing.assert_allclose(replayed.losses, plain.losses, atol=1e-5)


def padded(*args, **options):
    return steps(*args, **{**options, "pad": PAD})


class HostGates(GatedTraining):
    """Scales losses by a number drawn in Python, and says nothing about its steps."""

    draw: ClassVar = staticmethod(random.random)

    @contextmanager
    def around_step(self, run, task):
        drawn = self.draw()
        hook = run.model.decoders[task].register_forward_hook(
            lambda part, args, output: scaled(output, 1 + drawn)
        )
        with super().around_step(run, task):
            yield
        hook.remove()


def scaled(output, factor):
    output.loss = output.loss * factor
    return output


class Claiming(HostGates):
    steps_alike: ClassVar[bool] = True


class Hiding(Claiming):
    """With a generator that nobody can watch."""

    def __init__(self, **options):
        super().__init__(**options)
        self.draw = np.random.default_rng(0).random


def test_methods_that_draw_on_the_host_are_not_captured() -> None:
    tasks = [TASKS["tags"]]
    for method in METHODS.values():
        assert _alike(method)
    with taped():
        assert "steps_alike" in trained(tasks, HostGates(), epochs=1).not_captured
        noticed = trained(tasks, Claiming(), epochs=1)
    assert noticed.graphs.notes == {0: "its steps draw random numbers on the host"}
    assert noticed.graphs.replayed == 0
    # the tape itself notices what escapes that: a constant draw is another training
    replayed, plain = both(tasks, Hiding)
    assert replayed.graphs.replayed > 0
    assert np.abs(replayed.losses - plain.losses).max() > 0.1


@gpu
@pytest.mark.parametrize("kind", LAYERS)
def test_losses_of_structured_tasks(kind) -> None:
    options = {"device": None, "epochs": 13}
    graphed, plain = trained([TASKS[kind]], **options), trained([TASKS[kind]], graphs=False, **options)
    assert len(graphed.plan) > 100
    assert graphed.graphs.replayed > 0.6 * len(graphed.plan), graphed.graphs.notes
    np.testing.assert_allclose(graphed.losses, plain.losses, rtol=1e-5, atol=1e-4)


@gpu
@pytest.mark.parametrize("kind", LAYERS)
def test_structured_tasks_in_bf16(kind) -> None:
    """Ordinary steps have other padding and so other rounding: the course of losses is the same."""
    options = {"device": None, "epochs": 13, "precision": "bf16"}
    graphed, plain = trained([TASKS[kind]], **options), trained([TASKS[kind]], graphs=False, **options)
    assert graphed.graphs.replayed > 0.6 * len(graphed.plan), graphed.graphs.notes
    assert np.abs(graphed.losses - plain.losses).mean() < 0.03 * plain.losses.mean()


@gpu
@pytest.mark.parametrize("method", [lambda: GatedTraining(penalty=0.01), GatedTraining])
def test_gates_on_a_gpu_are_drawn_anew_and_close(method, monkeypatch) -> None:
    monkeypatch.setattr("headwise.training._loop.steps", padded)
    options = {"device": None, "epochs": 26, "gate_learning_rate": 0.1, "balance": 0}
    tasks = [TASKS["tags"]]
    graphed, plain = trained(tasks, method(), **options), trained(tasks, method(), graphs=False, **options)
    assert graphed.graphs.replayed > 0.6 * len(graphed.plan), graphed.graphs.notes
    assert graphed.method.state_dict() == {"step": len(graphed.plan)}
    assert abs(graphed.method.expected - plain.method.expected) < 1.5
    still = trained(
        tasks,
        method(),
        **{**options, "warmup": 0, "learning_rate": 1e-30, "gate_learning_rate": 1e-30, "batch_size": 64},
    )
    if still.method.penalty is not None:  # one batch again and again: other gates, other losses
        assert len(np.unique(still.losses[-15:])) > 10
