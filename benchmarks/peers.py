"""headwise beside TransformerLens, nnsight and plain hooks on the same models: times and numbers, one JSON line as soon as it is there.

    make peers PEERS="--model gpt2 --only silence record"

`make peers` installs the peers into .venv-peers, an environment of their own. The models have random weights: GPT-2's size (12 × 12 × 768,
50,257 tokens) and a small Llama with grouped queries; on a CPU `--layers` makes the first one shallower. All ways run in turn in one
process; on a CPU processor time is measured, which other work disturbs least. `apart` is the largest difference of the numbers, which
`agree` below 1e-4.

Bars: silencing and recording ≤ 1.03 of plain hooks; leave-one-out with its loss ≤ 0.6 of the best peer's loop; importance of all
heads ≤ 0.1 of that loop; patching all heads ≤ 0.6 of a full pass per head; attribution patching ≤ 3 passes; attention="last" over
4,096 tokens ≤ 1.05 of a plain pass.
"""

import argparse
import json
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from headwise.heads import HeadSet
from peer_models import HOOKS, LONG, OURS, Models, loss, pair_task, scored, show, text_task, zeroed
from side_by_side import machine

PARTS = ("silence", "record", "leave-one-out", "importance", "patching", "attribution", "attention")


def silence(m: Models, options: argparse.Namespace) -> None:
    """One head silenced in one pass."""
    layer, head = len(m.layers) // 2, 1
    found: dict[str, Tensor] = {}

    def ours() -> None:
        with m.heads.silenced(HeadSet([(layer, head)])):
            found[OURS] = m.logits(m.ids)

    def hooks() -> None:
        with m.hooked(layer, zeroed(m.slice(head))):
            found[HOOKS] = m.logits(m.ids)

    ways = {OURS: ours, HOOKS: hooks}
    ways["TransformerLens"] = lambda: found.update({"TransformerLens": m.bridged(m.ids, layer, head, 0.0)})
    ways["nnsight"] = lambda: found.update({"nnsight": m.sighted(m.ids, layer, head, 0.0)})
    show("silence", m, ways, found, options, options.rounds, {HOOKS: 1.03})


def record(m: Models, options: argparse.Namespace) -> None:
    """Every head's output at every token."""
    import nnsight

    found: dict[str, Tensor] = {}

    def ours() -> None:
        with m.heads.recorded("all") as tape:
            m.logits(m.ids)
        found[OURS] = tape.outputs

    def stacked(outputs: list[Tensor]) -> Tensor:
        return torch.stack([x.unflatten(-1, (m.n, m.dim)) for x in outputs], dim=2)

    def hooks() -> None:
        kept: list[Tensor] = []
        with ExitStack() as all_layers:
            for layer in m.layers:
                all_layers.enter_context(m.hooked(layer, lambda x: kept.append(x.detach().clone())))
            m.logits(m.ids)
        found[HOOKS] = stacked(kept)

    def lens() -> None:
        _, cache = m.lens.run_with_cache(m.ids, names_filter=lambda name: name.endswith("attn.hook_z"))
        found["TransformerLens"] = torch.stack(
            [cache[f"blocks.{layer}.attn.hook_z"] for layer in m.layers], dim=2
        )

    def sight() -> None:
        with m.sight.trace(input_ids=m.ids, use_cache=False):
            kept = nnsight.save([m.projection(m.sight, layer).input.detach() for layer in m.layers])
        found["nnsight"] = stacked(kept)

    ways = {OURS: ours, HOOKS: hooks, "TransformerLens": lens, "nnsight": sight}
    show("record", m, ways, found, options, options.rounds, {HOOKS: 1.03})


def leave_one_out(m: Models, options: argparse.Namespace) -> None:
    """The rise of the loss when each head alone is silenced."""
    task, found = text_task(m), {}

    def looped(run: Callable[[int, int], Tensor], intact: Callable[[], Tensor]) -> Tensor:
        base = float(loss(intact(), m.ids))
        return torch.tensor(
            [float(loss(run(*place), m.ids)) - base for place in m.all()], dtype=torch.float64
        ).view(m.heads.shape)

    def hooked(layer: int, head: int) -> Tensor:
        with m.hooked(layer, zeroed(m.slice(head))):
            return m.logits(m.ids)

    ways: dict[str, Callable[[], Any]] = {
        OURS: lambda: found.update({OURS: scored(m, task, "ablation", measure="loss")}),
        HOOKS: lambda: found.update({HOOKS: looped(hooked, lambda: m.logits(m.ids))}),
        "TransformerLens": lambda: found.update(
            {"TransformerLens": looped(lambda a, b: m.bridged(m.ids, a, b, 0.0), lambda: m.lens(m.ids))}
        ),
        "nnsight": lambda: found.update(
            {"nnsight": looped(lambda a, b: m.sighted(m.ids, a, b, 0.0), lambda: m.logits(m.ids))}
        ),
    }
    show("leave-one-out", m, ways, found, options, options.loops, {"best peer": 0.6})


def importance(m: Models, options: argparse.Namespace) -> None:
    """|∂loss/∂gate| of every head and example, beside our own and the plain hooks' leave-one-out; the same by gates on plain hooks."""
    task, found = text_task(m), {}

    def gated() -> None:
        gates = torch.ones(len(m.ids), len(m.layers), m.n, device=m.device, requires_grad=True)

        def gate(layer: int) -> Callable[[Tensor], Tensor]:
            return lambda x: (x.unflatten(-1, (m.n, m.dim)) * gates[:, None, layer, :, None]).flatten(-2)

        with torch.enable_grad(), ExitStack() as all_layers:
            for layer in m.layers:
                all_layers.enter_context(m.hooked(layer, gate(layer)))
            (slope,) = torch.autograd.grad(len(m.ids) * loss(m.logits(m.ids), m.ids), gates)
        found[HOOKS] = slope.abs().mean(0).double().cpu()

    def one_out() -> None:
        base = float(loss(m.logits(m.ids), m.ids))
        for layer, head in m.all():
            with m.hooked(layer, zeroed(m.slice(head))):
                assert float(loss(m.logits(m.ids), m.ids)) - base > -1e9

    ways: dict[str, Callable[[], Any]] = {
        OURS: lambda: found.update({OURS: scored(m, task, "gate-gradient")}),
        HOOKS: gated,
        "leave-one-out by plain hooks": one_out,
    }
    show("importance", m, ways, found, options, options.loops, {"leave-one-out by plain hooks": 0.1})


def patching(m: Models, options: argparse.Namespace) -> None:
    """What each head carries of a logit difference, patched at the last token."""
    import nnsight

    found: dict[str, Tensor] = {}
    task, (good, bad) = pair_task(m.ids, m.other, m.answers), m.answers

    def difference(logits: Tensor) -> float:
        last = logits[:, -1].float()
        return float((last.gather(1, good[:, None]) - last.gather(1, bad[:, None])).sum())

    def looped(run: Callable[[int, int, Tensor], Tensor], z: Tensor, ends: tuple[Tensor, Tensor]) -> Tensor:
        """z: the clean prompts' head outputs at the last token, (rows, layers, heads, head_dim)."""
        source, target = map(difference, ends)
        values = [(difference(run(a, b, z[:, a, b])) - target) / (source - target) for a, b in m.all()]
        return torch.tensor(values, dtype=torch.float64).view(m.heads.shape)

    def replaced(layer: int, head: int, value: Tensor) -> Tensor:
        def change(x: Tensor) -> Tensor:
            x = x.clone()
            x[:, -1, m.slice(head)] = value
            return x

        with m.hooked(layer, change):
            return m.logits(m.other)

    def hooks() -> None:
        kept: list[Tensor] = []
        with ExitStack() as all_layers:
            for layer in m.layers:
                all_layers.enter_context(m.hooked(layer, lambda x: kept.append(x[:, -1].clone())))
            clean = m.logits(m.ids)
        z = torch.stack([x.unflatten(-1, (m.n, m.dim)) for x in kept], 1)
        found[HOOKS] = looped(replaced, z, (clean, m.logits(m.other)))

    def lens() -> None:
        clean, cache = m.lens.run_with_cache(m.ids, names_filter=lambda name: name.endswith("attn.hook_z"))
        z = torch.stack([cache[f"blocks.{layer}.attn.hook_z"][:, -1] for layer in m.layers], 1)
        found["TransformerLens"] = looped(
            lambda a, b, v: m.bridged(m.other, a, b, v), z, (clean, m.lens(m.other))
        )

    def sight() -> None:
        with m.sight.trace(input_ids=m.ids, use_cache=False):
            kept = nnsight.save([m.projection(m.sight, layer).input[:, -1].detach() for layer in m.layers])
            clean = m.sight.lm_head.output.save()
        with m.sight.trace(input_ids=m.other, use_cache=False):
            corrupted = m.sight.lm_head.output.save()
        z = torch.stack([x.unflatten(-1, (m.n, m.dim)) for x in kept], 1)
        found["nnsight"] = looped(lambda a, b, v: m.sighted(m.other, a, b, v), z, (clean, corrupted))

    ways: dict[str, Callable[[], Any]] = {
        OURS: lambda: found.update({OURS: scored(m, task, "patching", tokens="last")}),
        HOOKS: hooks,
        "TransformerLens": lens,
        "nnsight": sight,
        "a full pass per head": lambda: [m.logits(m.other) for _ in m.all()],
    }
    show("patching", m, ways, found, options, options.loops, {"a full pass per head": 0.6})


def attribution(m: Models, options: argparse.Namespace) -> None:
    """The first order of patching over `--pairs` pairs of prompts, in passes over as many; the same in plain torch."""
    found: dict[str, Tensor] = {}
    clean, corrupted = m.drawn(2, options.pairs, options.tokens)
    answers = good, bad = m.drawn(2, options.pairs)
    task = pair_task(clean, corrupted, answers)

    def kept_of(ids: Tensor, slopes: bool) -> tuple[Tensor, list[Tensor]]:
        """The logit difference after `ids` and every layer's head outputs, which it can be derived by."""
        kept: list[Tensor] = []

        def keep(x: Tensor) -> Tensor:
            kept.append(x if x.requires_grad else x.detach().requires_grad_(slopes))
            return kept[-1]

        with torch.set_grad_enabled(slopes), ExitStack() as all_layers:
            for layer in m.layers:
                all_layers.enter_context(m.hooked(layer, keep))
            last = m.model(ids, use_cache=False, logits_to_keep=1).logits[:, -1].float()
            return (last.gather(1, good[:, None]) - last.gather(1, bad[:, None])).sum(), kept

    def first_order() -> None:
        (source, there), (target, here) = kept_of(clean, slopes=False), kept_of(corrupted, slopes=True)
        slopes = torch.autograd.grad(target, here)
        changes = [((a - b) * slope)[:, -1].double() for a, b, slope in zip(there, here, slopes, strict=True)]
        total = torch.stack([x.unflatten(-1, (m.n, m.dim)).sum((0, 2)) for x in changes])
        found[HOOKS] = (total / (source - target)).detach().cpu()

    ways: dict[str, Callable[[], Any]] = {
        OURS: lambda: found.update({OURS: scored(m, task, "attribution-patching", tokens="last")}),
        HOOKS: first_order,
        "a pass": lambda: m.logits(corrupted),
        "a pass, last logits only": lambda: m.model(corrupted, use_cache=False, logits_to_keep=1),
    }
    bars = dict.fromkeys(("a pass", "a pass, last logits only"), 3.0)
    show(
        f"attribution-patching, {options.pairs} pairs", m, ways, found, options, min(options.rounds, 5), bars
    )


def attention(m: Models, options: argparse.Namespace) -> None:
    """Every head's attention of the last token: ours over 4,096 tokens beside a plain pass; whole maps by TransformerLens over 1,024."""
    if m.name != "llama":
        return
    ids = torch.randint(5, 8000, (1, LONG), generator=torch.Generator().manual_seed(2)).to(m.device)
    found: dict[str, Tensor] = {}

    def plain(tokens: int) -> Callable[[], Any]:
        return lambda: m.model(ids[:, :tokens], use_cache=False, logits_to_keep=1)

    def ours(tokens: int) -> Callable[[], Any]:
        def run() -> None:
            with m.heads.recorded("last", attention="last") as tape:
                plain(tokens)()
            found[OURS] = torch.stack([rows[:, :, 0] for rows in tape.attention], 1)

        return run

    def lens() -> None:
        _, cache = m.lens.run_with_cache(
            ids[:, :1024], names_filter=lambda name: name.endswith("hook_pattern")
        )
        found["TransformerLens"] = torch.stack(
            [cache[f"blocks.{layer}.attn.hook_pattern"][:, :, -1] for layer in m.layers], 1
        )

    ways = {OURS: ours(LONG), "a plain pass": plain(LONG)}
    show(
        "attention of the last token, 4,096 tokens",
        m,
        ways,
        {},
        options,
        options.rounds,
        {"a plain pass": 1.05},
    )
    ways = {OURS: ours(1024), "TransformerLens": lens, "a plain pass": plain(1024)}
    show("attention of the last token, 1,024 tokens", m, ways, found, options, options.rounds, {})


def main() -> None:
    """Reads options and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--model", nargs="+", default=["llama", "gpt2"], choices=["gpt2", "llama"])
    parser.add_argument("--only", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--layers", type=int, default=None, help="of the GPT-2; default: 12")
    parser.add_argument("--rows", type=int, default=4, help="texts")
    parser.add_argument("--tokens", type=int, default=32, help="tokens of each")
    parser.add_argument("--pairs", type=int, default=32, help="of prompts, for attribution patching")
    parser.add_argument("--rounds", type=int, default=9, help="of single passes")
    parser.add_argument("--loops", type=int, default=1, help="rounds of loops over all heads")
    options = parser.parse_args()
    libraries = {name: version(name) for name in ("headwise", "transformer-lens", "nnsight", "transformers")}
    print(json.dumps({"machine": machine(options.device), **libraries}, ensure_ascii=False), flush=True)
    parts: dict[str, Callable[[Models, argparse.Namespace], None]] = {
        "silence": silence,
        "record": record,
        "leave-one-out": leave_one_out,
        "importance": importance,
        "patching": patching,
        "attribution": attribution,
        "attention": attention,
    }
    for name in options.model:
        models = Models(name, options)
        for part in options.only:
            parts[part](models, options)


if __name__ == "__main__":
    main()
