"""Trainings whose losses are no numbers stop, whatever the method and however their steps run; none ends with weights that are NaN."""

import json
import re
from typing import Any

import numpy as np
import pytest
import torch
import toy
from tape import taped
from transformers import Trainer, TrainingArguments

import headwise as hw
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.models import MultiTaskModel
from headwise.probing._finetuning import EmbeddedModel
from headwise.training import METHODS, TrainingRun, _fewshot as fewshot
from headwise.training._fewshot import few_shot
from headwise.training._trainer import HeadTrainingCallback, TrainerData, TrainerModel
from headwise.training.methods import Method, make_method

TASKS = [toy.task("mood", 40), toy.task("animal", 40)]  # six steps an epoch
OPTIONS: dict[str, dict[str, Any]] = {
    "distil": {"teacher": toy.model(TASKS, seed=1)},
    "houlsby": {"size": 4},
    "pals": {"size": 8, "n_heads": 2},
    "ticket-share": {"ratios": (0.5,)},
}
AT = 4  # the step before which weights become NaN


def poisoned(run: TrainingRun, at: int = AT) -> TrainingRun:
    """A training whose embeddings become NaN before one step."""
    ordinary = run.optimizer_step

    def one(step: Any) -> Any:
        if run.step == at:
            with torch.no_grad():
                next(run.model.encoder.parameters()).fill_(torch.nan)
        return ordinary(step)

    run.optimizer_step = one  # type: ignore[method-assign]
    return run


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"single-task"}))
def test_every_method_stops_at_the_next_reading_and_names_the_step(name: str) -> None:
    method = make_method(name, **OPTIONS.get(name, {}))
    run = poisoned(TrainingRun(toy.model(TASKS), TASKS, method, toy.settings(log_every=3)))
    rate = run.schedule.base_lrs[0] * run.schedule.lr_lambdas[0](AT)
    task = run.names[run.plan[AT]]
    with pytest.raises(
        HeadwiseError, match=rf"the loss of step {AT} \(task '{task}', learning rate {rate:.3g}\) is nan"
    ) as error:
        run.train()
    assert "lower the learning rate" in str(error.value)
    branch = run.method.branch_step(len(run.plan))
    assert run.step == (5 if branch == 5 else 6)  # losses are read three steps at a time, not in every step
    assert np.isfinite(run.losses[:AT]).all()
    assert np.isnan(run.losses[AT])
    assert not run.model.training


def test_captured_steps_stop_like_ordinary_ones() -> None:
    said = []
    for graphs in (True, False):
        run = TrainingRun(
            toy.model(TASKS, dropout=0.0),
            TASKS,
            settings=toy.settings(learning_rate=1e30, epochs=6, graphs=graphs),
        )
        with taped(), pytest.raises(HeadwiseError, match=r"has diverged: the loss of step \d+") as error:
            run.train()
        said.append(str(error.value))
    assert said[0] == said[1]
    with taped():
        run = TrainingRun(toy.model(TASKS), TASKS, settings=toy.settings(epochs=6))
        run.train()
    assert run.graphs is not None
    assert run.graphs.replayed  # tapes do run such steps


def test_losses_are_endured_as_often_as_asked() -> None:
    """Losses alone are NaN here, as where half precision overflows on some texts: the weights stay as they are."""

    class Spoilt(Method):
        def around_step(self, run: Any, task: str) -> Any:
            run.spoilt = run.step in (1, 2, 3, 6, 7)
            return super().around_step(run, task)

    def ran(endured: int) -> TrainingRun:
        run = TrainingRun(
            toy.model(TASKS), TASKS, Spoilt(), toy.settings(log_every=2, nonfinite_steps=endured)
        )
        ordinary = run.optimizer_step
        run.optimizer_step = lambda step: ordinary(step) * (torch.inf if run.spoilt else 1.0)  # type: ignore[method-assign, attr-defined]
        run.train()
        return run

    run = ran(4)
    assert np.flatnonzero(~np.isfinite(run.losses)).tolist() == [1, 2, 3, 6, 7]
    for endured, said in (
        (3, "the loss of step 1 .* is inf, as are the 2 after it"),
        (1, r"the loss of step 1 .* is inf; lower"),
    ):
        with pytest.raises(HeadwiseError, match=said):
            ran(endured)
    with pytest.raises(HeadwiseError, match="nonfinite_steps: given 0"):
        toy.settings(nonfinite_steps=0)


def test_nothing_diverged_is_scored_evaluated_or_kept(tmp_path) -> None:
    """The reading comes before the branch, the evaluation and the checkpoint, however rarely losses are recorded."""
    for changes, method, at in (
        ({"evaluate": "epoch"}, Method(), AT),
        ({}, make_method("iat", delta=0.5), 3),
    ):
        run = TrainingRun(toy.model(TASKS), TASKS, method, toy.settings(log_every=1000, **changes))
        with pytest.raises(HeadwiseError, match=f"the loss of step {at} "):
            poisoned(run, at).train()
        assert run.step == 6
        assert run.evaluations == []
    run = TrainingRun(
        toy.model(TASKS), TASKS, settings=toy.settings(log_every=1000, checkpoint_minutes=0), folder=tmp_path
    )
    with pytest.raises(HeadwiseError, match=f"the loss of step {AT} "):
        poisoned(run).train()
    again = TrainingRun(toy.model(TASKS), TASKS, settings=toy.settings(), folder=tmp_path)
    again.train()  # from a checkpoint of before
    assert again.began == AT


def test_weights_that_the_last_step_makes_nan_end_with_an_error(tmp_path) -> None:
    class Last(Method):
        def around_step(self, run: Any, task: str) -> Any:
            if run.step == len(run.plan) - 1:
                ordinary = run._stepper.step
                decoder = run.model.decoders[task]

                def step() -> None:
                    ordinary()
                    with torch.no_grad():
                        decoder.out.bias.fill_(torch.nan)

                run._stepper.step = step
            return super().around_step(run, task)

    with pytest.raises(HeadwiseError, match=r"decoders\.\w+\.out\.bias of this MultiTaskModel holds NaN"):
        TrainingRun(toy.model(TASKS), TASKS, Last(), toy.settings()).train()
    with pytest.raises(HeadwiseError, match=r"decoders\.\w+\.out\.bias of this MultiTaskModel holds NaN"):
        hw.train(toy.model(TASKS), TASKS, Last(), **toy.settings(out=tmp_path / "run").given())
    assert not (tmp_path / "run" / "headwise.json").is_file()


def test_losses_are_all_there_after_an_early_stop() -> None:
    """Trackers get them, too."""
    changes = {
        "epochs": 9,
        "evaluate": "epoch",
        "early_stopping": 1,
        "stopping_split": "validation",
        "log_every": 1000,
    }
    run = TrainingRun(toy.model(TASKS), TASKS, settings=toy.settings(learning_rate=1e-6, **changes))
    logged: list[int] = []
    run.settings = run.settings.with_changes(trackers=("stand-in",))
    run.accelerator.log = lambda values, step: logged.append(step) if "learning_rate" in values else None
    run.train()
    assert run.step < len(run.plan)
    assert np.isfinite(run.losses[: run.step]).all()
    assert logged == [run.step]


def test_fine_tuning_from_heads_stops_too() -> None:
    model = EmbeddedModel(toy.encoder(), toy.tokenizer(), TASKS, HeadSet([(0, 1), (1, 2)]))
    with pytest.raises(HeadwiseError, match=r"the loss of step \d+ \(task '\w+', learning rate .*\) is nan"):
        TrainingRun(model, TASKS, settings=toy.settings(learning_rate=1e30)).train()


@pytest.mark.parametrize("tuning", ["full", "lora", "decoder"])
@pytest.mark.parametrize("copies", [1, 2])
def test_few_shot_transfer_stops_too(tuning: str, copies: int) -> None:
    model, task = MultiTaskModel(toy.encoder(), toy.tokenizer(), [], pooling="mean"), TASKS[0]
    settings: Any = {"epochs": 4, "batch_size": 4, "tuning": tuning, "copies": copies, "quiet": True}
    said = r"the loss of step \d+ \(task 'mood', 8 steps, seed 5, learning rate .*\) is (nan|inf)"
    with pytest.raises(HeadwiseError, match=said):
        few_shot(model, task, 8, [5, 6], learning_rate=1e38, **settings)


def test_few_shot_transfer_names_the_seed_that_diverged(monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = fewshot._stacked_modules

    def parts(*args: Any) -> Any:
        encoder, decoder = ordinary(*args)
        with torch.no_grad():
            next(iter(decoder.trained()))[1].fill_(torch.nan)
        return encoder, decoder

    monkeypatch.setattr(fewshot, "_stacked_modules", parts)
    model = MultiTaskModel(toy.encoder(), toy.tokenizer(), [], pooling="mean")
    with pytest.raises(HeadwiseError, match=r"step 0 \(task 'mood', 2 steps, seed 9, .*\) is nan"):
        few_shot(model, TASKS[0], 4, [7, 9, 8], epochs=2, copies=3, quiet=True)


def trainer(
    folder: Any, callback: HeadTrainingCallback, model: Any, data: TrainerData, **changes: Any
) -> Trainer:
    settings = {
        "num_train_epochs": 2,
        "learning_rate": 1e30,
        "max_grad_norm": 0.0,
        "save_strategy": "no",
        **changes,
    }
    args = TrainingArguments(
        output_dir=str(folder),
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
        **settings,
    )
    made = Trainer(
        TrainerModel(model), args, train_dataset=data, data_collator=data.collate, callbacks=[callback]
    )
    data.feed(made)
    return made


@pytest.mark.parametrize("endured", [1, 3])
def test_a_trainer_stops_although_its_log_shows_ordinary_losses(endured: int, tmp_path) -> None:
    model = toy.model(TASKS)
    data = TrainerData(TASKS, model.tokenizer, batch_size=16, epochs=2)
    sets = {task.name: HeadSet([(0, 1)]) for task in TASKS}
    callback = HeadTrainingCallback(Heads(model.encoder), sets, delta=0.5, nonfinite_steps=endured)
    made = trainer(tmp_path, callback, model, data, logging_steps=1000)
    several = "" if endured == 1 else ", as are the 2 after it"
    with pytest.raises(
        HeadwiseError, match=rf"the loss of step 1 \(task '\w+', learning rate .*\) is nan{several}"
    ):
        made.train()
    assert not made.model._forward_hooks
    assert not made.model._forward_pre_hooks


def test_a_trainer_keeps_no_checkpoint_of_a_diverged_training(tmp_path) -> None:
    model = toy.model(TASKS)
    data = TrainerData(TASKS, model.tokenizer, batch_size=16, epochs=2)
    callback = HeadTrainingCallback(Heads(model.encoder), {task.name: HeadSet([(0, 1)]) for task in TASKS})
    made = trainer(tmp_path, callback, model, data, save_strategy="steps", save_steps=1, logging_steps=1000)
    with pytest.raises(HeadwiseError, match="the loss of step 1 "):
        made.train()
    assert sorted(folder.name for folder in tmp_path.glob("checkpoint-*")) == ["checkpoint-1"]


def test_a_trainer_does_not_end_with_weights_that_are_nan(tmp_path) -> None:
    model = toy.model(TASKS)
    data = TrainerData(TASKS, model.tokenizer, batch_size=16, epochs=1)

    class Spoiling(HeadTrainingCallback):
        def on_train_end(self, *args: Any, **kwargs: Any) -> None:
            with torch.no_grad():
                model.decoders["mood"].out.bias.fill_(torch.nan)
            super().on_train_end(*args, **kwargs)

    callback = Spoiling(Heads(model.encoder), {task.name: HeadSet([(0, 1)]) for task in TASKS})
    with pytest.raises(HeadwiseError, match=r"decoders\.mood\.out\.bias of this TrainerModel holds NaN"):
        trainer(tmp_path, callback, model, data, num_train_epochs=1, learning_rate=1e-3).train()
    with pytest.raises(HeadwiseError, match="nonfinite_steps is 0"):
        HeadTrainingCallback(Heads(model.encoder), {}, nonfinite_steps=0)


def test_the_setting_is_on_the_command_line_and_decides_nothing(tmp_path) -> None:
    settings = toy.settings(nonfinite_steps=5)
    assert "nonfinite_steps" not in settings.decides()
    made = toy.model(TASKS)
    hw.train(made, TASKS, "multi-task", **toy.settings(out=tmp_path / "run").given())
    text = (tmp_path / "run" / "training.json").read_text()
    assert "nonfinite_steps" not in json.loads(text)["description"]["settings"]
    assert not re.search("NaN|Infinity", text)
