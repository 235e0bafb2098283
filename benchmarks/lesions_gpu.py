"""Lesions on a GPU: a dissociation's evaluations against its bare passes.

    python benchmarks/lesions_gpu.py --data DIR --model FOLDER [--precision bf16]

Sixteen lesions (intact, five tasks' heads, ten random sets) of every validation example of five tasks. "bare" runs the same passes
(the same rows side by side, the same gates) on batches that lie ready on the device; "ours" is `headwise.lesion` with texts tokenised
before; "with tokenisation" also tokenises, "tokens from disk" reads what an earlier process tokenised. Prints JSON, each part as soon as
it is there.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Sequence

import numpy as np
import torch
from transformers import AutoConfig, AutoTokenizer, BertConfig, BertModel

from headwise._passes.lesioned import TOKENS_AT_ONCE
from headwise._passes.subject import computing, task_subject
from headwise.heads import Heads, HeadSet
from headwise.lesions import lesion
from headwise.models import MultiTaskModel
from headwise.scoring._selection import random_heads
from headwise.tasks import find_tasks
from headwise.tasks._kept import forget
from side_by_side import machine, medians, race, ratio

TASKS = ["mnli", "qqp", "qnli", "ag_news", "sst2"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument(
        "--model", required=True, help="folder with a tokenizer and, for minilm, a configuration"
    )
    parser.add_argument("--size", nargs="+", default=["minilm", "base"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--examples", type=int, default=None)
    parser.add_argument(
        "--precision",
        default="float32",
        choices=["float32", "tf32", "bf16"],
        help="of all passes, bare ones included",
    )
    args = parser.parse_args()
    run(args.data, args.model, args.size, args.rounds, args.device, args.examples, args.precision)


def run(
    data: str,
    folder: str,
    sizes: Sequence[str] = ("minilm", "base"),
    rounds: int = 2,
    device: str = "cuda",
    examples: int | None = None,
    precision: str = "float32",
) -> None:
    """Both sizes of model, one after the other."""
    print(json.dumps(machine(device)), flush=True)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["HEADWISE_CACHE"] = cache
        _run(data, folder, sizes, rounds, device, examples, precision)


def _run(
    data: str,
    folder: str,
    sizes: Sequence[str],
    rounds: int,
    device: str,
    examples: int | None,
    precision: str,
) -> None:
    tasks = find_tasks(TASKS, data, metric="accuracy")
    split = {task.name: "validation" if "validation" in task.splits else "test" for task in tasks}
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for size in sizes:
        torch.manual_seed(0)
        config = (
            AutoConfig.from_pretrained(folder) if size == "minilm" else BertConfig(vocab_size=len(tokenizer))
        )
        model = MultiTaskModel(BertModel(config), tokenizer, tasks).to(device).eval()
        print(
            json.dumps({size: of_model(model, tasks, split, rounds, device, examples, precision)}), flush=True
        )


def of_model(
    model, tasks, split, rounds: int, device: str, examples: int | None, precision: str
) -> dict[str, object]:
    heads = Heads(model.encoder)
    drawn = random_heads(heads.valid.numpy(), 0.3, draws=15, seed=0)
    sets = {str(i): head_set for i, head_set in enumerate(drawn)}
    reading = {"heads": heads, "quiet": True, "max_length": 128, "examples": examples, "precision": precision}
    masks = np.stack([head_set.to_mask(heads.shape) for head_set in [HeadSet(), *drawn]])
    gates = 1 - torch.as_tensor(masks, dtype=torch.float32, device=device)
    ready, passes = [], 0
    for task in tasks:
        subject = task_subject(model, task, split=split[task.name], **reading)
        passes += len(subject.encoded) * len(gates)
        for batch in subject.read(subject.plan()):
            at_once = max(1, TOKENS_AT_ONCE["cuda"] // batch.inputs["input_ids"].numel())
            for start in range(0, len(gates), at_once):
                some = gates[start : start + at_once]
                ready.append((task.name, batch, some.repeat_interleave(len(batch), dim=0), len(some)))

    def bare() -> None:
        with torch.inference_mode():
            for name, batch, rows, times in ready:
                wide = batch.repeated(times)
                with heads.gated(rows), computing(precision, model.device):
                    model(name, wide)

    def ours() -> None:
        for task in tasks:
            lesion(model, [task], sets, split=split[task.name], **reading)

    def with_tokens() -> None:
        forget()
        cache, os.environ["HEADWISE_CACHE"] = os.environ["HEADWISE_CACHE"], "none"
        ours()
        os.environ["HEADWISE_CACHE"] = cache

    def from_disk() -> None:
        forget()
        ours()

    ways = {"bare": bare, "ours": ours, "with tokenisation": with_tokens, "tokens from disk": from_disk}
    seconds = race(ways, rounds, device)
    return {
        "precision": precision,
        "example passes": passes,
        "seconds": medians(seconds),
        "ours over bare": ratio(seconds, "ours", "bare"),
        "with tokenisation over ours": ratio(seconds, "with tokenisation", "ours"),
        "tokens from disk over ours": ratio(seconds, "tokens from disk", "ours"),
    }


if __name__ == "__main__":
    main()
