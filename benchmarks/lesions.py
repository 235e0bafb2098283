"""Lesions: ours against plain loops.

    python benchmarks/lesions.py --data DIR [--model FOLDER] [--device cuda] [--examples 48] [--rounds 3]

With --device cuda, --data and --model, lesions_gpu.py follows: whole validation sets, against the bare passes on ready batches.
DIR holds the presets' data sets; without it grammar tasks are used, and the output says so. Prints JSON, each ratio beside its bar.
  leave one out     ≤ 0.60 : every head of a 12-layer model alone, against full passes over the same batches
  five tasks        ≤ 0.70 : lesions of five tasks' heads, ten random ones and the intact model on five tasks, against the plain
                             loop (for mask: for task: for batch) with batches in random order, padded to their longest
"""

import argparse
import json

import numpy as np
import torch

from headwise._passes.lesioned import evaluate
from headwise._passes.subject import task_subject
from headwise.heads import Heads, HeadSet
from headwise.lesions import lesion
from headwise.models._model import MultiTaskModel
from headwise.scoring._selection import random_heads
from headwise.tasks._batches import collate
from headwise.tasks._names import find_tasks
from parts import said
from side_by_side import encoder, machine, medians, race, ratio

PAPER = ["mnli", "qqp", "qnli", "ag_news", "sst2"]
GRAMMAR = [f"grammar:{name}" for name in ("topic", "tense", "subject_number", "sentiment", "entailment")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=None)
    parser.add_argument("--model", default=None, help="folder; default: a random BERT of 12 layers, 384 wide")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--examples", type=int, default=48, help="of each task; leave-one-out uses the last task"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["leave-one-out", "five-tasks"], default=None)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.device == "cuda" and args.data and args.model and args.only is None:
        import lesions_gpu

        lesions_gpu.run(args.data, args.model)
    torch.manual_seed(args.seed)
    tasks = find_tasks(PAPER if args.data else GRAMMAR, args.data, seed=args.seed, metric="accuracy")
    body, tokenizer = encoder(args.model, 12, args.dim, 12)
    model = MultiTaskModel(body, tokenizer, tasks).to(args.device).eval()
    heads = Heads(model.encoder)
    reading = {
        "heads": heads,
        "examples": args.examples,
        "split": "validation",
        "quiet": True,
        "max_length": 128,
        "seed": args.seed,
    }
    result = {
        "data": [task.name for task in tasks],
        "examples of each": args.examples,
        "model": args.model or f"random BERT, 12 × {args.dim}",
        **machine(args.device),
    }

    subject = task_subject(model, tasks[-1], **reading)
    singles = [HeadSet(), *(HeadSet([head]) for head in heads.all())]
    losses = {}

    def shared() -> None:
        losses["ours"] = evaluate(subject, singles).losses

    def full() -> None:
        losses["full"] = evaluate(subject, singles, way="one by one").losses

    if args.only != "five-tasks":
        seconds = race({"ours": shared, "full passes": full}, args.rounds, args.device)
        result["leave one out"] = said(
            "leave one out",
            {
                "seconds": medians(seconds),
                **ratio(seconds, "ours", "full passes"),
                "bar": "≤ 0.60",
                "largest difference of a loss": float(np.abs(losses["ours"] - losses["full"]).max()),
            },
        )

    drawn = random_heads(
        heads.valid.numpy(), 0.3, draws=15, seed=args.seed
    )  # five stand for the tasks' own heads
    sets = {str(i): head_set for i, head_set in enumerate(drawn)}
    found = {}

    def ours() -> None:
        found["ours"] = lesion(model, tasks, sets, **reading).performance.to_numpy()

    read = {task.name: task_subject(model, task, **reading).encoded for task in tasks}

    def loop() -> None:
        rng = np.random.default_rng(args.seed)
        table = np.zeros((len(drawn) + 1, len(tasks)))
        for row, silenced in enumerate([HeadSet(), *drawn]):
            for column, task in enumerate(tasks):
                encoded = read[task.name]
                order, right = rng.permutation(len(encoded)), 0
                for start in range(0, len(order), 32):
                    batch = collate(encoded, order[start : start + 32]).to(args.device)
                    with torch.no_grad(), heads.silenced(silenced):
                        output = model(task.name, batch)
                    right += int((output.prediction == batch.labels).sum())
                table[row, column] = right / len(order)
        found["loop"] = table

    if args.only != "leave-one-out":
        seconds = race({"ours": ours, "plain loop": loop}, args.rounds, args.device)
        result["five tasks"] = {
            "seconds": medians(seconds),
            **ratio(seconds, "ours", "plain loop"),
            "bar": "≤ 0.70",
            "ways": lesion(model, tasks, sets, **reading).tasks[tasks[-1].name].ways,
            "largest difference of an accuracy": float(np.abs(found["ours"] - found["loop"]).max()),
        }
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
