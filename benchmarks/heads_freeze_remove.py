"""What freezing and removing heads cost and save, in a 12-layer 768-wide model: JSON ratios, one process, interleaved pairs.

    python benchmarks/heads_freeze_remove.py [--device cuda] [--pairs 30] [--batch 8] [--tokens 64]

`training_only`: a step (forward, backward, AdamW) inside the block, with another head set each time, against the same step outside. Bar: 1.10.
`remove`: a forward pass with 30 % of the heads removed against one with the same heads silenced, and against the whole model.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from headwise.heads import Heads, HeadSet
from parts import said

SHARE = 0.3  # of all heads


def interleaved(one: Callable[[int], Any], other: Callable[[int], Any], pairs: int) -> dict[str, Any]:
    """Median of `other` ÷ `one` over pairs run one after the other in alternating order, with its 95 % interval by order statistics."""
    seconds: dict[Any, list[float]] = {one: [], other: []}
    for i in range(pairs):
        for work in (one, other) if i % 2 else (other, one):
            start = time.perf_counter()
            work(i)
            seconds[work].append(time.perf_counter() - start)
    ratios = sorted(b / a for a, b in zip(seconds[one], seconds[other], strict=True))
    reach = 0.98 * pairs**0.5  # 1.96 × √(n ÷ 4), the normal approximation to the binomial
    low, high = max(0, int(pairs / 2 - reach)), min(pairs - 1, round(pairs / 2 + reach))
    return {
        "ratio": statistics.median(ratios),
        "interval": [ratios[low], ratios[high]],
        "seconds": [statistics.median(seconds[one]), statistics.median(seconds[other])],
        "pairs": pairs,
    }


def training_only(device: str, pairs: int, batch: int, tokens: int, fused: bool = False) -> dict[str, Any]:
    """A training step inside `training_only` ÷ the same step outside it."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig()).to(device)
    heads = Heads(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=fused)
    ids = torch.randint(5, 20000, (batch, tokens), device=device)
    labels = torch.zeros(batch, dtype=torch.long, device=device)
    sets = [chosen(heads, seed) for seed in range(5)]

    def step() -> None:
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        wait(device)

    def frozen(i: int) -> None:
        with heads.training_only(sets[i % len(sets)], optimizer):
            step()

    for i in range(len(sets)):
        frozen(i)
        step()
    return {
        "bar": 1.10,
        "optimizer": f"AdamW{' fused' * fused}",
        **interleaved(lambda _: step(), frozen, pairs),
    }


def remove(device: str, pairs: int, batch: int, tokens: int) -> dict[str, dict[str, Any]]:
    """A forward pass without 30 % of the heads ÷ the whole model with them silenced, and ÷ the whole model."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig()).to(device).eval()
    heads = Heads(model)
    gone = chosen(heads, 0)
    smaller = heads.remove(gone).eval()
    ids = torch.randint(5, 20000, (batch, tokens), device=device)

    @torch.inference_mode()
    def forward(which: Any) -> None:
        which(input_ids=ids)
        wait(device)

    def silenced(_: int) -> None:
        with heads.silenced(gone):
            forward(model)

    for _ in range(3):
        forward(smaller)
        silenced(0)
    size = {
        name: sum(p.numel() for p in m.parameters()) for name, m in (("whole", model), ("smaller", smaller))
    }
    return {
        "removed ÷ silenced": said(
            "removed ÷ silenced",
            {**interleaved(silenced, lambda _: forward(smaller), pairs), "parameters": size},
        ),
        "removed ÷ whole": said(
            "removed ÷ whole", interleaved(lambda _: forward(model), lambda _: forward(smaller), pairs)
        ),
    }


def chosen(heads: Heads, seed: int) -> HeadSet:
    return HeadSet(random.Random(seed).sample(sorted(heads.all()), int(SHARE * heads.total)))


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    options = vars(parser.parse_args())
    if options["device"] == "cpu":
        torch.set_num_threads(2)
    result = {
        "settings": {**options, "torch": torch.__version__, "threads": torch.get_num_threads()},
        "training_only": said("training_only", training_only(**options)),
        "training_only, fused": said("training_only, fused", training_only(**options, fused=True)),
        **remove(**options),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
