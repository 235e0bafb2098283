"""Induction heads of real language models, beside twins of random weights: the tables of docs/results/roles.md.

    python benchmarks/roles.py --models SmolLM2-135M=FOLDER stories15M=FOLDER [--out docs/results/roles] [--sequences 16] [--draws 24]

heads.csv    the five strongest heads of each role, by share of attention on repeated random tokens
lesions.csv  accuracy on other repeated random tokens: intact, the five strongest induction heads silenced, and as many random heads of
             the same layers (other heads, at least 20 draws). Intervals: over sequences; of the random rows over draws.
draws.csv    each draw
"""

import argparse
import hashlib
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import headwise as hw
from headwise._base.inference import t_interval
from headwise._base.opener import fresh, open_tokenizer
from headwise._base.places import model_folder, model_place
from headwise.behaviour._inputs import Reader
from headwise.heads import Heads, HeadSet
from headwise.models import open_model

ROLES = ("induction", "previous-token")
TOP, TOKENS = 5, 50


def judge(model: Any, rows: torch.Tensor, before: int) -> np.ndarray:
    """By sequence (sequences, 2): of the tokens of the second half, the share (percent) that the model predicts, and their mean loss (nats).

    The first of them is left out: nothing that precedes it says which one it is.
    """
    start = before + TOKENS
    found = []
    with torch.no_grad():
        for row in rows.split(4):
            logits = model(row, use_cache=False).logits[:, start : start + TOKENS - 1]
            right = row[:, start + 1 : start + TOKENS]
            loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), right, reduction="none")
            found.append(torch.stack([100 * (logits.argmax(-1) == right).double().mean(1), loss.double().mean(1)], 1))
    return torch.cat(found).numpy()


def same_layers(top: HeadSet, heads: Heads, rng: np.random.Generator) -> HeadSet:
    """As many heads of each layer as `top` has there, none of them in `top`."""
    chosen: list[tuple[int, int]] = []
    for layer in sorted({layer for layer, _ in top}):
        others = [head for head in range(heads.sites[layer].n_heads) if (layer, head) not in top]
        wanted = sum(one == layer for one, _ in top)
        chosen += [(layer, int(head)) for head in rng.choice(others, min(wanted, len(others)), replace=False)]
    return HeadSet(chosen)


def measure(
    name: str, weights: str, model: Any, tokenizer: Any, sequences: int, draws: int
) -> tuple[list[Any], list[Any], list[Any]]:
    heads = Heads(model)
    scores = hw.roles(model, tokenizer, roles=ROLES, repeated=TOKENS, heads=heads, quiet=True)
    strongest = []
    for role in ROLES:
        one = scores.sel(role=role)
        ranked = sorted(heads.all(), key=lambda place: -float(one[place]))[:TOP]
        strongest += [
            {
                "model": name,
                "weights": weights,
                "role": role,
                "rank": rank + 1,
                "head": f"L{layer}H{head}",
                "share": 100 * float(one[layer, head]),
                "chance": 100 * float(scores["chance"].sel(role=role, layer=layer)),
            }
            for rank, (layer, head) in enumerate(ranked)
        ]
    reader = Reader(model, tokenizer)
    rows = torch.tensor(reader.random(sequences, TOKENS, seed=1000))  # not the sequences that the heads were found on
    top = hw.top_heads(scores.sel(role="induction"), n=TOP)
    table, drawn = [], []

    def judged(silenced: HeadSet) -> np.ndarray:
        started = time.time()
        with heads.silenced(silenced):
            found = judge(model, rows, len(reader.before))
        print(f"{name}, {weights}, without {silenced}: {found.mean(0)} ({time.time() - started:.0f} s)", flush=True)
        return found

    def line(label: str, values: np.ndarray, unit: str) -> None:
        mean = values.mean(0)
        few = len(np.unique(values[:, 0])) < 3  # nothing, or a single token, varies: t has no meaning
        low, high = (np.nan, np.nan) if few else t_interval(values[:, 0])
        facts = {
            "model": name,
            "weights": weights,
            "silenced": label,
            "accuracy": mean[0],
            "low": float(low),
            "high": float(high),
        }
        table.append({**facts, "loss": mean[1], "interval over": f"{len(values)} {unit}"})

    line("none", judged(HeadSet([])), "sequences")
    line(f"{TOP} strongest induction heads", judged(top), "sequences")
    rng = np.random.default_rng(0)
    means = []
    for draw in range(draws):
        chosen = same_layers(top, heads, rng)
        means.append(judged(chosen).mean(0))
        places = " ".join(f"L{layer}H{head}" for layer, head in chosen)
        drawn.append(
            {"model": name, "weights": weights, "draw": draw, "heads": places, "accuracy": means[-1][0], "loss": means[-1][1]}
        )
    line(f"{TOP} random heads of the same layers", np.array(means), "draws")
    return strongest, table, drawn


def sha256(place: Path) -> str:
    file = place if place.is_file() else place / "model.safetensors"
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, help="NAME=FOLDER or NAME=FILE.gguf")
    parser.add_argument("--out", type=Path, default=Path("docs/results/roles"))
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--draws", type=int, default=24)
    given = parser.parse_args()
    places = dict(one.split("=", 1) for one in given.models)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    tables: dict[str, list[Any]] = {"heads": [], "lesions": [], "draws": []}
    for name, place in places.items():
        tokenizer = open_tokenizer(model_place(place))
        trained = open_model(place, need="heads").eval()
        for weights, model in (("trained", trained), ("random", fresh(trained, 0))):
            parts = measure(name, weights, model, tokenizer, given.sequences, given.draws)
            for kept, part in zip(tables.values(), parts, strict=True):
                kept += part
    said = " ".join(f"{name}={Path(place).name}" for name, place in places.items())
    head = [
        "study: induction heads of language models, silenced",
        f"recipe: none (command: python benchmarks/roles.py --models {said} --sequences {given.sequences} --draws {given.draws})",
        f"commit: {commit}",
        f"machine: {platform.machine()} CPU, {torch.get_num_threads()} thread(s), torch {torch.__version__}",
        f"date: {time.strftime('%Y-%m-%d', time.gmtime())}",
        *(f"weights of {name}: sha256 {sha256(model_folder(place))}" for name, place in places.items()),
    ]
    given.out.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        text = "".join(f"# {line}\n" for line in head) + pd.DataFrame(rows).to_csv(index=False, float_format="%.4f")
        (given.out / f"{name}.csv").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
