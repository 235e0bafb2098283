"""Two processes under torchrun equal one with the same global batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import distributed_script
import numpy as np
import pytest
import torch
import toy
from safetensors.torch import load_file

import headwise
from headwise.training import Run, TrainingResult, evaluate

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("torchrun")
    paths = os.pathsep.join([str(HERE), str(Path(headwise.__file__).parent.parent)])
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "0"]
    command += ["--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0", str(HERE / "distributed_script.py"), str(folder)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("name", distributed_script.CASES)
def test_two_processes_equal_one_with_the_same_global_batch(two_processes: Path, name: str) -> None:
    record = json.loads((two_processes / f"{name}.json").read_text())
    assert record["world"] == 2
    make, changes = distributed_script.CASES[name]
    tasks = distributed_script.tasks()
    alone = Run(toy.model(tasks, dropout=0.0), tasks, make(), toy.settings(**changes))
    alone.train()
    np.testing.assert_allclose(record["losses"], alone.losses, atol=1e-5)
    found = load_file(two_processes / f"{name}.safetensors")
    for key, value in toy.weights(alone.model).items():
        if "key.bias" not in key:  # its true gradient is zero: Adam amplifies rounding there
            torch.testing.assert_close(found[key], value, atol=1e-5, rtol=0, msg=lambda m, key=key: f"{key}: {m}")
    for task in tasks:
        assert record["scores"][task.name] == pytest.approx(evaluate(alone.model, task, progress=False).score, abs=1e-4)


def test_a_distributed_training_leaves_one_whole_result(two_processes: Path) -> None:
    result = TrainingResult.load(two_processes / "whole")
    assert set(result.scores["task"]) == {"mood", "warmth"}
    assert set(headwise.load(two_processes / "whole").tasks) == {"mood", "warmth"}
