"""Agreement in SmolLM2 (docs/results/roles.md): makes the files that the page's commands read of BLiMP, and CSV tables of what they found.

    python docs/results/roles/agreement.py data BLIMP MODEL FOLDER
    python docs/results/roles/agreement.py tables FOLDER MODEL --commit HASH [--date DATE]

BLIMP is a parquet file with columns phenomenon, good and bad; MODEL the GGUF file. The commands, run in FOLDER, are `COMMANDS` below. Rows of
BLiMP stay in FOLDER.
"""

import argparse
import hashlib
import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SEED = 0
CONTRASTS = "determiner_noun_agreement_1"
NUMBER = {"this": "these", "these": "this", "that": "those", "those": "that"}
STEERED = (
    "anaphor_number_agreement", "determiner_noun_agreement_1", "determiner_noun_agreement_2", "distractor_agreement_relational_noun",
    "irregular_plural_subject_verb_agreement_1", "regular_plural_subject_verb_agreement_1",
)  # fmt: skip
STATEMENTS = {"train": 44, "validation": 20, "test": 20}  # of each kind
PAIRS = {"validation": 17, "test": 27}
SILENCED = 120  # pairs that no contrast was made of
SHOWN = 5  # heads on the page
SCORE = "headwise score --model MODEL --tasks-file tasks.toml --tasks agreement"
COMMANDS = {
    "attribution": f"{SCORE} --method attribution-patching --examples 200 --out attribution",
    "patching": f"{SCORE} --method patching --examples 24 --set tokens=last --out patching",
    "silencing": "echo '[[27, 6]]' > heads.json; "
    "headwise eval --model MODEL --silence heads.json --tasks agreement_pairs --include . --out silencing",
    "steering": "headwise steer --model MODEL --tasks-file tasks.toml --tasks statements pairs --target acceptable --strengths 5 10 20 "
    "--no-bake --out steering",
}
TASKS = """[agreement]
kind = "contrast"
path = {train = "contrasts.csv"}

[statements]
kind = "classes"
path = {train = "statements-train.csv", validation = "statements-validation.csv", test = "statements-test.csv"}
text = ["text"]
label = "label"

[pairs]
kind = "minimal-pairs"
path = {validation = "pairs-validation.csv", test = "pairs-test.csv"}
text = ["good", "bad"]
"""
HARNESS = """task: agreement_pairs
dataset_path: json
dataset_kwargs:
  data_files: {test: agreement_pairs.jsonl}
test_split: test
output_type: multiple_choice
doc_to_text: ""
target_delimiter: ""
doc_to_choice: "{{[good, bad]}}"
doc_to_target: 0
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
"""


def contrasts(rows: pd.DataFrame, tokenizer: Any) -> pd.DataFrame:
    """Sentences up to their last noun, which follows a demonstrative, as contrasts; nouns whose numbers begin with one token are left out."""
    found = []
    for row in rows.itertuples():
        *start, noun = row.good.rstrip(".").split(" ")
        *same, other = row.bad.rstrip(".").split(" ")
        if start != same or start[-1] not in NUMBER or noun == other:
            continue
        first, second = (tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0] for word in (noun, other))
        if first != second:
            changed = [*start[:-1], NUMBER[start[-1]]]
            found.append((" ".join(start), " ".join(changed), f" {noun}", f" {other}"))
    return pd.DataFrame(found, columns=["clean", "corrupted", "answer", "other"])


def data(blimp: Path, model: str, folder: Path) -> None:
    """Writes what the commands read; which head to silence is known after the patching."""
    from headwise._base.opener import open_tokenizer

    rows = pd.read_parquet(blimp)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    by_kind = {kind: rows[rows["phenomenon"] == kind].iloc[rng.permutation(1000)] for kind in sorted(STEERED)}
    own = by_kind[CONTRASTS]
    pairs = own.iloc[-SILENCED:]
    made = contrasts(own.iloc[:-SILENCED], open_tokenizer(model))
    made.to_csv(folder / "contrasts.csv", index=False)
    print(f"{len(made)} contrasts")
    lines = [json.dumps({"good": row.good, "bad": row.bad}) for row in pairs.itertuples()]
    (folder / "agreement_pairs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "agreement_pairs.yaml").write_text(HARNESS, encoding="utf-8")
    (folder / "tasks.toml").write_text(TASKS, encoding="utf-8")
    start = 0
    for split, count in STATEMENTS.items():
        some = pd.concat([kind.iloc[start : start + count] for kind in by_kind.values()])
        good = rng.permutation(np.arange(len(some)) % 2 == 0)  # one sentence of each pair
        texts = np.where(good, some["good"], some["bad"])
        labelled = pd.DataFrame({"text": texts, "label": np.where(good, "acceptable", "unacceptable")})
        labelled.to_csv(folder / f"statements-{split}.csv", index=False)
        start += count
    for split, count in PAIRS.items():
        some = pd.concat([kind.iloc[start : start + count] for kind in by_kind.values()])
        some[["good", "bad"]].to_csv(folder / f"pairs-{split}.csv", index=False)
        start += count


def tables(folder: Path, model: Path, commit: str, date: str) -> None:
    """The commands' results as CSV beside this file."""
    import torch
    import transformers

    import headwise

    scores = {name: headwise.load(folder / name).sel(task="agreement") for name in ("patching", "attribution")}
    places = [(layer, head) for layer, head in np.ndindex(*scores["patching"].shape)]
    columns = {name: [100 * float(array[place]) for place in places] for name, array in scores.items()}
    shares = pd.DataFrame({"head": [f"L{layer}H{head}" for layer, head in places], **columns})
    shares = shares.sort_values("patching", ascending=False, ignore_index=True)
    shares["shown"] = np.where(shares.index < SHOWN, "yes", "no")
    correlation = [shares["patching"].corr(shares["attribution"], method=way) for way in ("pearson", "spearman")]
    agreed = pd.DataFrame([{"heads": len(shares), "Pearson": correlation[0], "Spearman": correlation[1]}])
    judged, steered = headwise.load(folder / "silencing"), headwise.load(folder / "steering")
    silenced = judged.table[judged.table["metric"] == "acc"].copy()
    silenced.insert(
        0, "silenced", " ".join(f"L{layer}H{head}" for layer, head in json.loads((folder / "heads.json").read_text()))
    )
    both = judged.examples[judged.examples["metric"] == "acc"]
    silenced["changed pairs"] = int((both["intact"] != both["changed"]).sum())
    for name in ("intact", "changed", "difference", "low", "high"):
        silenced[name] *= 100
    strengths = steered.table.assign(chosen=np.where(steered.table["strength"] == steered.strength, "yes", "no"))
    strengths = strengths.assign(**{name: 100 * strengths[name] for name in ("accuracy", "accuracy_low", "accuracy_high")})
    probes = steered.heads.assign(validation=100 * steered.heads["validation"], test=100 * steered.heads["test"])
    found = {
        "shares": (shares, ("patching", "attribution")),
        "correlation": (agreed, ("patching", "attribution")),
        "silencing": (silenced, ("silencing",)),
        "steering": (strengths, ("steering",)),
        "steered-heads": (probes, ("steering",)),
    }
    here = Path(__file__).parent
    for name, (frame, commands) in found.items():
        said = {
            "study": "Agreement in SmolLM2",
            "recipe": f"none (data and table: docs/results/roles/agreement.py; commands: {'; '.join(COMMANDS[one] for one in commands)})",
            "commit": commit,
            "machine": f"{platform.machine()} CPU, torch {torch.__version__}, transformers {transformers.__version__}",
            "date": date or datetime.now(UTC).date().isoformat(),
            "weights of SmolLM2-135M": f"sha256 {hashlib.sha256(model.read_bytes()).hexdigest()}",
        }
        text = "".join(f"# {key}: {value}\n" for key, value in said.items()) + frame.round(4).to_csv(index=False)
        (here / f"agreement-{name}.csv").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("data")
    one.add_argument("blimp", type=Path)
    one.add_argument("model")
    one.add_argument("folder", type=Path)
    one = verbs.add_parser("tables")
    one.add_argument("folder", type=Path)
    one.add_argument("model", type=Path)
    one.add_argument("--commit", required=True)
    one.add_argument("--date", default="")
    given = vars(parser.parse_args())
    {"data": data, "tables": tables}[given.pop("verb")](**given)


if __name__ == "__main__":
    main()
