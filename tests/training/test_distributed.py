"""Two processes under torchrun equal one with the same global batch."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import distributed_script
import numpy as np
import pandas as pd
import pytest
import torch
import toy
from accelerate.state import AcceleratorState
from safetensors.torch import load_file
from typer.testing import CliRunner

import headwise
from headwise.cli import app
from headwise.training import TrainingResult, TrainingRun, evaluate

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("torchrun")
    paths = os.pathsep.join([str(HERE), str(Path(headwise.__file__).parent.parent)])
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "0"]
    command += [
        "--rdzv_backend",
        "c10d",
        "--rdzv_endpoint",
        "localhost:0",
        str(HERE / "distributed_script.py"),
        str(folder),
    ]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("name", distributed_script.CASES)
def test_two_processes_equal_one_with_the_same_global_batch(two_processes: Path, name: str) -> None:
    record = json.loads((two_processes / f"{name}.json").read_text())
    assert record["world"] == 2
    make, changes = distributed_script.CASES[name]
    tasks = distributed_script.tasks()
    alone = TrainingRun(toy.model(tasks, dropout=0.0), tasks, make(), toy.settings(**changes))
    alone.train()
    np.testing.assert_allclose(record["losses"], alone.losses, atol=1e-5)
    found = load_file(two_processes / f"{name}.safetensors")
    for key, value in toy.weights(alone.model).items():
        if "key.bias" not in key:  # its true gradient is zero: Adam amplifies rounding there
            torch.testing.assert_close(
                found[key], value, atol=1e-5, rtol=0, msg=lambda m, key=key: f"{key}: {m}"
            )
    for task in tasks:
        assert record["scores"][task.name] == pytest.approx(
            evaluate(alone.model, task, quiet=True).score, abs=1e-4
        )


def test_a_distributed_training_leaves_one_whole_result(two_processes: Path) -> None:
    result = TrainingResult.load(two_processes / "whole")
    assert set(result.scores["task"]) == {"mood", "warmth"}
    assert set(headwise.load(two_processes / "whole").tasks) == {"mood", "warmth"}


def documented_command() -> list[str]:
    """The one in docs/training.md, with two processes and `torchrun` where this Python has it."""
    page = (HERE.parent.parent / "docs" / "training.md").read_text(encoding="utf-8")
    found = re.search(r"`(torchrun --nproc-per-node) \d+ (-m headwise train) \.\.\.`", page)
    assert found, "docs/training.md no longer shows how to start several processes"
    first, *rest = f"{found[1]} 2 {found[2]}".split()
    return [str(Path(sys.executable).with_name(first)), *rest]


def test_the_documented_command_is_one_training_by_two_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.encoder(dropout=0.0).save_pretrained(tmp_path / "model")
    toy.tokenizer().save_pretrained(tmp_path / "model")
    mood = toy.task("mood", 61)
    for split in ("train", "validation"):
        examples = mood.split(split)
        rows = {
            "text": [text[0] for text in examples.texts],
            "label": [mood.classes[i] for i in examples.labels],
        }
        pd.DataFrame(rows).to_csv(tmp_path / f"{split}.csv", index=False)
    (tmp_path / "tasks.toml").write_text(
        '[mood]\npath = { train = "train.csv", validation = "validation.csv" }\n'
    )
    words = [
        "--model",
        "model",
        "--tasks-file",
        "tasks.toml",
        "--epochs",
        "2",
        "--batch-size",
        "16",
        "--lr",
        "1e-3",
    ]
    words += ["--delta", "0.5", "--checkpoint-minutes", "0", "--quiet", "--json"]
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    paths = str(Path(headwise.__file__).parent.parent)
    env = {**os.environ, "PYTHONPATH": paths, "PET_MASTER_PORT": port, "CUDA_VISIBLE_DEVICES": ""}
    command = [*documented_command(), *words, "--out", "two"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    printed = [json.loads(done.stdout)]  # and nothing else, from one of the processes
    monkeypatch.chdir(tmp_path)
    printed.append(
        json.loads(CliRunner().invoke(app, ["train", *words, "--device", "cpu", "--out", "one"]).stdout)
    )
    two, one = (TrainingResult.load(tmp_path / out) for out in ("two", "one"))
    assert (two.description["processes"], one.description["processes"]) == (2, 1)
    np.testing.assert_allclose(two.history["loss"], one.history["loss"], atol=1e-5)
    by_two, by_one = ([row["score"] for row in output["tables"]["scores"]] for output in printed)
    assert by_two == pytest.approx(by_one, abs=1e-4)
    found = toy.weights(two.model)
    for key, value in toy.weights(one.model).items():
        if "key.bias" not in key:
            torch.testing.assert_close(
                found[key], value, atol=1e-5, rtol=0, msg=lambda m, key=key: f"{key}: {m}"
            )
    assert not (tmp_path / "two" / "checkpoint").exists()


@pytest.fixture
def alone() -> Iterator[None]:
    """This process connected to nobody but itself, and forgotten by accelerate before and after."""
    AcceleratorState._reset_state(reset_partial_state=True)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()
    AcceleratorState._reset_state(reset_partial_state=True)


def test_a_world_that_is_not_the_promised_one_is_refused(
    alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        headwise.HeadwiseError, match="the launcher announced 2 processes, but only 1 connected"
    ):
        TrainingRun(toy.model([toy.task()]), [toy.task()], settings=toy.settings())
