"""What heads cost in a 12-layer 768-wide model: JSON ratios from one process, each the median of interleaved pairs with its interval.

    python benchmarks/heads.py [--device cuda] [--pairs 30] [--batch 8] [--tokens 128] [--only gated recorded]

A bar is missed only if the lower end of an interval exceeds it.
  gated ÷ plain            ≤ 1.03 : a forward pass with gates (layers, heads) on every layer
  recorded ÷ plain         ≤ 1.05 : a forward pass that records every head at one position
  training_only ÷ plain    ≤ 1.10 : an AdamW step that trains 30 % of the heads
  removed ÷ silenced       < 1    : a forward pass without 30 % of the heads
and, without a bar: gates per row, gates that require gradients, mean pooling, hidden states, building `Heads`, and opening and closing
a block (seconds).
"""

import argparse
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import torch
from transformers import BertConfig, BertModel

from heads_freeze_remove import interleaved, remove, training_only, wait
from headwise.heads import Heads
from parts import said

BARS = {
    "gated ÷ plain": 1.03,
    "recorded ÷ plain": 1.05,
    "training_only ÷ plain": 1.10,
    "removed ÷ silenced": 1.0,
}
GROUPS = ("gated", "recorded", "built", "training_only", "removed")


def forward_passes(device: str, pairs: int, batch: int, tokens: int, only: list[str]) -> dict[str, Any]:
    """A forward pass inside each kind of block ÷ a plain one."""
    torch.manual_seed(0)
    model = BertModel(BertConfig()).to(device).eval()
    heads = Heads(model)
    ids = torch.randint(5, 20_000, (batch, tokens), device=device)
    mask = torch.ones_like(ids)
    mask[::2, tokens // 2 :] = 0  # half of the rows are padded
    gates = torch.rand(heads.shape, device=device)
    learnt = torch.rand(heads.shape, device=device, requires_grad=True)
    rows = torch.rand(batch, *heads.shape, device=device)

    @torch.no_grad()
    def plain(_: int) -> None:
        model(ids, attention_mask=mask)
        wait(device)

    def inside(block: Callable[[], AbstractContextManager[Any]]) -> Callable[[int], None]:
        def run(i: int) -> None:
            with block():
                plain(i)

        return run

    blocks: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "gated ÷ plain": lambda: heads.gated(gates),
        "gated by row ÷ plain": lambda: heads.gated(rows),
        "gated, learnt ÷ plain": lambda: heads.gated(learnt),
        "recorded ÷ plain": lambda: heads.recorded("cls"),
        "recorded, mean ÷ plain": lambda: heads.recorded("mean"),
        "recorded with hidden states ÷ plain": lambda: heads.recorded("cls", hidden=True),
    }
    result = {}
    for name, block in blocks.items():
        if name.split()[0].strip(",") in only:
            inside(block)(0)
            plain(0)
            result[name] = said(name, interleaved(plain, inside(block), pairs))
    if "built" in only:
        result["Heads(model), seconds"] = min(_seconds(lambda: Heads(model)) for _ in range(3))
        result["a gated block opened and closed, seconds"] = min(
            _seconds(lambda: _open(heads.gated(gates))) for _ in range(2000)
        )
        result["a pass of 2 × 7 tokens, seconds"] = min(
            _seconds(lambda: model(ids[:2, :7])) for _ in range(3)
        )
    return result


def _open(block: AbstractContextManager[Any]) -> None:
    """Enters and leaves a block; by an error, since a block that ends well without a pass complains."""
    with suppress(KeyError), block:
        raise KeyError


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--only", nargs="*", choices=GROUPS, default=list(GROUPS))
    options = vars(parser.parse_args())
    only = options.pop("only")
    if options["device"] == "cpu":
        torch.set_num_threads(2)
    result = forward_passes(**options, only=only)
    if "training_only" in only:
        result["training_only ÷ plain"] = said("training_only ÷ plain", training_only(**options))
    if "removed" in only:
        result |= remove(**options)
    for name, bar in BARS.items():
        if name in result:
            result[name] |= {
                "bar": bar,
                "held": result[name]["interval"][0] <= bar if bar != 1 else result[name]["interval"][1] < 1,
            }
    settings = {**options, "torch": torch.__version__, "threads": torch.get_num_threads()}
    print(json.dumps({"settings": settings, **result}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
