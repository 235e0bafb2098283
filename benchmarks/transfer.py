"""Few-shot fine-tunings of many seeds: side by side, against one after another through the ordinary loop.

    python benchmarks/transfer.py --data DIR --model FOLDER [--device cuda] [--seeds 30] [--shots 4] [--evaluate 200]

Both train on the same examples and are judged on the same fixed sample; model, tokenisation and process are shared. Prints JSON:
seconds of each, their ratio, and the mean accuracies.
"""

import argparse
import json
import time
from copy import deepcopy

import numpy as np
import torch

from headwise.heads import default_model
from headwise.models import MultiTaskModel
from headwise.tasks import preset
from headwise.training._evaluation import evaluate
from headwise.training._fewshot import few_shot, sample_shots
from headwise.training._loop import TrainingRun
from headwise.training._settings import Train
from parts import said


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default=None, help="folder of an encoder; default: the embedded one")
    parser.add_argument("--task", default="sick")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--shots", type=int, default=4)
    parser.add_argument("--evaluate", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--copies", type=int, default=None)
    args = parser.parse_args()
    task = preset(args.task, args.data)
    held_out = task.split("validation").sample(args.evaluate)
    model = MultiTaskModel.from_pretrained(args.model or default_model(), []).to(args.device)

    def ours(seeds: range) -> np.ndarray:
        settings = {"epochs": args.epochs, "copies": args.copies}
        return few_shot(model, task, args.shots, seeds, **settings, evaluate_on=held_out, quiet=True)[
            "score"
        ].values

    def plain(seeds: range) -> np.ndarray:
        scores = []
        for seed in seeds:
            torch.manual_seed(seed)
            copy = deepcopy(model)
            copy.add_task(task)
            few = task.with_splits(
                train=task.split("train").subset(sample_shots(task.split("train"), args.shots, seed)),
                validation=held_out,
            )
            TrainingRun(copy, [few], settings=Train(epochs=args.epochs, seed=seed, quiet=True)).train()
            scores.append(evaluate(copy, few, quiet=True).score)
        return np.array(scores)

    def timed(function, seeds: range) -> tuple[float, np.ndarray]:  # type: ignore[no-untyped-def,type-arg]
        start = time.perf_counter()
        scores = function(seeds)
        if args.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start, scores

    ours(range(2)), plain(range(2))  # warm both
    # interleaved in blocks, so that a busy moment of the machine does not fall on one side alone
    block = args.seeds if args.device == "cuda" else 10
    seconds: dict[str, float] = {"ours": 0.0, "plain": 0.0}
    scores: dict[str, list[float]] = {"ours": [], "plain": []}
    for start in range(0, args.seeds, block):
        for name, function in (("plain", plain), ("ours", ours)):
            spent, found = timed(function, range(start, min(start + block, args.seeds)))
            seconds[name] += said(f"{name}, seconds of {len(found)} seeds", spent)
            scores[name] += found.tolist()
    report = {
        "benchmark": "transfer",
        "device": args.device,
        "task": args.task,
        "shots": args.shots,
        "seeds": args.seeds,
        "evaluated_on": len(held_out),
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "speedup": round(seconds["plain"] / seconds["ours"], 2),
        "accuracy": {name: round(float(np.mean(value)), 4) for name, value in scores.items()},
        "standard_error": {
            name: round(float(np.std(value) / np.sqrt(len(value))), 4) for name, value in scores.items()
        },
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
