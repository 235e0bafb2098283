"""The loop against a plain torch loop, and each of its settings against what it must not change."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import toy
from transformers import get_linear_schedule_with_warmup

from headwise.errors import HeadwiseError
from headwise.tasks import Task, batches, encode
from headwise.tasks._metrics import METRICS
from headwise.training import Train, TrainingRun, _data as data, _loop as loop, evaluate
from headwise.training._devices import make_accelerator
from headwise.training._optimizer import LossBalance, build_schedule
from headwise.training._samplers import plan


def trained(tasks, changes=None, dropout=0.0, **model):
    one = toy.model(tasks, dropout=dropout, **model)
    run = TrainingRun(one, tasks, settings=toy.settings(**(changes or {})))
    run.train()
    return run


def close(one, other, atol=1e-6):
    for name, value in toy.weights(one.model).items():
        if "key.bias" not in name:  # its true gradient is zero: Adam amplifies rounding there
            torch.testing.assert_close(value, toy.weights(other.model)[name], atol=atol, rtol=1e-4, msg=name)


def plain_loop(tasks, factor=lambda task, loss: 1.0):
    """Independent of our data feed and of accelerate: same batches, AdamW, transformers' schedule; gradients of the mean loss times a factor.

    Returns:
        the model and the losses.
    """
    one = toy.model(tasks, dropout=0.0).train()
    one.standardise("warmth", tasks[1].split("train").labels)
    groups = [{"params": [p for p in one.encoder.parameters() if p.requires_grad], "lr": 1e-3}]
    groups.append({"params": one.decoders.parameters(), "lr": 3e-3})
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    drawn = plan("proportional", [50, 30], [4, 2], 2, seed=0)
    schedule = get_linear_schedule_with_warmup(optimizer, 2, len(drawn))
    encoded = [encode(task.split("train"), one.tokenizer, 256) for task in tasks]
    orders = [
        [b for epoch in range(12) for b in batches(data, 16, seed=i, epoch=epoch)]
        for i, data in enumerate(encoded)
    ]
    losses, used = [], [0, 0]
    for number in drawn:
        batch = orders[number][used[number]]
        used[number] += 1
        optimizer.zero_grad()
        loss = one(tasks[number].name, batch).loss.mean()
        (loss * factor(number, loss.item())).backward()
        torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 0.5)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return one, losses


@pytest.mark.parametrize("window", [0, 2])
def test_equals_a_plain_torch_loop(window) -> None:
    tasks = [toy.task("mood", 50), toy.task("warmth", 30)]
    history: list[list[float]] = [[], []]

    def balancing(task: int, loss: float) -> float:
        """The sum of the tasks' mean losses over that of this one; a task not yet seen counts as 0."""
        history[task].append(loss)
        means = [float(np.mean(values[-window:])) if values else 0.0 for values in history]
        return sum(means) / means[task]

    run = trained(
        tasks, {"clip": 0.5, "weight_decay": 0.01, "decoder_learning_rate": 3e-3, "balance": window}
    )
    one, losses = plain_loop(tasks, balancing) if window else plain_loop(tasks)
    np.testing.assert_allclose(run.losses, losses, rtol=1e-4)
    for name, value in toy.weights(one).items():
        if "key.bias" not in name:
            torch.testing.assert_close(toy.weights(run.model)[name], value, atol=1e-6, rtol=1e-4, msg=name)


def test_micro_batches_and_checkpointing_change_nothing_but_memory() -> None:
    tasks = [toy.task("mood", 40), toy.task("same", 24)]
    whole = trained(tasks)
    close(trained(tasks, {"micro_batch_size": 3}), whole)  # of 16 examples, three or two each
    close(trained(tasks, {"gradient_checkpointing": True}), whole)
    np.testing.assert_allclose(trained(tasks, {"log_every": 3}).losses, whole.losses, rtol=1e-5)


def test_training_is_reproducible_and_depends_on_the_seed() -> None:
    tasks = [toy.task("animal", 40), toy.task("warmth", 30)]
    run, again, other = (trained(tasks, {"seed": seed}, dropout=0.1) for seed in (0, 0, 1))
    toy.assert_identical(toy.weights(run.model), toy.weights(again.model))
    assert not np.array_equal(other.losses, run.losses)


def test_training_learns() -> None:
    tasks = [toy.task("mood", 200), toy.task("warmth", 200)]
    run = trained(tasks, {"epochs": 10, "learning_rate": 2e-3})
    scores = [evaluate(run.model, task, quiet=True).score for task in tasks]
    assert scores[0] > tasks[0].chance + 0.15
    assert scores[1] > 0.5


def test_evaluation_does_not_depend_on_batch_size_and_keeps_the_mode() -> None:
    tasks = [toy.task("mood", 40), toy.task("warmth", 24)]
    one = toy.model(tasks).train()
    for task in tasks:
        small, large = (evaluate(one, task, batch_size=size, quiet=True) for size in (3, 40))
        assert one.training
        np.testing.assert_allclose(small.predictions, large.predictions, atol=1e-5)
        np.testing.assert_allclose(small.losses, large.losses, atol=1e-5)
        assert list(small.table()["example"]) == list(range(len(task.split("validation"))))


def test_schedule_is_transformers_own() -> None:
    for warmup, steps in ((0.1, 37), (0.0, 5), (0.06, 100), (1.0, 4)):
        ours, theirs = (torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0) for _ in range(2))
        schedule = build_schedule(ours, steps, Train(warmup=warmup))
        reference = get_linear_schedule_with_warmup(theirs, int(np.ceil(warmup * steps)), steps)
        for _ in range(steps):
            assert schedule.get_last_lr() == pytest.approx(reference.get_last_lr())
            ours.step(), theirs.step(), schedule.step(), reference.step()


def test_loss_balance_is_sum_of_means_over_own_mean() -> None:
    balance = LossBalance(2, 3, torch.device("cpu"))
    history: list[list[float]] = [[], []]
    for task, loss in [(0, 4.0), (1, 1.0), (0, 2.0), (0, 3.0), (0, 7.0), (1, 3.0)]:
        history[task].append(loss)
        means = [np.mean(values[-3:]) if values else 0.0 for values in history]
        assert float(balance.scale(task, torch.tensor(loss))) == pytest.approx(sum(means) / means[task])
    copy = LossBalance(2, 3, torch.device("cpu"))
    copy.load_state_dict(balance.state_dict())
    assert float(copy.scale(1, torch.tensor(2.0))) == float(balance.scale(1, torch.tensor(2.0)))


def test_early_stopping_keeps_the_best_weights(monkeypatch) -> None:
    """Of evaluations with given scores the first of the best by the mean over tasks, one of whose metrics is the lower the better."""
    scores = {
        "mood": [0.9, 0.2, 0.6, 0.5, 0.6, 0.9],
        "warmth": [5.0, 3.0, 2.0, 2.5, 2.0, 9.0],
    }  # means: -2.05, -1.4, -0.7, -1, -0.7
    seen = []

    def scripted(model, task, split, **options):
        if task.name == "mood":
            seen.append(toy.weights(model))
        return SimpleNamespace(score=scores[task.name][len(seen) - 1])

    monkeypatch.setattr(loop, "evaluate", scripted)
    tasks = [toy.task("mood", 40), toy.task("warmth", 24)]
    metric = METRICS[tasks[1].metric]._replace(higher_is_better=False)
    monkeypatch.setattr(METRICS, "_entries", {**METRICS, tasks[1].metric: metric})
    stopping = {"evaluate": "epoch", "early_stopping": 2, "stopping_split": "validation"}
    run = trained(tasks, {"epochs": 9, **stopping})
    assert len(seen) == 5  # the last two were no better
    toy.assert_identical(toy.weights(run.model), seen[2])
    assert not any(
        torch.equal(was["decoders.mood.out.weight"], seen[2]["decoders.mood.out.weight"]) for was in seen[3:]
    )


@pytest.mark.parametrize("family", ["gpt2", "llama", "deberta-v2"])
def test_other_families_train(family: str) -> None:
    tasks = [toy.task("mood", 20), toy.task("warmth", 20)]
    assert np.isfinite(trained(tasks, {"epochs": 1}, family=family).losses).all()


def test_bfloat16_trains_close_to_float32() -> None:
    tasks = [toy.task("mood", 40)]
    half, full = trained(tasks, {"precision": "bf16"}), trained(tasks)
    np.testing.assert_allclose(half.losses, full.losses, rtol=0.05)
    assert not np.array_equal(half.losses, full.losses)
    assert next(half.model.parameters()).dtype == torch.float32


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"epochs": 0}, "epochs: given 0 .* greater than or equal to 1"),
        ({"sampling": "anealed"}, "did you mean 'annealed'"),
        (
            {"warmup": 10},
            r"warmup: given 10; must be less than or equal to 1; a fraction is between 0 and 1 \(10 % is 0.1\)",
        ),
        ({"epochs": "3"}, r'epochs: given "3" \(text\); must be a valid integer'),
        ({"epochs": True}, "epochs: given true .* must be a valid integer"),
        ({"learning_rate": True}, "learning_rate: given true .* must be a valid number"),
        ({"device": "gpu"}, "device: given .* must be 'cpu' or 'cuda'; did you mean 'cuda'"),
        ({"learning_rat": 1}, "did you mean 'learning_rate'"),
        ({"early_stopping": 2}, "evaluate='epoch'"),
        ({"precision": "int8"}, "must be 'no', 'bf16' or 'fp16'"),
    ],
)
def test_wrong_settings_say_what_is_wrong(wrong, said) -> None:
    with pytest.raises(HeadwiseError, match=said):
        Train().with_changes(**wrong)


def test_trackers_get_losses_and_scores() -> None:
    tasks = [toy.task("mood", 40), toy.task("warmth", 24)]
    run = TrainingRun(toy.model(tasks), tasks, settings=toy.settings(log_every=4, evaluate="epoch"))

    class Tracker:
        name = "stand-in"

        def __init__(self) -> None:
            self.seen, self.done = [], False

        def log(self, values: dict[str, float], step: int) -> None:
            self.seen.append((step, values))

        def finish(self) -> None:
            self.done = True

    tracker = Tracker()
    run.accelerator.trackers, run.settings = [tracker], run.settings.with_changes(trackers=("stand-in",))
    run.train()
    assert tracker.done
    losses = [(step, values) for step, values in tracker.seen if "learning_rate" in values]
    assert [step for step, _ in losses] == [4, 8, 10]
    first = run.losses[:4][run.plan[:4] == 0].mean()
    assert losses[0][1]["loss/mood"] == pytest.approx(first)
    assert {name for _, values in tracker.seen for name in values} >= {
        "score/mood",
        "score/warmth",
        "loss/warmth",
    }
    with pytest.raises(HeadwiseError, match="tracker 'nothing' is unknown; accelerate has"):
        TrainingRun(toy.model(tasks), tasks, settings=toy.settings(trackers=("nothing",)))


def test_long_texts_are_cut_to_what_the_model_reads() -> None:
    long = [(" ".join(toy.WORDS * 5), "yes"), (" ".join(toy.WORDS[::-1] * 5), "no")] * 4
    task = Task("long", data={"train": long, "validation": long}, kind="classes")
    run = trained([task])  # 100 words, 64 positions
    assert run.max_length == 64
    assert len(evaluate(run.model, task, quiet=True).predictions) == 8


def test_one_program_may_train_here_and_there() -> None:
    """accelerate itself keeps the first device and precision for as long as the program runs."""
    wanted = [("cpu", "no"), (None, "no"), ("cpu", "bf16"), (None, "no")]
    for device, precision in wanted:
        one = make_accelerator(toy.settings(device=device, precision=precision), None)
        assert (one.state._cpu, one.mixed_precision) == (device == "cpu", precision)
        assert one.device.type == ("cuda" if device is None and torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize(("device", "current"), [("cuda", 3), ("cuda:1", 1)])
def test_batches_are_made_for_the_gpu_that_trains(device, current, monkeypatch) -> None:
    """torch takes no "cuda" without a number for a thread's device, and accelerate gives one process just that."""
    asked: list[int] = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", asked.append)
    assert not list(data.steps(np.array([], dtype=np.int64), [], 0, device=torch.device(device)))
    assert asked == [current]
