"""Training: our loop beside the Hugging Face Trainer with its defaults, the cost of important-head training, and a bare GPU loop.

    python benchmarks/training.py --data DIR            # two cores, real text: ≥ 1.5× the Trainer's examples/s, IAT ≤ 1.10× plain
    python benchmarks/training.py --device cuda --data DIR --model FOLDER   # batches of 32 short texts: see training_gpu.py; and
                                                                            # 256 × 128 random tokens: ≥ 0.95× a bare loop

Prints JSON: ratios are medians over rounds, with the 10th and 90th percentile; each task's part goes to the error output as soon as it
is there (all four: about 25 minutes on two cores). On a machine where headwise is not installed put src
on PYTHONPATH.
"""

import argparse
import json
import sys
import tempfile
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headwise.models import MultiTaskModel
from headwise.tasks import Task, preset
from headwise.training import Train, TrainingRun, evaluate
from headwise.training._data import steps
from headwise.training.methods import ImportantHeads, Method
from side_by_side import machine, medians, ratio, wait

BATCH, MAX_LENGTH, RATE = 32, 128, 5e-5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of data sets")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--model", help="folder or hub id; on a GPU its tokenizer and size; default: the embedded MiniLM"
    )
    parser.add_argument("--size", nargs="+", default=["minilm", "base"], help="models of the parts on a GPU")
    parser.add_argument("--tasks", nargs="+", default=["sst2", "mrpc", "rte", "cola"])
    parser.add_argument("--steps", type=int, default=40, help="steps of each training timed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--no-eager", action="store_true", help="on a GPU, leave out our loop without graphs (minutes)"
    )
    parser.add_argument("--pairs", type=int, default=30, help="pairs of plain and important-head steps")
    args = parser.parse_args()
    from headwise.heads import default_model

    found: dict[str, Any] = {"machine": machine(args.device)}
    if args.device == "cuda":
        if args.data is not None:
            import training_gpu

            training_gpu.main(args.data, args.model or str(default_model()), args.size, not args.no_eager)
        found["256 x 128 against a bare loop"] = bare_loop("cuda", args.rounds, args.steps)
    else:
        if args.data is None:
            parser.error("--data DIR: the folder that holds the data sets")
        name = args.model or str(default_model())
        tasks = [preset(task, args.data) for task in args.tasks]
        found["trainer"] = {}
        for task in tasks:
            found["trainer"][task.name] = against_trainer(name, task, args.steps, args.rounds)
            print(json.dumps({task.name: found["trainer"][task.name]}), file=sys.stderr, flush=True)
        found["trainer"]["all"] = round(
            float(np.mean([part["ratio"]["median"] for part in found["trainer"].values()])), 3
        )
        found["iat"] = iat_cost(name, tasks, args.pairs)
    print(json.dumps(found, indent=1))


def against_trainer(name: str, task: Task, count: int, rounds: int) -> dict[str, Any]:
    """Examples per second of our loop over the Trainer's: same weights, number of examples, batch, precision, schedule, clipping."""
    torch.manual_seed(0)
    start = MultiTaskModel.from_pretrained(name, [task])
    size = min(count * BATCH, len(task.split("train")) // BATCH * BATCH)
    small = task.with_splits(
        train=task.split("train").sample(size), validation=task.split("validation").sample(500)
    )
    seconds: dict[str, list[float]] = {"ours": [], "trainer": []}
    losses: dict[str, list[float]] = {"ours": [], "trainer": []}
    for number in range(rounds + 1):
        ways = {
            "ours": our_run(deepcopy(start), small, number),
            "trainer": trainer_run(deepcopy(start), small, number),
        }
        for way, (model, train) in ways.items():
            began = time.perf_counter()
            train()
            took = time.perf_counter() - began
            if number:  # a first round is run and not counted
                seconds[way].append(took)
                losses[way].append(
                    float(evaluate(model, small, max_length=MAX_LENGTH, quiet=True).losses.mean())
                )
    return {
        "ratio": ratio(seconds, "trainer", "ours"),
        "examples_per_s": {way: round(size / value, 1) for way, value in medians(seconds).items()},
        "validation_loss": {
            way: f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}" for way, values in losses.items()
        },
        "examples": size,
    }


def our_run(model: MultiTaskModel, task: Task, seed: int) -> tuple[MultiTaskModel, Any]:
    settings = Train(
        epochs=1,
        batch_size=BATCH,
        learning_rate=RATE,
        warmup=0,
        clip=1.0,
        max_length=MAX_LENGTH,
        seed=seed,
        quiet=True,
    )
    return model, TrainingRun(model, [task], Method(), settings).train


def trainer_run(model: MultiTaskModel, task: Task, seed: int) -> tuple[MultiTaskModel, Any]:
    """The same model under transformers' Trainer: tokenised beforehand, padded per batch, otherwise its defaults."""
    from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, labels: torch.Tensor, **inputs: torch.Tensor) -> dict[str, Any]:
            from headwise.tasks import Batch

            rows = torch.arange(len(labels))
            output = self.model(task.name, Batch(inputs, labels, rows, rows, task.kind))
            return {"loss": output.loss.mean(), "logits": output.logits}

    examples = task.split("train")
    columns = [list(side) for side in zip(*examples.texts, strict=True)]
    tokens = model.tokenizer(*columns, truncation=True, max_length=MAX_LENGTH)
    rows = [
        {**{key: tokens[key][i] for key in tokens}, "labels": examples.labels[i].item()}
        for i in range(len(examples))
    ]
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        num_train_epochs=1,
        per_device_train_batch_size=BATCH,
        learning_rate=RATE,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        seed=seed,
        use_cpu=True,
        remove_unused_columns=False,
    )
    collator = DataCollatorWithPadding(model.tokenizer)
    return model, Trainer(Plain(), arguments, train_dataset=rows, data_collator=collator).train


def iat_cost(name: str, tasks: list[Task], pairs: int) -> dict[str, Any]:
    """Seconds of an important-head step over a plain one, on the same batch."""
    torch.manual_seed(0)
    settings = Train(
        epochs=1, batch_size=BATCH, max_length=MAX_LENGTH, max_examples=2000, quiet=True, warmup=0
    )
    method = ImportantHeads(alpha=0.3, examples=500)
    run = TrainingRun(MultiTaskModel.from_pretrained(name, tasks), tasks, method, settings)
    method.at_branch(run)
    chosen = method.heads
    run.wrapped.train()
    feed = iter(steps(run.plan, run.streams, 0))
    seconds: dict[str, list[float]] = {"plain": [], "iat": []}
    for number in range(pairs + 2):
        step = next(feed)
        for way in ("plain", "iat") if number % 2 else ("iat", "plain"):
            method.heads = chosen if way == "iat" else {}
            began = time.perf_counter()
            run._one(step)
            if number > 1:
                seconds[way].append(time.perf_counter() - began)
    return {
        "ratio": ratio(seconds, "iat", "plain"),
        "seconds": medians(seconds),
        "heads": {k: len(v) for k, v in chosen.items()},
    }


def bare_loop(
    device: str, rounds: int, length: int, rows: int = 256, tokens: int = 128, **size: int
) -> dict[str, Any]:
    """Our loop, data feed included, beside forward + backward + fused AdamW on one batch of random tokens: bf16, 12 × 768."""
    from transformers import BertConfig, BertForSequenceClassification, BertModel

    words = [f"w{i}" for i in range(1000)]
    draw = np.random.default_rng(0)
    texts = [
        (" ".join(draw.choice(words, tokens - 2)), "yes" if draw.random() < 0.5 else "no")
        for _ in range(rows * length)
    ]
    task = Task(
        "random", data={"train": texts, "validation": texts[:64]}, kind="classes", classes=("no", "yes")
    )
    model = MultiTaskModel(BertModel(BertConfig(**size)), whole_words(words), [task])
    plain = BertForSequenceClassification(BertConfig(**size)).to(device).train()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=2e-5, fused=True)
    ids, labels = (
        torch.randint(4, 1000, (rows, tokens), device=device),
        torch.randint(0, 2, (rows,), device=device),
    )

    def bare() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            loss = plain(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()

    settings = Train(
        epochs=rounds + 1, batch_size=rows, precision="bf16", max_length=tokens, quiet=True, log_every=length
    )
    run = TrainingRun(model, [task], Method(), settings)
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}
    original = run.schedule.step
    began = 0.0

    def step() -> None:
        """After every `length` of our steps, as many of the bare loop: both see the same machine."""
        nonlocal began
        original()
        if (run.step + 1) % length == 0:
            wait(device)
            seconds["ours"].append(time.perf_counter() - began)
            began = time.perf_counter()
            for _ in range(length):
                bare()
            wait(device)
            seconds["bare"].append(time.perf_counter() - began)
            began = time.perf_counter()

    run.schedule.step = step  # called after every step, also of those that run as graphs
    began = time.perf_counter()
    run.train()
    seconds = {name: values[1:] for name, values in seconds.items()}
    rate = {name: round(rows * length / value, 1) for name, value in medians(seconds).items()}
    return {
        "ratio": ratio(seconds, "bare", "ours"),
        "examples_per_s": rate,
        "shape": [rows, tokens],
        "steps": length * rounds,
    }


def whole_words(words: list[str]) -> Any:
    """A tokenizer that knows these words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    inner = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate([*names, *words])}, unk_token="[UNK]")
    )
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokens = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), names, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=512, **tokens)


if __name__ == "__main__":
    main()
