"""What patching and rows of attention cost: JSON lines from one process, each the median of interleaved pairs with its interval.

    python benchmarks/patching.py [--device cuda] [--pairs 5] [--only patched attention]

A bar is missed only if the lower end of an interval exceeds it.
  patched ÷ a pass per head  ≤ 0.60 : every head of a 12 × 12 model patched at the last token, for 32 pairs of prompts. Rows of one batch carry
                                      the patches of one layer's heads, and the layers below it run once for all. The other
                                      side: one whole pass over the 32 prompts for each of the 144 heads
  attention="last" ÷ plain   ≤ 1.05 : a forward pass over 4,096 tokens that records every head's attention of the last one
and without a bar: rows of one batch alone, every layer run each time; whole maps at 1,024 tokens.
"""

import argparse
import json
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from heads_freeze_remove import interleaved, wait
from headwise._passes.entrances import repeat
from headwise._passes.stack import Stack, find_stack, recording, skipping
from headwise.heads import Heads, HeadSet

BARS = {"patched ÷ a pass per head": 0.60, 'attention="last" ÷ plain': 1.05}
PROMPTS, TOKENS, LONG, SHORTER = 32, 16, 4096, 1024
ROWS = {"cpu": 32, "cuda": 4608}  # rows at once: a CPU gains nothing from larger batches


def patching(device: str, pairs: int, width: int) -> None:
    """All heads of a 12 × 12 model."""
    torch.manual_seed(0)
    model: Any = (
        GPT2LMHeadModel(
            GPT2Config(n_embd=width, n_layer=12, n_head=12, vocab_size=500, bos_token_id=1, eos_token_id=2)
        )
        .to(device)
        .eval()
    )
    heads = Heads(model)
    stack = find_stack(heads)
    assert isinstance(stack, Stack)
    clean, corrupted = torch.randint(5, 500, (2, PROMPTS, TOKENS), device=device)
    with torch.no_grad(), heads.recorded("all") as source:
        model(corrupted, use_cache=False)
    found: dict[str, torch.Tensor] = {}

    def last(rows: int = 1) -> torch.Tensor:
        out: torch.Tensor = model(clean.repeat(rows, 1), use_cache=False, logits_to_keep=1).logits[:, -1]
        return out.view(rows, PROMPTS, -1)

    @torch.no_grad()
    def one_by_one(_: int) -> None:
        kept = []
        for head in heads.all():
            with heads.patched(HeadSet([head]), source, tokens="last"):
                kept.append(last()[0])
        found["one by one"] = torch.stack(kept)
        wait(device)

    def batches(layer: int) -> list[list[int]]:
        at_once = max(1, ROWS[device] // PROMPTS)
        return [list(range(12))[i : i + at_once] for i in range(0, 12, at_once)]

    @torch.no_grad()
    def together(_: int, share: bool = True) -> None:
        with recording(stack) as lower:
            model(clean, use_cache=False, logits_to_keep=1)
        kept = []
        for layer in range(12):
            for some in batches(layer):
                sets = [HeadSet([(layer, head)]) for head in some for _ in range(PROMPTS)]
                rows = list(range(PROMPTS)) * len(some)
                with heads.patched(sets, source, tokens="last", rows=rows):
                    if share and layer:
                        below = lower[layer - 1]
                        axes: list[int | None] = [0] * len(tree_leaves(below))  # each begins with the rows
                        with skipping(stack, layer, repeat(below, len(some), axes)):
                            kept.append(last(len(some)))
                    else:
                        kept.append(last(len(some)))
        found["together"] = torch.cat(kept)
        wait(device)

    one_by_one(0)
    together(0)
    apart = float((found["one by one"] - found["together"]).abs().max())
    assert apart < 1e-4, apart
    show("patched ÷ a pass per head", width=width, apart=apart, **interleaved(one_by_one, together, pairs))
    show(
        "patched, all layers run ÷ a pass per head",
        **interleaved(one_by_one, lambda i: together(i, share=False), pairs),
    )


def attention(device: str, pairs: int) -> None:
    """Rows of attention of a model with grouped queries."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        vocab_size=500,
        max_position_embeddings=LONG,
    )
    model: Any = LlamaForCausalLM(config).to(device).eval()
    heads = Heads(model)
    ids = torch.randint(5, 500, (1, LONG), device=device)

    @torch.no_grad()
    def plain(_: int, tokens: int = LONG) -> None:
        model(ids[:, :tokens], use_cache=False, logits_to_keep=1)
        wait(device)

    def rows(_: int) -> None:
        with heads.recorded("last", attention="last"):
            plain(0)

    def maps(_: int) -> None:
        with heads.recorded("last", attention=True):
            plain(0, SHORTER)

    rows(0)
    show('attention="last" ÷ plain', tokens=LONG, **interleaved(plain, rows, 3 * pairs))
    show("attention=True ÷ plain", tokens=SHORTER, **interleaved(lambda i: plain(i, SHORTER), maps, pairs))


def show(name: str, **values: Any) -> None:
    """One line of JSON as soon as it is there."""
    bar = BARS.get(name)
    verdict = {} if bar is None else {"bar": bar, "met": values["interval"][0] <= bar}
    print(json.dumps({"name": name, **values, **verdict}, ensure_ascii=False), flush=True)


def main() -> None:
    """Reads options and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=sorted(ROWS))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--width", type=int, default=96, help="of the model whose heads are patched")
    parser.add_argument(
        "--only", nargs="+", choices=["patched", "attention"], default=["patched", "attention"]
    )
    options = parser.parse_args()
    if "patched" in options.only:
        patching(options.device, options.pairs, options.width)
    if "attention" in options.only:
        attention(options.device, options.pairs)


if __name__ == "__main__":
    main()
