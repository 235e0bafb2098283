"""Run by torchrun in `test_distributed`: trains in as many processes as there are, and leaves the weights in a folder."""

import json
import sys
from pathlib import Path

import toy
from accelerate import PartialState
from safetensors.torch import save_file

from headwise.tasks import Task
from headwise.training import TrainingRun, train
from headwise.training._evaluation import evaluate
from headwise.training.methods import ImportantHeads, Method


def tasks() -> list[Task]:
    return [toy.task("mood", 61), toy.task("warmth", 35)]  # odd sizes: the last batches do not divide evenly


CASES = {
    "multi-task": (Method, {"clip": 0.5, "balance": 3}),
    "iat": (
        lambda: ImportantHeads(delta=0.5, alpha=0.3),
        {"clip": 0.5, "weight_decay": 0.1, "micro_batch_size": 3},
    ),
}


def main(folder: Path) -> None:
    state = PartialState(cpu=True)
    for name, (make, changes) in CASES.items():
        run = TrainingRun(
            toy.model(tasks(), dropout=0.0), tasks(), make(), toy.settings(**changes), folder=folder / name
        )
        run.train()
        scores = {
            task.name: evaluate(run.model, task, accelerator=run.accelerator, quiet=True).score
            for task in tasks()
        }
        if state.is_main_process:
            save_file(toy.weights(run.model), folder / f"{name}.safetensors")
            record = {"world": state.num_processes, "losses": run.losses.tolist(), "scores": scores}
            (folder / f"{name}.json").write_text(json.dumps(record))
    train(
        toy.encoder(),
        tasks(),
        "iat",
        tokenizer=toy.tokenizer(),
        out=folder / "whole",
        epochs=1,
        quiet=True,
        device="cpu",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
