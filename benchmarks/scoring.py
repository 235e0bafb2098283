"""Head scores of every example: ours against a plain forward pass, and against the ways they were computed before.

    python benchmarks/scoring.py --data DIR [--task sst2] [--model FOLDER] [--device cuda] [--examples 256] [--rounds 5]

DIR holds the presets' data sets (DIR/sst2/train.parquet, …); without it sentences of the grammar are used, and the output says so.
Prints JSON: medians of the ratios, each beside its bar.
  over a plain pass         ≤ 2.6 : no gradients, the same batches sorted by length
  one at a time over ours   ≥ 1.9 : one unpadded example at a time, weight gradients on, as published (on a GPU ≥ 20)
  padded to 128 over ours   ≥ 3   : batches of 32 padded to 128 tokens, weight gradients on
"""

import argparse
import json
from typing import Any

import numpy as np
import torch

from headwise._passes.subject import task_subject
from headwise.heads import Heads
from headwise.models._model import MultiTaskModel
from headwise.scoring import gate_gradient
from headwise.tasks._batches import batches, collate
from headwise.tasks._names import find_tasks
from side_by_side import encoder, machine, medians, race, ratio


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=None)
    parser.add_argument("--task", default="sst2")
    parser.add_argument("--model", default=None, help="folder; default: a random BERT of 12 layers, 384 wide")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--examples", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    names = [args.task] if args.data else ["grammar:topic"]
    (task,) = find_tasks(names, args.data, seed=args.seed)
    body, tokenizer = encoder(args.model, 12, args.dim, 12)
    model = MultiTaskModel(body, tokenizer, [task]).to(args.device).eval()
    heads = Heads(model.encoder)
    options: dict[str, Any] = {
        "heads": heads,
        "examples": args.examples,
        "seed": args.seed,
        "quiet": True,
        "max_length": 128,
    }
    subject = task_subject(model, task, batch_size=args.batch_size, **options)
    found: dict[str, np.ndarray] = {}

    def ours() -> None:
        found["ours"] = gate_gradient(model, task, batch_size=args.batch_size, **options).to_numpy()

    def plain() -> None:
        with torch.no_grad():
            for batch in subject.read(subject.plan()):
                model(task.name, batch)

    def one_at_a_time() -> None:
        total = torch.zeros(heads.shape, device=args.device)
        for batch in batches(subject.encoded, 1):
            gates = torch.ones(heads.shape, device=args.device, requires_grad=True)
            with heads.gated(gates):
                model(task.name, batch.to(args.device)).loss.sum().backward()
            total += gates.grad.abs()
            model.zero_grad()
        found["one at a time"] = (total / len(subject.encoded)).cpu().numpy()

    def padded() -> None:
        total = torch.zeros(heads.shape, device=args.device)
        order = np.arange(len(subject.encoded))
        for start in range(0, len(order), 32):
            batch = collate(subject.encoded, order[start : start + 32], pad_to_multiple=128).to(args.device)
            gates = torch.ones((len(batch), *heads.shape), device=args.device, requires_grad=True)
            with heads.gated(gates):
                model(task.name, batch).loss.sum().backward()
            total += gates.grad.abs().sum(0)
            model.zero_grad()
        found["padded"] = (total / len(order)).cpu().numpy()

    seconds = race(
        {"ours": ours, "plain": plain, "one at a time": one_at_a_time, "padded": padded},
        args.rounds,
        args.device,
    )
    worst = max(
        float(np.abs(found["ours"] - other).max() / other.max())
        for other in (found["one at a time"], found["padded"])
    )
    result = {
        "data": f"{args.task}, train" if args.data else "grammar (synthetic)",
        "examples": len(subject.encoded),
        "tokens": int(subject.encoded.lengths.sum()),
        "model": args.model or f"random BERT, 12 × {args.dim}",
        "batch_size": subject.batch_size,
        **machine(args.device),
        "seconds": medians(seconds),
        "over a plain pass": {**ratio(seconds, "ours", "plain"), "bar": "≤ 2.6"},
        "one at a time over ours": {**ratio(seconds, "one at a time", "ours"), "bar": "≥ 1.9 (GPU ≥ 20)"},
        "padded to 128 over ours": {**ratio(seconds, "padded", "ours"), "bar": "≥ 3"},
        "largest relative difference between the three": worst,
    }
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
