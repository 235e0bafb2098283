"""What batches cost: headwise's against a DataLoader with the usual padding collator, on the same tokenised text.

    python benchmarks/tasks.py                    # the grammar's text
    python benchmarks/tasks.py --data DIR         # sst2 of a folder of data sets
    python benchmarks/tasks.py --words            # instead: how far word counts get on the grammar's tasks

Prints JSON: microseconds per batch of 32 (medians over interleaved rounds, with the middle 90 %), their ratio, and tokens per real token.
"""

import argparse
import json
import statistics
import time
from typing import Any

from torch.utils.data import DataLoader
from transformers import AutoTokenizer, DataCollatorWithPadding

from headwise import grammar, tasks
from headwise.heads import default_model
from parts import said


def speed(data: str | None, rounds: int) -> dict[str, Any]:
    tokenizer = AutoTokenizer.from_pretrained(default_model())
    task = tasks.preset("sst2", data) if data else grammar.task("topic", 4000)
    examples = task.split("train").sample(4000)
    start = time.perf_counter()
    encoded = tasks.encode(examples, tokenizer, 128)
    encoding = time.perf_counter() - start
    start = time.perf_counter()
    plain = tokenizer([text[0] for text in examples.texts], truncation=True, max_length=128)
    theirs_encoding = time.perf_counter() - start
    rows = [
        {"input_ids": ids, "labels": int(label)}
        for ids, label in zip(plain["input_ids"], examples.labels, strict=True)
    ]
    loader = DataLoader(rows, batch_size=32, shuffle=True, collate_fn=DataCollatorWithPadding(tokenizer))  # type: ignore[arg-type]

    def ours(seed: int) -> tuple[float, int]:
        start = time.perf_counter()
        made = tasks.batches(encoded, 32, seed=seed)
        tokens = sum(batch.inputs["input_ids"].numel() for batch in made)
        return (time.perf_counter() - start) / len(made) * 1e6, tokens

    def theirs() -> tuple[float, int]:
        start = time.perf_counter()
        tokens = sum(batch["input_ids"].numel() for batch in loader)
        return (time.perf_counter() - start) / len(loader) * 1e6, tokens

    times: dict[str, list[float]] = {"headwise": [], "DataLoader": []}
    padded = {}
    for i in range(rounds):
        for name, (spent, tokens) in (("headwise", ours(i)), ("DataLoader", theirs())):
            times[name].append(said(f"{name}, microseconds per batch", spent))
            padded[name] = tokens / len(encoded.ids)
    ratios = [a / b for a, b in zip(times["DataLoader"], times["headwise"], strict=True)]
    return {
        "data": "sst2" if data else "grammar (synthetic)",
        "microseconds_per_batch": {name: summary(values) for name, values in times.items()},
        "ratio": summary(ratios),
        "tokens_per_real_token": padded,
        "encode_seconds": {"headwise": encoding, "tokenizer": theirs_encoding},
    }


def words() -> dict[str, Any]:
    """Test accuracy of logistic regression on word counts, 2,000 training sentences of the grammar."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    found: dict[str, Any] = {}
    for name in grammar.NAMES:
        for shared in (True, False):
            task = grammar.task(name, 2000, shared_words=shared)
            text = {
                split: [
                    " ".join(f"{i}{w}" for i, side in enumerate(sides) for w in side.split())
                    for sides in task.split(split).texts
                ]
                for split in ("train", "test")
            }
            model = make_pipeline(
                CountVectorizer(token_pattern=r"\S+", binary=True), LogisticRegression(C=0.3, max_iter=500)
            )
            model.fit(text["train"], task.split("train").labels)
            accuracy = model.score(text["test"], task.split("test").labels)
            found.setdefault(name, {"chance": round(task.chance, 3)})[
                "words shared" if shared else "words held out"
            ] = round(accuracy, 3)
        said(name, found[name])
    return found


def summary(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=20)
    return {"median": statistics.median(values), "low": cuts[0], "high": cuts[-1]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--words", action="store_true")
    options = parser.parse_args()
    print(json.dumps(words() if options.words else speed(options.data, options.rounds), indent=1))
