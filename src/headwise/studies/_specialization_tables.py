"""The tables of a specialization study over models, task groups, methods and seeds; everything in percent."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from headwise.lesions._dissociation import verdict
from headwise.lesions._statistics import seed_interval

PLACE = ["model", "method", "alpha", "delta", "group"]  # what distinguishes results beside the seed
PLAIN = "multi-task"


def stacked(frames: Sequence[pd.DataFrame], places: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Tables of single results as one, each row with its place."""
    return pd.concat([frame.assign(**place) for frame, place in zip(frames, places, strict=True)], ignore_index=True)


def pairs_over_seeds(pairs: pd.DataFrame) -> pd.DataFrame:
    """Table 9: every pair of every model, means over seeds, with the verdict on the means and how many seeds agree with it."""
    rows = []
    for place, some in pairs.groupby([*PLACE, "A", "B"], sort=False):
        d_a, d_b = float(some["D_A"].mean()), float(some["D_B"].mean())
        said = verdict(d_a / 100, d_b / 100)
        low, high = seed_interval(some["D"].to_numpy())
        rows.append(
            {
                **dict(zip([*PLACE, "A", "B"], place, strict=True)),
                "D_A": d_a,
                "D_B": d_b,
                "D": float(some["D"].mean()),
                "D_sd": float(some["D"].std()),
                "D_seed_low": low,
                "D_seed_high": high,
                "D_corrected": float(some["D_corrected"].mean()),
                "overlap": float(some["overlap"].mean()),
                "verdict": said,
                "seeds_agreeing": int((some["verdict"] == said).sum()),
                "seeds": len(some),
            }
        )
    return pd.DataFrame(rows)


def grid(pairs: pd.DataFrame) -> pd.DataFrame:
    """Fig. 2: mean D of every model (rows; * = frozen encoder) on every pair (columns), and the average over pairs."""
    labels = [label(model, method) for model, method in zip(pairs["model"], pairs["method"], strict=True)]
    labelled = pairs.assign(label=labels, pair=pairs["A"] + " – " + pairs["B"])
    wide = labelled.pivot_table(index="label", columns="pair", values="D", sort=False)
    return wide.assign(average=wide.mean(axis=1)).reset_index()


def label(model: str, method: str) -> str:
    """A model with its method, as the paper writes it."""
    if method == "frozen":
        return f"{model}*"
    return model if method == PLAIN else f"{model} + {method}"


def performance_over_seeds(performance: pd.DataFrame) -> pd.DataFrame:
    """Table 3: every task under every lesion, mean and standard deviation over seeds, in long form."""
    grouped = performance.groupby([*PLACE, "lesion", "task"], sort=False)["value"]
    return grouped.agg(mean="mean", sd="std", seeds="count").reset_index()


def over_seeds(table: pd.DataFrame, keys: Sequence[str], values: Sequence[str]) -> pd.DataFrame:
    """Means over seeds of some columns (overlap of Table 11, heads per layer of Fig. 4)."""
    return table.groupby([*PLACE, *keys], sort=False)[list(values)].mean().reset_index()


def overall(summaries: pd.DataFrame) -> pd.DataFrame:
    """D of every result, seed by seed (Fig. 8 compares methods): the row "all" of each summary."""
    rows = summaries[summaries["task"] == "all"]
    return rows[[*PLACE, "seed", "D", "D low", "D high", "D corrected", "permutation_p"]].reset_index(drop=True)


def paradigms(pairs: pd.DataFrame, two_texts: Mapping[str, bool]) -> pd.DataFrame:
    """Mean D of pairs of tasks with the same and with different input paradigms (one text or two), for every model (§6.2)."""
    differs = [two_texts[a] != two_texts[b] for a, b in zip(pairs["A"], pairs["B"], strict=True)]
    table = pairs.assign(paradigm=np.where(differs, "different", "same"))
    return (
        table.groupby(["model", "method", "alpha", "delta", "paradigm"], sort=False)["D"]
        .agg(D="mean", rows="count")
        .reset_index()
    )


def averages(scores: pd.DataFrame) -> pd.DataFrame:
    """Average performance over tasks of every method, α and δ (Figs. 9, 10; Table 7), and on how many tasks it beats plain training.

    Args:
        scores: one row per place, seed, task and split: `score`, a share.
    """
    rows = scores[scores["split"] == "validation"]
    by_seed = 100 * rows.groupby([*PLACE, "seed"], sort=False)["score"].mean()
    table = by_seed.groupby(level=PLACE, sort=False).agg(average="mean", sd="std", seeds="count").reset_index()
    by_task: dict[Any, float] = dict(rows.groupby([*PLACE, "task"], sort=False)["score"].mean().items())
    improved: list[float] = []
    for row in table.to_dict("records"):
        own = {key[-1]: value for key, value in by_task.items() if key[:-1] == tuple(row[name] for name in PLACE)}
        here = (row["model"], PLAIN, row["group"])
        base = {key[-1]: value for key, value in by_task.items() if (key[0], key[1], key[4]) == here}
        known = base and row["method"] != PLAIN
        improved.append(float(sum(own[task] > base[task] for task in own)) if known else float("nan"))
    return table.assign(tasks_improved=improved)
