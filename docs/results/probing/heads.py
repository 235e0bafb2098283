"""Rows of heads.csv and gum.csv, in this folder, from finished probing studies.

    python docs/results/probing/heads.py RUN [RUN …]

Prints one row per model and task, in percent: what layers and heads score on test, beside the controls and the published figures.
"""

import sys

import pandas as pd

from headwise import engine
from headwise.studies import probes_of

BERT = {  # last layer, best layer, top heads (Jo and Myaeng 2020, Table 5)
    "Length": (58.0, 87.8, 95.0),
    "Depth": (29.8, 31.7, 38.3),
    "BigramShift": (78.1, 78.1, 88.3),
    "Tense": (86.0, 87.0, 89.0),
    "SubjNumber": (82.0, 84.7, 88.2),
    "ObjNumber": (75.4, 75.4, 83.4),
    "CoordinationInversion": (65.5, 65.9, 74.6),
}
GPT = {
    "Length": (52.2, 96.4, 96.2),
    "Depth": (27.2, 30.6, 38.9),
    "BigramShift": (69.3, 69.3, 80.7),
    "Tense": (88.6, 88.6, 89.0),
    "SubjNumber": (78.8, 78.8, 84.2),
    "ObjNumber": (71.2, 71.9, 80.5),
    "CoordinationInversion": (57.7, 60.7, 70.2),
}
LANGUAGE_MODELS = ("stories15M", "SmolLM2-135M")  # set beside GPT


def rows(run: str, model: str) -> pd.DataFrame:
    """The rows of one model in one run."""
    found = probes_of(run, model)
    table, controls = found.table(), found.controls()
    top = found.embeddings[found.embeddings["embedding"].str.startswith("top")].set_index("task")
    columns = {
        "test sentences": top["examples"].astype(int),
        "majority": 100 * table["majority"],
        "last layer": 100 * table["last"],
        "best layer": 100 * table["best"],
        "top heads": 100 * table["top"],
        "standard error of top": 100 * top["stderr"],
        "best head": 100 * controls["best head"],
        "its score with random labels": 100 * controls["best head, shuffled labels"],
        "mean of all heads": 100 * controls["mean head"],
        "mean with random weights": 100 * controls["mean head, random weights"],
    }
    made = pd.DataFrame({"model": model, **columns}, index=table.index)
    published = pd.DataFrame(GPT if model in LANGUAGE_MODELS else BERT).T
    return made.join(published.set_axis([f"published {name}" for name in ("last layer", "best layer", "top heads")], axis=1))


if __name__ == "__main__":
    parts = [
        rows(run, model)
        for run in sys.argv[1:]
        for model in dict.fromkeys(task["coords"]["model"] for task, _ in engine.open(run).results("probe-task"))
    ]
    made = pd.concat(parts).rename_axis("task").reset_index().round(4)
    print(made[["model", "task", *made.columns[2:]]].to_csv(index=False), end="")
