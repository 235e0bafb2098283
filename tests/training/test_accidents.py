"""What the released code does beside important-head training: each accident alone, exactly, and none of it by default."""

import copy
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import toy
from torch import nn

import headwise
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.heads._freeze.ownership import ownership
from headwise.scoring import gate_gradient, top_heads
from headwise.tasks import batches, encode
from headwise.training import TrainingRun
from headwise.training.methods import ImportantHeads, PruneLeast, make_method

TASKS = [toy.task("mood", 60), toy.task("warmth", 40)]
DECAY = 0.1


class Watched(ImportantHeads):
    """Notes model, gradients and optimizer state around every step of the last phase."""

    def around_step(self, run: TrainingRun, task: str) -> Any:
        inner = super().around_step(run, task)

        @contextmanager
        def watching() -> Any:
            before = copy.deepcopy((run.model.state_dict(), dict(moments(run))))
            gradients: dict[str, Any] = {}

            def look(*_: Any) -> None:
                gradients.update({name: copy.deepcopy(p.grad) for name, p in run.model.named_parameters()})

            with inner:
                hook = run.optimizer.register_step_pre_hook(look)
                yield
                hook.remove()
            if self.heads:
                rate = run.schedule.get_last_lr()[0]
                self.seen.append(
                    (task, before, gradients, copy.deepcopy(run.model.state_dict()), rate, run.model.training)
                )

        return watching()


def moments(run: TrainingRun) -> Any:
    for name, param in run.model.named_parameters():
        if param in run.optimizer.state:
            yield name, {key: value.clone() for key, value in run.optimizer.state[param].items()}


def run_with(
    dropout: float = 0.1, family: str = "bert", changes: Any = None, **options: Any
) -> tuple[TrainingRun, list[Any]]:
    method = Watched(alpha=0.3, delta=0.5, **options)
    method.seen = []
    run = TrainingRun(
        toy.model(TASKS, family, dropout), TASKS, method, toy.settings(weight_decay=DECAY, **(changes or {}))
    )
    run.train()
    assert method.seen
    return run, method.seen


def slices(run: TrainingRun, task: str) -> Any:
    """Name, axis and entries of what is frozen in steps of a task."""
    free = run.method.heads[task]
    everything = run.heads.all()
    for owned in ownership(run.heads):
        still = owned.touched(everything) & ~owned.touched(free)
        if still.any():
            yield f"encoder.{owned.name}", owned.dim, still


def part(tensor: torch.Tensor, dim: int, still: torch.Tensor) -> torch.Tensor:
    return tensor.movedim(dim, 0)[still]


def test_with_drift_frozen_heads_move_by_exactly_adams_momentum_and_weight_decay() -> None:
    run, seen = run_with(drift=True)
    moved = 0.0
    for task, (weights, state), gradients, after, rate, _ in seen:
        for name, dim, still in slices(run, task):
            assert not part(gradients[name], dim, still).any()
            m, v = (part(state[name][key], dim, still).double() for key in ("exp_avg", "exp_avg_sq"))
            step = float(state[name]["step"]) + 1
            m, v = 0.9 * m / (1 - 0.9**step), 0.999 * v / (1 - 0.999**step)  # the gradient is 0
            old = part(weights[name], dim, still).double()
            expected = old * (1 - rate * DECAY) - rate * m / (v.sqrt() + 1e-8)
            torch.testing.assert_close(part(after[name], dim, still).double(), expected, rtol=1e-5, atol=1e-7)
            moved += float((expected - old).abs().sum())
    assert moved > 0.1


def test_by_default_nothing_that_is_frozen_moves() -> None:
    run, seen = run_with()
    for task, (weights, _), _, after, _, training in seen:
        assert training
        for name, dim, still in slices(run, task):
            assert torch.equal(part(weights[name], dim, still), part(after[name], dim, still))


def test_drift_reaches_parameters_that_are_frozen_as_a_whole() -> None:
    model = toy.model(TASKS, dropout=0.0)
    heads = headwise.Heads(model.encoder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.5)
    before = toy.weights(model.encoder)
    layer = "encoder.layer.1.attention.self.query.weight"
    for drift, moves in ((False, False), (True, True)):
        with heads.training_only(HeadSet([(0, 0)]), optimizer, drift=drift):
            batch = next(iter(batches(encode(TASKS[0].split("train"), model.tokenizer, 32), 8)))
            optimizer.zero_grad()
            model("mood", batch).loss.mean().backward()
            optimizer.step()
        assert torch.equal(before[layer], toy.weights(model.encoder)[layer]) is not moves


def test_in_eval_mode_the_last_phase_is_that_of_a_model_without_dropout() -> None:
    class Dry(ImportantHeads):
        def at_branch(self, run: TrainingRun) -> None:
            super().at_branch(run)
            for module in run.model.modules():
                if isinstance(module, nn.Dropout):
                    module.p = 0.0
            for module in run.model.encoder.modules():
                if hasattr(module, "dropout_prob"):
                    module.dropout_prob = 0.0

    run, seen = run_with(dropout=0.3, eval_mode=True)
    assert not any(training for *_, training in seen)
    dry = TrainingRun(
        toy.model(TASKS, "bert", 0.3), TASKS, Dry(alpha=0.3, delta=0.5), toy.settings(weight_decay=DECAY)
    )
    dry.train()
    toy.assert_identical(toy.weights(dry.model), toy.weights(run.model))
    usual, _ = run_with(dropout=0.3)
    assert np.array_equal(usual.losses[: len(usual.losses) // 2], run.losses[: len(run.losses) // 2])
    assert not np.array_equal(usual.losses, run.losses)


@pytest.mark.parametrize("examples", [10_000, 25])
def test_leaked_gradients_are_those_of_the_scoring_pass(examples: int) -> None:
    """The first step's gradient, of a plain loop: every task's batches in eval mode, plus the step's own."""
    run, seen = run_with(dropout=0.0, leak=True, examples=examples)
    clean, unleaked = run_with(dropout=0.0, examples=examples)
    task, (weights, _), gradients, *_ = seen[0]
    model = toy.model(TASKS, dropout=0.0)
    model.load_state_dict(weights)
    model.eval()
    for one in TASKS:
        data = encode(one.split("train").sample(examples), model.tokenizer, 64)
        for start in range(0, len(data), 16):
            batch = headwise.tasks.collate(data, np.arange(start, min(start + 16, len(data))))
            model(one.name, batch).loss.mean().backward()
    total = 0.0
    frozen = {name: (dim, still) for name, dim, still in slices(run, task)}
    for name, param in model.named_parameters():
        if gradients[name] is None or param.grad is None:
            continue
        own = unleaked[0][2][name]  # none for other tasks' decoders
        leaked, own, found = (
            g.clone() for g in (param.grad, torch.zeros_like(param) if own is None else own, gradients[name])
        )
        if name in frozen:  # what is kept as it is may have any gradient
            for grad in (leaked, own, found):
                grad.movedim(frozen[name][0], 0)[frozen[name][1]] = 0
        torch.testing.assert_close(found, leaked + own, rtol=1e-3, atol=1e-5, msg=name)
        total += float(leaked.abs().sum())
    assert total > 1
    assert clean.method.heads == run.method.heads
    toy.assert_identical(seen[0][1][0], unleaked[0][1][0])  # nothing else differs before that step
    second = [step[2]["encoder.embeddings.word_embeddings.weight"] for step in (seen[1], unleaked[1])]
    assert not torch.equal(*second)  # the weights differ by then,
    assert float(second[0].abs().sum()) < 3 * float(second[1].abs().sum())  # but the leak happens once


@pytest.mark.parametrize("variant", ["iat", "michel"])
def test_heads_are_chosen_by_the_variant_that_is_asked_for(variant: str) -> None:
    class Kept(ImportantHeads):
        def at_branch(self, run: TrainingRun) -> None:
            super().at_branch(run)
            self.model = copy.deepcopy(run.model)

    method = Kept(alpha=0.3, delta=0.5, variant=variant)
    run = TrainingRun(toy.model(TASKS, dropout=0.0), TASKS, method, toy.settings())
    run.train()
    for task in TASKS:
        expected = top_heads(gate_gradient(method.model, task, variant=variant, quiet=True), fraction=0.3)
        assert method.heads[task.name] == expected
    if variant == "iat":
        assert all(
            layer == 1 for heads in method.heads.values() for layer, _ in heads
        )  # its last layer always ranks first


def test_options_are_named_and_wrong_ones_told() -> None:
    described = make_method("iat", drift=True, variant="iap").describe()
    assert (described["drift"], described["eval_mode"], described["leak"], described["variant"]) == (
        True,
        False,
        False,
        "iap",
    )
    assert PruneLeast(variant="iap").describe()["variant"] == "iap"
    with pytest.raises(HeadwiseError, match="variant 'eq5' is unknown"):
        ImportantHeads(variant="eq5")
    with pytest.raises(HeadwiseError, match="'ablation' has no option 'variant'"):
        headwise.score(toy.model(TASKS), TASKS[0], method="ablation", variant="iat")
