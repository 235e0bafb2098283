"""Training on a GPU: our loop (steps as CUDA graphs) beside a bare eager loop over the same batches.

    python benchmarks/training.py --device cuda --data DIR --model FOLDER [--size minilm base]

Five tasks of real text, bf16, batches of 32, at most 96 tokens; both models have random weights, since only the time counts here. "bare"
is forward + backward + fused AdamW on batches that lie ready on the device; "eager" is our loop without graphs. Prints JSON, each part as
soon as it is there.
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoTokenizer, BertConfig, BertModel

from headwise.models import MultiTaskModel
from headwise.tasks import Task, find_tasks
from headwise.training import Train, TrainingRun
from headwise.training._data import steps
from headwise.training.methods import ImportantHeads, Method

TASKS = ["mnli", "qqp", "qnli", "ag_news", "sst2"]
BATCH, LENGTH, EXAMPLES, EPOCHS = 32, 96, 2560, 3


def main(data: Path, folder: str, sizes: list[str], eager: bool = True) -> None:
    """All parts for every size of model; our loop without graphs only where `eager` asks for it."""
    tasks = find_tasks(TASKS, str(data), metric="accuracy")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for size in sizes:
        config = (
            AutoConfig.from_pretrained(folder) if size == "minilm" else BertConfig(vocab_size=len(tokenizer))
        )
        found: dict[str, Any] = {"batch": BATCH, "most tokens": LENGTH, "precision": "bf16"}
        found["bare"] = bare(model(config, tokenizer, tasks), tasks)
        ways = [("ours", Method(), True), ("iat", ImportantHeads(delta=2 / 3, examples=500), True)]
        for name, method, graphs in [*ways, ("eager", Method(), False)] if eager else ways:
            found[name] = ours(model(config, tokenizer, tasks), tasks, method, graphs)
            print(json.dumps({size: {name: found[name]}}), flush=True)
        step = {name: found[name]["ms per step"] for name in ("bare", "ours", "iat")}
        found["bare over ours"] = round(step["bare"] / step["ours"], 2)
        found["bare over ours, capturing included"] = round(
            step["bare"] / found["ours"]["ms per step, all epochs"], 2
        )
        found["iat step over plain step"] = round(step["iat"] / step["ours"], 3)
        print(json.dumps({size: found}), flush=True)


def model(config: Any, tokenizer: Any, tasks: list[Task]) -> MultiTaskModel:
    torch.manual_seed(0)
    return MultiTaskModel(BertModel(config), tokenizer, tasks)


def settings(graphs: bool) -> Train:
    return Train(
        epochs=EPOCHS,
        batch_size=BATCH,
        max_length=LENGTH,
        max_examples=EXAMPLES,
        precision="bf16",
        graphs=graphs,
        quiet=True,
    )


def bare(model: MultiTaskModel, tasks: list[Task]) -> dict[str, float]:
    """The last epoch of an eager loop on batches that lie ready, padded to the next eight tokens."""
    run = TrainingRun(model, tasks, Method(), settings(False))
    ready = list(steps(run.plan[: run.epoch_steps], run.streams, 0, device=torch.device("cuda"), pad=8))
    model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    seconds = []
    for _ in range(2):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for step in ready:
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(TASKS[step.task], step.micro[0][0]).loss.mean()
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return {"ms per step": round(1000 * seconds[-1] / len(ready), 3), "steps": len(ready)}


def ours(model: MultiTaskModel, tasks: list[Task], method: Method, graphs: bool) -> dict[str, Any]:
    """Our loop, feeding included: milliseconds per step of the last epoch, of all, and what capturing took."""
    torch.cuda.empty_cache()
    run = TrainingRun(model, tasks, method, settings(graphs))
    marks: dict[int, float] = {}
    original = run.schedule.step

    def step(*args: Any) -> None:
        original(*args)
        if (run.step + 1) % run.epoch_steps == 0:
            torch.cuda.synchronize()
            marks[run.step + 1] = time.perf_counter()

    run.schedule.step = step
    torch.cuda.synchronize()
    began = time.perf_counter()
    run.train()
    torch.cuda.synchronize()
    total, ends = time.perf_counter() - began, sorted(marks.values())
    found = {
        "ms per step": round(1000 * (ends[-1] - ends[-2]) / run.epoch_steps, 3),
        "ms per step, all epochs": round(1000 * total / len(run.plan), 3),
        "steps": len(run.plan),
        "loss": round(float(np.nanmean(run.losses[-100:])), 4),
        "not captured": run.not_captured,
    }
    if run.graphs is not None:
        captured = {
            "graphs": run.graphs.captured,
            "steps replayed": run.graphs.replayed,
            "seconds to capture": round(run.graphs.seconds, 2),
            "MB for graphs": round(run.graphs.bytes / 1e6),
        }
        found |= captured | {"notes": list(run.graphs.notes.values())}
    return found
