"""What is said of probes of every head."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise._base.inference import MIN_EXAMPLES
from headwise._base.sentences import NOT_SHOWN, number, synthetic_text
from headwise.figures import probing as figures
from headwise.sections import Chart, HeadMaps, Section, Table

if TYPE_CHECKING:
    from headwise.probing._results import Probes

# last layer / best layer / top-H heads of BERT-base (Jo and Myaeng 2020)
PUBLISHED = {
    "Length": (58.0, 87.8, 95.0),
    "WordContent": (25.2, 25.2, 73.1),
    "Depth": (29.8, 31.7, 38.3),
    "TopConstituents": (69.8, 74.7, 84.2),
    "BigramShift": (78.1, 78.1, 88.3),
    "Tense": (86.0, 87.0, 89.0),
    "SubjNumber": (82.0, 84.7, 88.2),
    "ObjNumber": (75.4, 75.4, 83.4),
    "OddManOut": (59.6, 59.6, 65.1),
    "CoordinationInversion": (65.5, 65.9, 74.6),
}


BARS_NOTE = f"Bars: 95 % intervals over test examples, where there are {MIN_EXAMPLES} or more."
SENTEVAL_TEST = 10_000  # sentences of each of its test sets


def section(probes: "Probes") -> Section:
    """The section of probes."""
    data, embeddings = probes.data, probes.embeddings
    table = last_best_top(embeddings, data)
    blocks: list[Table | Chart | HeadMaps] = [
        HeadMaps(
            "probes",
            "What every head knows",
            "probe score",
            probes.scores,
            caption="Test score of a probe on each head alone (1 is perfect). "
            "Choose a head to see its profile.",
        ),
        Chart("embeddings", "Layers and chosen heads", lambda: figures.embeddings(embeddings)),
    ]
    if len(probes.sweep):
        blocks.append(Chart("head-sweep", "Score over the number of heads", probes.sweep_plot, BARS_NOTE))
    blocks.append(
        Table(
            "probing",
            "Last layer, best layer, top heads, in percent",
            table,
            "All chosen on validation, scored on test.",
        )
    )
    published = {
        task: PUBLISHED[task] for task in table["task"] if task in PUBLISHED and _is_senteval(data, task)
    }
    if published:
        frame = pd.DataFrame(published, index=("last layer", "best layer", "top heads"))
        frame = frame.T.rename_axis("task").reset_index()
        blocks.append(
            Table(
                "probing-published",
                "Published, BERT-base",
                frame,
                "SentEval's own sentences; other text is another setting.",
            )
        )
    return Section(
        title="What each head knows",
        findings=findings(embeddings, data),
        blocks=blocks,
        methods="Multinomial logistic regression (ridge for numbers) on each head's output before the output "
        "projection, and on each layer's hidden state, at one token; L2 chosen on validation."
        f"{synthetic_text(probes.synthetic)}",
        settings={name: value for name, value in data.attrs.items() if name != "notes"},
        notes=data.attrs.get("notes", []),
    )


def _is_senteval(data: xr.Dataset, task: str) -> bool:
    """Whether a task was judged on a test set of SentEval's size: published figures stand beside the same
    data only."""
    return "n_test" in data and int(data["n_test"].sel(task=task)) == SENTEVAL_TEST


def last_best_top(embeddings: pd.DataFrame, data: xr.Dataset) -> pd.DataFrame:
    """One row per task, in percent."""
    wide = embeddings.pivot_table(index="task", columns="embedding", values="test", sort=False) * 100
    wide["best head"] = [100 * best_head(data.sel(task=task))[1] for task in wide.index]
    wide["majority"] = [100 * float(data["majority"].sel(task=task)) for task in wide.index]
    return wide.reset_index()


def best_head(task: xr.Dataset) -> tuple[str, float]:
    """The head that is best on validation, and its test score."""
    best: Any = task["validation"].argmax(("layer", "head"))
    return f"{int(best['layer'])}.{int(best['head'])}", float(task["test"].isel(best))


def findings(embeddings: pd.DataFrame, data: xr.Dataset) -> list[str]:
    """Where heads beat layers, and the head that knows most."""
    comparisons = [top_against(embeddings, layer) for layer in ("last", "best")]
    sentences = [sentence for sentence in comparisons if sentence]
    heads = {str(task): best_head(data.sel(task=task)) for task in data["task"].values}
    task = max(heads, key=lambda name: heads[name][1] - float(data["majority"].sel(task=name)))
    head, score = heads[task]
    majority = float(data["majority"].sel(task=task))
    if score > majority:
        sentences.append(
            f"On {task} the head best on validation, {head}, scores {number(100 * score)} % on test; a guess "
            f"that ignores the text scores {number(100 * majority)} %. (Of {len(heads)} "
            f"task{'s' * (len(heads) > 1)}, the one with the largest difference on these examples.)"
        )
    else:
        sentences.append(
            f"On none of {len(heads)} tasks does the head best on validation score more on test than a guess "
            "that ignores the text."
        )
    return sentences


def top_against(embeddings: pd.DataFrame, layer: str) -> str:
    """The top heads against the "last" or the "best" layer, task by task; empty where either is missing.

    A task counts as shown where the difference exceeds 1.96 standard errors over its 50 or more test
    examples, taken as if the two were judged on different examples: wider than paired, since they err on the
    same ones.
    """
    kinds = embeddings.assign(kind=embeddings["embedding"].str.split().str[0])
    if not {"top", layer} <= set(kinds["kind"]):
        return ""
    wide = kinds.pivot_table(index="task", columns="kind", values="test", sort=False)
    gain = wide["top"] - wide[layer]
    values = (
        f"The top heads concatenated are ahead of the {layer} layer on {int((gain > 0).sum())} of "
        f"{len(gain)} tasks, by {number(100 * gain.median())} points in the median"
    )
    if not {"stderr", "examples"} <= set(kinds) or kinds["stderr"].isna().any():
        return f"{values} (without standard errors, so nothing is said beyond these examples)."
    fewest = int(kinds["examples"].min())
    if fewest < MIN_EXAMPLES:
        return (
            f"{values} (of {fewest} test examples, {MIN_EXAMPLES} are needed: nothing is said beyond them)."
        )
    errors = kinds.pivot_table(index="task", columns="kind", values="stderr", sort=False)
    least = 1.96 * np.hypot(errors["top"], errors[layer])
    ahead, behind = int((gain > least).sum()), int((gain < -least).sum())
    undecided = len(gain) - ahead - behind
    return f"{values}: shown ahead on {ahead}, shown behind on {behind}; {NOT_SHOWN} on {undecided}."
