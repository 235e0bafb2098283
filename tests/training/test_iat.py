"""Important-head training: what it may change, and what it must not touch."""

import numpy as np
import pytest
import torch
import toy

from headwise.heads import HeadSet
from headwise.heads._freeze.ownership import ownership
from headwise.training import TrainingRun
from headwise.training.methods import ImportantHeads, Method, RandomHeads

TASKS = [toy.task("mood", 60), toy.task("warmth", 40)]


class Watched(ImportantHeads):
    """IAT that notes weights and optimizer state before and after every step of its phase."""

    def around_step(self, run, task):
        from contextlib import contextmanager

        @contextmanager
        def watching(inner):
            before = state_of(run)
            with inner:
                yield
            if self.heads:
                self.seen.append(
                    (task, before, state_of(run), all(part.training for part in run.model.modules()))
                )

        return watching(super().around_step(run, task))


def state_of(run):
    """Every parameter with its optimizer moments, by name."""
    found = {}
    for name, param in run.model.encoder.named_parameters():
        moments = {
            key: value.clone()
            for key, value in run.optimizer.state.get(param, {}).items()
            if value.shape == param.shape
        }
        found[name] = {"weight": param.detach().clone(), **moments}
    return found


def run_with(method, family="bert", dropout=0.1, **changes):
    run = TrainingRun(toy.model(TASKS, family, dropout), TASKS, method, toy.settings(**changes))
    run.train()
    return run


@pytest.mark.parametrize(
    "method", [ImportantHeads(alpha=1.0, delta=0.5), ImportantHeads(alpha=0.3, delta=0.0)]
)
def test_all_heads_or_no_steps_is_plain_multi_task_training_bit_for_bit(method) -> None:
    plain, same = run_with(Method()), run_with(method)
    toy.assert_identical(toy.weights(same.model), toy.weights(plain.model))
    assert np.array_equal(same.losses, plain.losses)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "deberta-v2"])
def test_heads_outside_a_tasks_set_stay_bit_identical_in_its_steps(family: str) -> None:
    method = Watched(alpha=0.3, delta=0.6)
    method.seen = []
    run = run_with(method, family, weight_decay=0.1)
    assert len(method.seen) == int(0.6 * len(run.plan))
    everything = run.heads.all()
    assert {len(heads) for heads in method.heads.values()} == {int(0.3 * 8)}
    moved: set[str] = set()
    for task, before, after, _ in method.seen:
        frozen = HeadSet(everything - method.heads[task])
        touched = 0
        for owned in ownership(run.heads):
            # keys and values of a group are free if any of its heads is
            still = ~owned.touched(HeadSet(everything - frozen)) & owned.touched(frozen)
            for part in before[owned.name]:
                one, other = (state[owned.name][part].movedim(owned.dim, 0) for state in (before, after))
                assert torch.equal(one[still], other[still]), (task, owned.name, part)
            one, other = (
                state[owned.name]["weight"].movedim(owned.dim, 0)[~still] for state in (before, after)
            )
            touched += int(not torch.equal(one, other))
        assert touched, "the chosen heads must learn"
        owned_names = {owned.name for owned in ownership(run.heads)}
        moved |= {
            n
            for n in before
            if n not in owned_names and not torch.equal(before[n]["weight"], after[n]["weight"])
        }
    names = {
        name
        for name, param in run.model.encoder.named_parameters()
        if param.requires_grad and name not in owned_names
    }
    used = {name for name in names if "pooler" not in name}
    assert moved == used, (
        f"everything outside attention trains as before; these did not: {sorted(used - moved)}"
    )


def test_slices_of_bert_by_hand() -> None:
    """The same without asking headwise which parameters are whose: rows 8h to 8h + 8 of Q, K and V, columns of W_O."""
    method = Watched(alpha=0.3, delta=0.5)
    method.seen = []
    run = run_with(method, weight_decay=0.1)
    for task, before, after, _ in method.seen:
        for layer, head in run.heads.all() - method.heads[task]:
            own = slice(8 * head, 8 * head + 8)
            place = f"encoder.layer.{layer}.attention"
            for name in ("query", "key", "value"):
                for part in ("weight", "exp_avg", "exp_avg_sq"):
                    for kind in ("weight", "bias"):
                        full = f"{place}.self.{name}.{kind}"
                        assert torch.equal(before[full][part][own], after[full][part][own])
            full = f"{place}.output.dense.weight"
            assert torch.equal(before[full]["weight"][:, own], after[full]["weight"][:, own])


def test_dropout_is_on_in_the_last_phase() -> None:
    method = Watched(alpha=0.3, delta=0.5)
    method.seen = []
    run = run_with(method, dropout=0.3)
    assert method.seen
    assert all(training for *_, training in method.seen)
    assert any(isinstance(part, torch.nn.Dropout) and part.p == 0.3 for part in run.model.encoder.modules())
    assert not any(part.training for part in run.model.modules())  # and off when the training is over


def test_scoring_leaves_no_gradient_and_no_trace() -> None:
    run = TrainingRun(toy.model(TASKS), TASKS, ImportantHeads(), toy.settings())
    for param in run.model.parameters():
        param.grad = None
    random = torch.get_rng_state()
    before = toy.weights(run.model)
    run.model.train()
    scores = run.score_tasks()
    assert all(param.grad is None for param in run.model.parameters())
    assert all(param.requires_grad for name, param in run.model.named_parameters() if "pooler" not in name)
    assert run.model.training
    assert all(module.training for module in run.model.modules())
    assert torch.equal(random, torch.get_rng_state())
    toy.assert_identical(toy.weights(run.model), before)
    assert set(scores) == {"mood", "warmth"}
    assert all((value.to_numpy() > 0).any() for value in scores.values())


def test_without_output_projection_its_columns_learn_freely() -> None:
    method = Watched(alpha=0.3, delta=0.5, output_projection=False)
    method.seen = []
    run = run_with(method)
    name = "encoder.layer.0.attention.output.dense.weight"
    for task, before, after, _ in method.seen:
        for layer, head in run.heads.all() - method.heads[task]:
            if layer == 0:
                columns = slice(8 * head, 8 * head + 8)
                assert not torch.equal(before[name]["weight"][:, columns], after[name]["weight"][:, columns])


def test_random_heads_are_drawn_by_seed_and_are_as_many() -> None:
    sets = [run_with(RandomHeads(alpha=0.4, delta=0.5), seed=seed).method.heads for seed in (0, 0, 1)]
    assert sets[0] == sets[1] != sets[2]
    assert all(len(heads) == int(0.4 * 8) for chosen in sets for heads in chosen.values())


def test_the_phase_has_the_length_it_was_given() -> None:
    assert ImportantHeads(delta=0.1).branch_step(100) == 90
    assert ImportantHeads(delta=0.15).branch_step(20) == 17
    assert ImportantHeads(delta=1.0).branch_step(7) == 0
    assert ImportantHeads(delta=0.0).branch_step(7) is None
    assert ImportantHeads(delta=0.01).branch_step(7) is None
