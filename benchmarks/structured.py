"""Trains the five structured tasks on a treebank, each alone and all together, and prints their test scores as JSON.

    python benchmarks/structured.py --path DIR --model MODEL --jobs 6 > structured.json

DIR has train, validation and test files with the five layers (see `headwise.tasks.readers`); MODEL is a folder or hub id. Every
training is a process of its own; --jobs of them run at a time, which on one GPU costs little: a small encoder leaves most of it idle.
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

FIVE = ("pos", "ner", "dep", "con", "srl")


def one(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains one group of tasks in this process."""
    import torch

    from headwise.studies._stemcells_settings import SMALL
    from headwise.tasks import structured
    from headwise.training import examine, train

    torch.set_float32_matmul_precision("high")
    began = time.perf_counter()
    names = FIVE if arguments.only == "all" else tuple(arguments.only.split("+"))
    tasks = structured(arguments.path, names)
    read = time.perf_counter()
    settings = SMALL | {
        "epochs": arguments.epochs if len(names) == 1 else arguments.joint_epochs,
        "learning_rate": arguments.lr,
        "batch_size": arguments.batch_size,
        "early_stopping": max(arguments.epochs, arguments.joint_epochs),
        "max_examples": arguments.examples,
        "device": "cpu" if arguments.device == "cpu" else None,
        "seed": arguments.seed,
        "quiet": True,
    }
    result = train(arguments.model, tasks, "multi-task", **settings)
    trained = time.perf_counter()
    scores = {split: examine(result.model, tasks, split, quiet=True)[0] for split in ("validation", "test")}
    return {
        "tasks": arguments.only,
        "seed": arguments.seed,
        "device": str(result.model.device),
        "settings": settings,
        "steps": len(result.history),
        "seconds": {
            "reading": read - began,
            "training": trained - read,
            "testing": time.perf_counter() - trained,
        },
        **{
            split: {f"{row.task} {row.metric}": round(100 * row.score, 2) for row in table.itertuples()}
            for split, table in scores.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", required=True, help="folder of the treebank")
    parser.add_argument("--model", help="folder or hub id; default: the embedded MiniLM")
    parser.add_argument(
        "--groups", default=",".join((*FIVE, "all")), help="trainings, e.g. pos,dep,pos+ner,all"
    )
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--epochs", type=int, default=20, help="of single-task trainings")
    parser.add_argument("--joint-epochs", type=int, default=8, help="of trainings on several tasks")
    parser.add_argument("--lr", type=float, default=2e-4, help="of the encoder")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--examples", type=int, help="use only so many training sentences")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda", help="cuda is used if there is one"
    )
    arguments = parser.parse_args()
    if arguments.model is None:
        from headwise.heads import default_model

        arguments.model = str(default_model())
    if arguments.only:
        print(json.dumps(one(arguments)))
        return

    def start(group: str) -> dict[str, Any]:
        command = [sys.executable, __file__, *sys.argv[1:], "--only", group, "--model", arguments.model]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"tasks": group, "error": done.stderr.strip().splitlines()[-20:]}
        result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        print(
            json.dumps({"tasks": group, "test": result["test"], "seconds": result["seconds"]}),
            file=sys.stderr,
            flush=True,
        )
        return result

    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(start, arguments.groups.split(",")))
    print(json.dumps({"benchmark": "structured", "results": results}, indent=1))
    if any("error" in result for result in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
