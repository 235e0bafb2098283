"""Head training inside a real Hugging Face Trainer, against our loop."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import toy
from transformers import Trainer, TrainingArguments

from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.scoring import gate_gradient, top_heads
from headwise.training import TrainingRun
from headwise.training._trainer import (
    HeadTrainingCallback,
    SingleTaskBatches,
    TrainerData,
    TrainerModel,
    one_task,
)
from headwise.training.methods import ImportantHeads

TASKS = [toy.task("mood", 50), toy.task("warmth", 30)]


def trainer_for(model, folder, data, callback, accumulation=1, epochs=2):
    args = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=accumulation,
        learning_rate=1e-3,
        warmup_steps=0.1,
        max_grad_norm=0.5,
        weight_decay=0.1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
    )
    trainer = Trainer(
        TrainerModel(model), args, train_dataset=data, data_collator=data.collate, callbacks=[callback]
    )
    data.feed(trainer)
    return trainer


def choose(model, heads):
    return {
        task.name: top_heads(gate_gradient(model, task, heads=heads, quiet=True), fraction=0.3)
        for task in TASKS
    }


def test_a_trainer_run_equals_our_loop(tmp_path) -> None:
    model = toy.model(TASKS, dropout=0.0)
    heads = Heads(model.encoder)
    data = TrainerData(TASKS, model.tokenizer, batch_size=16, epochs=2)
    callback = HeadTrainingCallback(heads, lambda: choose(model, heads), delta=0.5)
    trainer = trainer_for(model, tmp_path, data, callback)
    groups = [{"params": [p for p in model.parameters() if p.requires_grad]}]
    trainer.optimizer = torch.optim.AdamW(
        groups, lr=1e-3, weight_decay=0.1
    )  # decay everywhere, as in our loop
    trainer.train()
    ours = TrainingRun(
        toy.model(TASKS, dropout=0.0),
        TASKS,
        ImportantHeads(delta=0.5),
        toy.settings(weight_decay=0.1, clip=0.5),
    )
    ours.train()
    assert callback.chosen == ours.method.heads
    for name, value in toy.weights(ours.model).items():
        if "key.bias" not in name:  # its true gradient is zero: Adam amplifies rounding there
            torch.testing.assert_close(toy.weights(model)[name], value, atol=1e-5, rtol=0, msg=name)
    assert not model._forward_pre_hooks


def test_frozen_heads_stay_bit_identical_in_a_trainer(tmp_path) -> None:
    model = toy.model(TASKS)
    heads = Heads(model.encoder)
    only = {"mood": HeadSet([(0, 1)]), "warmth": HeadSet([(1, 2)])}
    data = TrainerData(TASKS, model.tokenizer, batch_size=16, epochs=1)
    before = toy.weights(model.encoder)
    trainer_for(model, tmp_path, data, HeadTrainingCallback(heads, only, delta=1.0), epochs=1).train()
    after = toy.weights(model.encoder)
    for layer in (0, 1):
        name = f"encoder.layer.{layer}.attention.self.query.weight"
        free = {1: slice(8, 16)} if layer == 0 else {2: slice(16, 24)}
        for head in range(4):
            rows = slice(8 * head, 8 * head + 8)
            assert torch.equal(before[name][rows], after[name][rows]) == (head not in free)


def test_accumulation_windows_hold_one_task(tmp_path) -> None:
    model = toy.model(TASKS, dropout=0.0)
    heads = Heads(model.encoder)
    every = {task.name: heads.all() for task in TASKS}
    good = TrainerData(TASKS, model.tokenizer, batch_size=8, epochs=1, group=2)
    trainer_for(
        model, tmp_path, good, HeadTrainingCallback(heads, every, delta=1.0), accumulation=2, epochs=1
    ).train()
    bad = TrainerData(TASKS, model.tokenizer, batch_size=8, epochs=1, sampling="uniform")
    with pytest.raises(HeadwiseError, match="accumulates batches of"):
        trainer_for(
            model, tmp_path, bad, HeadTrainingCallback(heads, every, delta=1.0), accumulation=2, epochs=1
        ).train()


def test_mixed_batches_are_refused() -> None:
    data = TrainerData(TASKS, toy.tokenizer(), batch_size=8)
    with pytest.raises(HeadwiseError, match="mixes the tasks"):
        data.collate([data[0], data[60]])
    with pytest.raises(HeadwiseError, match="mixes the tasks"):
        one_task(torch.tensor([0, 0, 1]))
    assert one_task(["a", "a"]) == "a"
    callback = HeadTrainingCallback(Heads(toy.encoder()), {})
    with pytest.raises(HeadwiseError, match="has no 'task'"):
        callback._before_forward(torch.nn.Linear(1, 1).train(), (), {})


def test_batches_of_one_task_cover_all_rows_before_any_repeats() -> None:
    task_of = ["a"] * 20 + ["b"] * 12
    sampler = SingleTaskBatches(task_of, 5, epochs=3, group=2, sampling="pooled", seed=1)
    seen: dict[str, list[int]] = {"a": [], "b": []}
    for epoch in range(3):
        found = list(sampler)
        assert len(found) == len(sampler)
        for one, other in zip(found[::2], found[1::2], strict=True):
            tasks = {task_of[i] for i in one + other}
            assert len(tasks) == 1
            seen[tasks.pop()] += one + other
        sampler.set_epoch(epoch + 1)
    for name, rows in (("a", 20), ("b", 12)):
        whole = len(seen[name]) // rows
        for start in range(whole):
            assert len(set(seen[name][start * rows : (start + 1) * rows])) == rows
    with pytest.raises(HeadwiseError, match="made for 3 epochs"):
        next(iter(sampler))
    assert np.array_equal(
        sampler.plan, SingleTaskBatches(task_of, 5, epochs=3, group=2, sampling="pooled", seed=1).plan
    )


def test_a_resumed_trainer_keeps_the_heads_it_chose(tmp_path) -> None:
    heads = Heads(toy.encoder())
    sets = {"mood": HeadSet([(0, 1)])}
    optimizer = torch.optim.SGD(heads.model.parameters(), lr=0.1)
    args = SimpleNamespace(output_dir=str(tmp_path))
    begun = SimpleNamespace(global_step=5, max_steps=10, is_world_process_zero=True)
    first = HeadTrainingCallback(heads, sets, delta=0.5)
    first.on_train_begin(args, begun, None, model=heads.model, optimizer=optimizer)
    first.on_step_begin(args, begun, None)

    def never() -> dict[str, HeadSet]:
        raise AssertionError("the heads were chosen before the interruption")

    second = HeadTrainingCallback(heads, never, delta=0.5)
    second.on_train_begin(
        args, SimpleNamespace(global_step=7, max_steps=10), None, model=heads.model, optimizer=optimizer
    )
    assert second.chosen == sets
    for callback in (first, second):
        callback.on_train_end(args, begun, None)
    assert not heads.model._forward_pre_hooks
