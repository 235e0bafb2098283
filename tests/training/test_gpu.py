"""The same results on a GPU as on the CPU, for what has a path of its own there: feeding, resuming, scores, lesions, probes, few shots.

Skipped where there is no GPU; run it after changes to any of these: pytest tests/training/test_gpu.py
"""

import copy

import numpy as np
import pytest
import torch
import toy

from headwise import grammar
from headwise.heads import HeadSet
from headwise.lesions import dissociate, lesion
from headwise.probing import probe, profile
from headwise.scoring import ESTIMATORS, score
from headwise.training import TrainingRun
from headwise.training._fewshot import few_shot
from headwise.training.methods import ImportantHeads, Method
from words import initial_tokenizer

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TASKS = [toy.task("mood", 60), toy.task("animal", 40)]


def trained(device, method=None, folder=None, **changes):
    settings = toy.settings(device=device, **changes)
    run = TrainingRun(toy.model(TASKS, dropout=0.0), TASKS, method or Method(), settings, folder=folder)
    run.train()
    return run


@gpu
@pytest.mark.parametrize("make", [Method, lambda: ImportantHeads(delta=0.5)])
def test_training(make) -> None:
    on_gpu, on_cpu = trained(None, make()), trained("cpu", make())
    assert on_gpu.model.device.type == "cuda"
    np.testing.assert_allclose(on_gpu.losses, on_cpu.losses, rtol=1e-3)
    assert np.isfinite(trained(None, make(), precision="bf16").losses).all()


@gpu
def test_resuming(tmp_path) -> None:
    class Stop(Exception):
        pass

    class Stopping(Method):
        def around_step(self, run, task):
            if run.step == 4:
                raise Stop
            return super().around_step(run, task)

    whole = trained(None)
    with pytest.raises(Stop):
        trained(None, Stopping(), tmp_path, checkpoint_minutes=0)
    parts = trained(None, folder=tmp_path, checkpoint_minutes=0)
    np.testing.assert_allclose(parts.losses, whole.losses, rtol=1e-4)


@gpu
@pytest.mark.parametrize("method", [name for name in ESTIMATORS if "patching" not in name])
def test_scores(method) -> None:
    model = trained("cpu").model.eval()
    learnt = method in ("subset", "l0", "causal-gating")
    found = [
        score(
            copy.deepcopy(model).to(device),
            TASKS[0],
            method=method,
            quiet=True,
            **({"steps": 5} if learnt else {}),
        )
        for device in ("cpu", "cuda")
    ]
    assert np.isfinite(found[1]).all()
    if not learnt:  # those draw their gates on the device
        np.testing.assert_allclose(found[1], found[0], rtol=2e-2, atol=1e-3 * float(abs(found[0]).max()))


@gpu
def test_lesions() -> None:
    model = trained("cpu").model.eval()
    tables = [
        dissociate(copy.deepcopy(model).to(d), TASKS, random_draws=2, quiet=True).table()
        for d in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(
        tables[0].to_numpy(float), tables[1].to_numpy(float), atol=2.0
    )  # an answer on the edge may turn


@gpu
def test_every_example_of_a_lesion() -> None:
    model = trained("cpu").model.eval()
    sets = {"first": HeadSet([(0, 0), (1, 2)]), "second": HeadSet([(0, 3)])}
    here, there = (lesion(copy.deepcopy(model).to(d), TASKS, sets, quiet=True).tasks for d in ("cpu", "cuda"))
    for name in here:
        np.testing.assert_allclose(there[name].losses, here[name].losses, rtol=1e-3, atol=1e-5)
        sure = here[name].losses < 0.6  # of two classes; at ln 2 an answer may turn
        assert (there[name].predictions == here[name].predictions)[sure].all()


@gpu
def test_probes() -> None:
    tasks = [toy.task("mood", 200), toy.task("warmth", 200)]
    encoder = toy.encoder(dropout=0.0).eval()
    options = {"tokenizer": toy.tokenizer(), "controls": (), "quiet": True}
    found = [
        probe(copy.deepcopy(encoder).to(device), tasks, device=device, **options).scores
        for device in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(found[1], found[0], atol=0.03)


@gpu
@pytest.mark.parametrize("layer", ["pos", "con", "dep", "srl"])
def test_parameter_free_probes(layer) -> None:
    (task,) = grammar.tasks([layer], size=64, held_out=16)
    encoder = toy.encoder(dropout=0.0).eval()
    options = {"tokenizer": initial_tokenizer(25), "quiet": True}
    found = [profile(copy.deepcopy(encoder).to(device), task, **options) for device in ("cpu", "cuda")]
    np.testing.assert_allclose(found[1].heads, found[0].heads, atol=0.05)
    assert list(found[1].summary["subject"]) == list(found[0].summary["subject"])


@gpu
def test_few_shots() -> None:
    model = trained("cpu").model
    settings = {"epochs": 2}
    found = [
        few_shot(copy.deepcopy(model).to(d), TASKS[1], 4, range(4), **settings, quiet=True)
        for d in ("cpu", "cuda")
    ]
    for name in found[0].data_vars:
        assert found[1][name].shape == found[0][name].shape
