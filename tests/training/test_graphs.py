"""Steps as CUDA graphs: the same training as ordinary steps. Most of it needs a GPU and is skipped elsewhere."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import toy

from headwise import grammar
from headwise.training import TrainingRun
from headwise.training._data import steps
from headwise.training._graphs import PAD, _tensors, how_run, on_device, shape_of, shapes_to_come
from headwise.training.methods import Houlsby, ImportantHeads, LoRA, Method, TicketShare
from words import initial_tokenizer

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TASKS = [toy.task("mood", 400), toy.task("animal", 400)]
METHODS = {
    "multi-task": Method,
    "iat": lambda: ImportantHeads(delta=0.5),
    "iat, gradients left": lambda: ImportantHeads(delta=0.5, leak=True),
    "iat, no dropout at the end": lambda: ImportantHeads(delta=0.5, eval_mode=True),
    "ticket-share": lambda: TicketShare(ratios=(0.3,)),
    "houlsby": Houlsby,
    "lora": LoRA,
}


def trained(method=None, family="bert", dropout=0.0, folder=None, tasks=TASKS, **changes):
    settings = toy.settings(**{"device": None, "epochs": 6, "clip": 1.0, "balance": 5, **changes})
    run = TrainingRun(toy.model(tasks, family, dropout), tasks, method or Method(), settings, folder=folder)
    run.train()
    return run


def test_shapes_are_counted_as_they_come() -> None:
    tasks = [*TASKS, *grammar.tasks(["pos", "ner", "dep", "con", "srl"], size=64, held_out=16)]
    model = toy.model(tasks)
    model.tokenizer = initial_tokenizer(25, model_max_length=64)
    run = TrainingRun(
        model, tasks, Method(), toy.settings(micro_batch_size=6, max_length=14)
    )  # sentences in windows
    run.step = 3
    counted = shapes_to_come(run)
    feed = list(steps(run.plan, run.streams, 3, micro=6, pad=PAD))
    assert counted == Counter(map(shape_of, feed))
    assert counted.total() == len(run.plan) - 3
    assert {step.task for step in feed} == set(range(7))
    held: dict[Any, set[Any]] = {}
    for step in feed:  # one key, one shape of every tensor
        tensors = [{**batch.inputs, **_tensors(batch)} for batch, _ in step.micro]
        held.setdefault(shape_of(step), set()).add(
            tuple((name, of.shape) for one in tensors for name, of in one.items())
        )
    assert all(len(shapes) == 1 for shapes in held.values())


def test_a_cpu_has_no_graphs_and_says_so() -> None:
    run = trained(device="cpu", epochs=1)
    assert run.graphs is None
    assert run.not_captured == "training runs on cpu"


@pytest.mark.parametrize("optimizer", ["adamw", "adamax"])
def test_ordinary_steps_take_over_the_optimizer_of_captured_ones(optimizer) -> None:
    run = TrainingRun(toy.model(TASKS), TASKS, Method(), toy.settings(epochs=1, optimizer=optimizer))
    on_device(run.optimizer, torch.device("cpu"))  # as a checkpoint of captured steps has it
    run.train()
    assert np.isfinite(run.losses).all()
    on_device(
        run.optimizer, torch.device("meta")
    )  # and the other way round: counts of steps follow to the device
    assert {state["step"].device.type for state in run.optimizer.state.values()} == {"meta"}


def test_steps_are_counted_from_where_a_run_begins() -> None:
    run = SimpleNamespace(
        graphs=SimpleNamespace(replayed=80, seconds=1.0, notes={}), plan=range(1000), began=900, step=1000
    )
    assert how_run(run) == "80 of 100 steps from step 900 on as CUDA graphs, captured in 1.0 s"
    run.began, run.step = 0, 500  # stopped early
    assert how_run(run).startswith("80 of 500 steps as CUDA graphs")


@gpu
@pytest.mark.parametrize("family", ["bert", "deberta-v2", "gpt2", "llama"])
def test_losses_of_families(family) -> None:
    graphed, plain = trained(family=family), trained(family=family, graphs=False)
    assert graphed.graphs.replayed > 0.8 * len(graphed.plan), graphed.graphs.notes
    np.testing.assert_allclose(graphed.losses, plain.losses, atol=1e-4)


@gpu
@pytest.mark.parametrize("family", ["bert", "deberta-v2", "gpt2", "llama"])
def test_losses_of_families_in_bf16(family) -> None:
    """Ordinary steps have other padding and so other rounding: single losses part by some hundredths, their course does not."""
    graphed, plain = (
        trained(family=family, precision="bf16"),
        trained(family=family, precision="bf16", graphs=False),
    )
    assert graphed.graphs.replayed > 0.8 * len(graphed.plan), graphed.graphs.notes
    assert np.abs(graphed.losses - plain.losses).mean() < 0.01


@gpu
def test_mpnet_is_captured_or_says_why_not() -> None:
    """transformers 5.17 makes its position buckets on the host in every pass and copies them; 5.22 makes them on the device."""
    graphed, plain = trained(family="mpnet"), trained(family="mpnet", graphs=False)
    captured = graphed.graphs.replayed > 0.8 * len(graphed.plan)
    assert captured or all("between CPU and CUDA" in note for note in graphed.graphs.notes.values()), (
        graphed.graphs.notes
    )
    # its relative positions make more of other padding's rounding than other families do, and 300 steps make more of that
    np.testing.assert_allclose(graphed.losses[:30], plain.losses[:30], atol=1e-4)
    assert np.abs(graphed.losses - plain.losses).mean() < 0.01


@gpu
@pytest.mark.parametrize("name", METHODS)
def test_losses_of_methods(name) -> None:
    graphed, plain = trained(METHODS[name]()), trained(METHODS[name](), graphs=False)
    assert graphed.graphs.replayed > 0.6 * len(graphed.plan), graphed.graphs.notes
    np.testing.assert_allclose(graphed.losses, plain.losses, atol=1e-4)


@gpu
def test_frozen_heads_stay_bit_identical() -> None:
    seen = {}

    class Watching(ImportantHeads):
        def at_branch(self, run):
            super().at_branch(run)
            chosen = next(iter(self.heads.values()))
            self.heads = dict.fromkeys(self.heads, chosen)
            seen.update(toy.weights(run.model.encoder))

    run = trained(Watching(delta=0.5, alpha=0.3))
    free = next(iter(run.method.heads.values()))
    after = toy.weights(run.model.encoder)
    for layer in range(2):
        query = f"encoder.layer.{layer}.attention.self.query.weight"
        for head in range(4):
            rows = slice(8 * head, 8 * head + 8)
            assert torch.equal(after[query][rows], seen[query][rows]) == ((layer, head) not in free)


@gpu
def test_dropout_draws_other_masks_and_agrees_within_seeds() -> None:
    ends = {
        graphs: np.array(
            [trained(dropout=0.1, graphs=graphs, seed=seed).losses[-60:].mean() for seed in range(8)]
        )
        for graphs in (True, False)
    }
    spread = np.hypot(ends[True].std(ddof=1), ends[False].std(ddof=1)) / np.sqrt(8)
    assert abs(ends[True].mean() - ends[False].mean()) < 3 * spread
    # learning rate 0, one batch again and again: other masks give other losses
    one = [toy.task("mood", 16)]
    still = trained(dropout=0.3, tasks=one, epochs=60, warmup=0, learning_rate=1e-30, balance=0).losses
    assert len(np.unique(still[-20:])) > 15


@gpu
def test_resumed(tmp_path) -> None:
    class Stop(Exception):
        pass

    class Stopping(ImportantHeads):
        def at_branch(self, run):
            super().at_branch(run)
            run._save(run_checkpoint(run))
            raise Stop

    from headwise.store import Checkpoint

    def run_checkpoint(run):
        return Checkpoint(run.folder / "checkpoint")

    whole = trained(ImportantHeads(delta=0.5), dropout=0.1)
    with pytest.raises(Stop):
        trained(Stopping(delta=0.5), dropout=0.1, folder=tmp_path)
    rest = trained(ImportantHeads(delta=0.5), dropout=0.1, folder=tmp_path)
    np.testing.assert_allclose(rest.losses, whole.losses, rtol=1e-3, atol=1e-4)


@gpu
def test_what_reads_the_device_runs_as_ordinary_steps() -> None:
    class Reading(Method):
        def prepare(self, run):
            decoder = run.model.decoders["mood"]
            decoder.register_forward_hook(lambda *args: float(args[2].loss.sum()) and None)

    mixed, plain = trained(Reading()), trained(graphs=False)
    np.testing.assert_allclose(mixed.losses, plain.losses, atol=1e-4)
    assert list(mixed.graphs.notes) == [0]
    assert mixed.graphs.replayed > 0.3 * len(mixed.plan)  # the other task
