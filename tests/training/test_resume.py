"""A training that was interrupted, however it was, ends with the same bits as one that was not."""

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import accelerate  # noqa: F401  imported here once, so that the processes that are killed start quickly
import numpy as np
import pytest
import toy
from safetensors.torch import load_file, save_file

from headwise.errors import HeadwiseError
from headwise.store._timing import timed_attempts
from headwise.training import TrainingRun, train
from headwise.training._interrupts import stops_noted
from headwise.training.methods import Houlsby, ImportantHeads, Method, PruneLeast

TASKS = [toy.task("mood", 60), toy.task("warmth", 40)]
toy.model(TASKS)  # the same for what transformers imports when a model is first made


class Stop(Exception):
    pass


def run_in(folder, method, stop_at=None, **changes):
    """A run with dropout that saves after every step; stops before step `stop_at`."""

    class Stopping(type(method)):
        def around_step(self, run, task):
            if run.step == stop_at:
                raise Stop
            return super().around_step(run, task)

    method.__class__ = Stopping
    options = {"checkpoint_minutes": 0, "weight_decay": 0.1, "clip": 1.0, **changes}
    run = TrainingRun(toy.model(TASKS, dropout=0.2), TASKS, method, toy.settings(**options), folder=folder)
    run.train()
    return run


MAKE = {
    "multi-task": Method,
    "iat": lambda: ImportantHeads(delta=0.5),
    "prune": lambda: PruneLeast(delta=0.5),
    "houlsby": lambda: Houlsby(size=4),
}


@pytest.mark.parametrize("name", MAKE)
def test_stopped_anywhere_ends_bit_identical(name, tmp_path) -> None:
    make = MAKE[name]
    whole = run_in(None, make(), balance=3)
    steps = len(whole.plan)
    for stop_at in (2, steps // 2, steps // 2 + 1, steps - 1):
        with pytest.raises(Stop):
            run_in(tmp_path, make(), stop_at, balance=3)
    parts = run_in(tmp_path, make(), balance=3)
    toy.assert_identical(toy.weights(parts.model), toy.weights(whole.model))
    assert np.array_equal(parts.losses, whole.losses)


def test_early_stopping_survives_an_interruption(tmp_path) -> None:
    options = {"epochs": 4, "evaluate": "epoch", "early_stopping": 2, "learning_rate": 1e-2}
    whole = run_in(None, Method(), **options)
    with pytest.raises(Stop):
        run_in(tmp_path, Method(), 15, **options)
    parts = run_in(tmp_path, Method(), **options)
    assert parts.evaluations == whole.evaluations
    toy.assert_identical(toy.weights(parts.model), toy.weights(whole.model))


def _to_the_end(folder: str) -> None:
    run = run_in(folder, ImportantHeads(delta=0.4), epochs=3)
    save_file(toy.weights(run.model), f"{folder}/final.aside")
    os.replace(f"{folder}/final.aside", f"{folder}/final.safetensors")


def test_killed_at_random_moments_ends_bit_identical(tmp_path) -> None:
    """Kill -9 at any time: in a step, while scoring, while a checkpoint is being written."""
    draw = np.random.default_rng(0)
    server = multiprocessing.get_context(
        "forkserver"
    )  # children fork from a process that has done its imports and nothing else
    server.set_forkserver_preload(["test_resume"])
    kills = 0
    for _ in range(60):
        child = server.Process(target=_to_the_end, args=(str(tmp_path),))
        child.start()
        if kills < 3:
            # the first kills come once the training is under way; how far it is by then is up to the machine
            deadline = time.monotonic() + 20
            begun = len(list(tmp_path.glob("checkpoint/*")))
            while (
                not begun
                and child.is_alive()
                and time.monotonic() < deadline
                and not list(tmp_path.glob("checkpoint/*"))
            ):
                time.sleep(0.01)
            time.sleep(float(draw.uniform(0.02, 0.4)))
            if child.is_alive():
                os.kill(child.pid, signal.SIGKILL)
                kills += 1
        child.join()
        if (tmp_path / "final.safetensors").is_file():
            break
    assert kills >= 1
    whole = run_in(None, ImportantHeads(delta=0.4), epochs=3)
    toy.assert_identical(load_file(tmp_path / "final.safetensors"), toy.weights(whole.model))


def test_methods_that_share_a_beginning_branch_from_it_bit_identically(tmp_path) -> None:
    steps = len(run_in(None, Method()).plan)
    branch = ImportantHeads(delta=0.5).branch_step(steps)
    options = toy.settings(weight_decay=0.1, clip=1.0)
    plain = TrainingRun(
        toy.model(TASKS, dropout=0.2), TASKS, Method(), options, branches={branch: tmp_path / "shared"}
    )
    plain.train()
    for method in (ImportantHeads(delta=0.5), PruneLeast(delta=0.5)):
        alone = TrainingRun(toy.model(TASKS, dropout=0.2), TASKS, type(method)(delta=0.5), options)
        alone.train()
        branched = TrainingRun(
            toy.model(TASKS, dropout=0.2, seed=9), TASKS, method, options, start=tmp_path / "shared"
        )
        branched.train()
        toy.assert_identical(toy.weights(branched.model), toy.weights(alone.model))


def test_a_checkpoint_of_another_training_is_refused(tmp_path) -> None:
    with pytest.raises(Stop):
        run_in(tmp_path, Method(), 3)
    with pytest.raises(HeadwiseError, match="steps, this one has"):
        run_in(tmp_path, Method(), epochs=3)
    with pytest.raises(HeadwiseError, match="no checkpoint"):
        TrainingRun(toy.model(TASKS), TASKS, Method(), toy.settings(), start=tmp_path / "nowhere").train()


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_finishes_the_step_and_saves_it(which, tmp_path) -> None:
    class Interrupted(Method):
        def around_step(self, run, task):
            if run.step == 3:
                os.kill(os.getpid(), which)
            return super().around_step(run, task)

    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with pytest.raises(KeyboardInterrupt):
            run_in(tmp_path, Interrupted(), checkpoint_minutes=60)
        assert signal.getsignal(which) is signal.default_int_handler
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    asked = []

    class Asking(Method):
        def around_step(self, run, task):
            asked.append(run.step)
            return super().around_step(run, task)

    parts, whole = run_in(tmp_path, Asking()), run_in(None, Method())
    assert asked[0] == 4
    toy.assert_identical(toy.weights(parts.model), toy.weights(whole.model))


def test_a_second_ctrl_c_does_not_wait(tmp_path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), stops_noted() as asked:  # noqa: PT012
            os.kill(os.getpid(), signal.SIGINT)
            assert asked()
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("the second one was only noted")
    finally:
        signal.signal(signal.SIGINT, before)


def hold(noted: Path) -> None:
    with timed_attempts(noted):
        time.sleep(60)


def test_seconds_count_every_attempt(tmp_path: Path) -> None:
    """An attempt that fails after a while, and one that is killed, are part of what the training took."""

    class Slow(Method):
        stops = True

        def prepare(self, run: TrainingRun) -> None:
            time.sleep(0.6)
            if self.stops:
                raise RuntimeError("the power went")

    options: Any = {
        "tokenizer": toy.tokenizer(),
        "out": tmp_path / "run",
        "epochs": 1,
        "quiet": True,
        "device": "cpu",
    }
    with pytest.raises(RuntimeError, match="the power went"):
        train(toy.encoder(), [toy.task()], Slow(), **options)
    noted = tmp_path / "run" / "seconds.json"
    first = json.loads(noted.read_text())
    process = multiprocessing.get_context("fork").Process(target=hold, args=(noted,))
    process.start()
    deadline = time.monotonic() + 20
    while (
        len(json.loads(noted.read_text())) == 1 and time.monotonic() < deadline
    ):  # the second attempt is noted beside the first
        time.sleep(0.05)
    process.kill()
    process.join()
    Slow.stops = False
    spent = train(toy.encoder(), [toy.task()], Slow(), **options).description
    assert [attempt >= 0.6 for attempt in spent["attempts"]] == [True] * 3
    assert spent["attempts"][0] == first[0]
    assert spent["seconds"] == pytest.approx(sum(spent["attempts"]))
    assert (
        json.loads((tmp_path / "run" / "training.json").read_text())["description"]["seconds"]
        == spent["seconds"]
    )
    assert not noted.exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_live_model_is_left_in_its_own_precision(error) -> None:
    """Ctrl-C in a notebook: what is computed afterwards in float32 was computed in bf16."""

    class Failing(Method):
        def around_step(self, run, task):
            if run.step == 2:
                raise error
            return super().around_step(run, task)

    model = toy.model(TASKS)
    forward = model.forward
    with pytest.raises(error):
        TrainingRun(model, TASKS, Failing(), toy.settings(precision="bf16")).train()
    assert model.forward == forward
    assert not model.training
