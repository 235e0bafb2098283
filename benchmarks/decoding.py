"""How long parsing a test set takes: encoder, scores and trees, with trees by batched charts and, on a sample, by textbook loops.

    OMP_NUM_THREADS=2 python benchmarks/decoding.py --path DIR

Without --path the embedded grammar gives the sentences. The decoders are untrained: their scores are arbitrary, which is the hard case
for spanning trees (a trained parser's best heads are nearly always a tree already). JSON on standard output.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from headwise import grammar
from headwise.heads import default_model
from headwise.models import MultiTaskModel, open_model
from headwise.models._decoders.arcs import projective_tree, spanning_tree
from headwise.models._decoders.trees import cky, span_marginals
from headwise.tasks import batches, encode, structured
from parts import said

REPEATS = 5


def textbook_cky(scores: np.ndarray, n: int) -> float:
    """Cell by cell; the best tree's score."""
    best = np.zeros((n + 1, n + 1))
    for width in range(1, n + 1):
        for i in range(n - width + 1):
            j = i + width
            inner = max((best[i, k] + best[k, j] for k in range(i + 1, j)), default=0.0)
            best[i, j] = scores[i, j] + inner
    return float(best[0, n])


def textbook_eisner(scores: np.ndarray, n: int) -> float:
    """Cell by cell; the best single-root projective tree's score."""
    full_right, full_left, half_right, half_left = (np.zeros((n, n)) for _ in range(4))
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            inner = max(full_right[i, k] + full_left[k + 1, j] for k in range(i, j))
            half_right[i, j] = inner + scores[j + 1, i + 1]
            half_left[i, j] = inner + scores[i + 1, j + 1]
            full_right[i, j] = max(half_right[i, k] + full_right[k, j] for k in range(i + 1, j + 1))
            full_left[i, j] = max(full_left[i, k] + half_left[k, j] for k in range(i, j))
    return float(max(full_left[0, r] + full_right[r, n - 1] + scores[r + 1, 0] for r in range(n)))


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def spread(seconds: list[float]) -> dict[str, float]:
    return {
        "median": round(float(np.median(seconds)), 4),
        "low": round(min(seconds), 4),
        "high": round(max(seconds), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", help="folder of a treebank with dep and con layers")
    parser.add_argument("--model", help="folder or hub id; default: the embedded MiniLM")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--sample", type=int, default=40, help="sentences for the textbook loops")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    tasks = (
        structured(arguments.path, ["dep", "con"]) if arguments.path else grammar.tasks(["dep", "con"], 2000)
    )
    opened = open_model(arguments.model or default_model(), need="encoder")
    torch.manual_seed(0)
    model = MultiTaskModel(opened.encoder, opened.tokenizer, tasks).to(arguments.device).eval()
    with torch.no_grad():
        for decoder in model.decoders.values():
            for parameter in decoder.parameters():
                if (
                    parameter.dim() == 3
                ):  # biaffine weights begin at zero, and zeros would decode to trivial trees
                    parameter.normal_(std=0.05)
    report: dict[str, Any] = {
        "benchmark": "decoding",
        "threads": torch.get_num_threads(),
        "device": arguments.device,
        "tasks": {},
    }
    for task in tasks:
        encoded = encode(task.split("test"), opened.tokenizer, 256)
        outputs: list[Any] = []

        def forward(encoded: Any = encoded, name: str = task.name, outputs: list[Any] = outputs) -> None:
            outputs.clear()
            with torch.inference_mode():
                outputs.extend(
                    model(name, batch.to(arguments.device))
                    for batch in batches(encoded, arguments.batch_size)
                )

        def decode(outputs: list[Any] = outputs) -> None:
            for output in outputs:
                _ = output.prediction

        forward_seconds, decode_seconds = [], []
        for _ in range(3):
            forward_seconds.append(timed(forward))
            decode_seconds.append(timed(decode))
        report["tasks"][task.name] = said(
            task.name,
            {
                "sentences": len(encoded),
                "words": sum(len(s) for s in task.split("test").sentences or ()),
                "encoder and scores, s": spread(forward_seconds),
                "trees and counts, s": spread(decode_seconds),
                "all, s": spread([a + b for a, b in zip(forward_seconds, decode_seconds, strict=True)]),
            },
        )
    report["charts"] = charts(tasks[0], arguments.sample)
    print(json.dumps(report, indent=1))


def charts(task: Any, sample: int) -> dict[str, Any]:
    """Batched algorithms and textbook loops on the same random scores, in turn; seconds for the sample."""
    lengths = torch.tensor([len(s) for s in (task.split("test").sentences or ())[:sample]])
    size = int(lengths.max()) + 1
    scores = torch.randn(len(lengths), size, size, generator=torch.Generator().manual_seed(0))
    plain = scores.double().numpy()
    ours: dict[str, Callable[[], Any]] = {
        "cky": lambda: cky(scores, lengths),
        "marginals": lambda: span_marginals(scores, lengths),
        "eisner": lambda: projective_tree(scores, lengths),
        "spanning tree": lambda: spanning_tree(scores, lengths),
    }
    loops: dict[str, Callable[[], Any]] = {
        "cky": lambda: [textbook_cky(p, n) for p, n in zip(plain, lengths.tolist(), strict=True)],
        "eisner": lambda: [textbook_eisner(p, n) for p, n in zip(plain, lengths.tolist(), strict=True)],
    }
    found: dict[str, Any] = {}
    for name, work in ours.items():
        batched, plainly = [], []
        for _ in range(REPEATS):
            batched.append(timed(work))
            if name in loops:
                plainly.append(timed(loops[name]))
        found[name] = {"batched, s": spread(batched)}
        if plainly:
            found[name] |= {
                "loops, s": spread(plainly),
                "ratio": round(float(np.median(plainly) / np.median(batched)), 1),
            }
    return found


if __name__ == "__main__":
    main()
