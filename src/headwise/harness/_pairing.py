"""Examples of two evaluations, paired: each metric of the intact and of the changed model, and their difference with its interval."""

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd

from headwise.errors import HeadwiseError
from headwise.lesions import mean_interval, resample_counts, why_none

Samples = Mapping[str, Sequence[Mapping[str, Any]]]  # by task, as lm-evaluation-harness logs them

COLUMNS = ["task", "filter", "metric", "intact", "changed", "difference", "low", "high", "examples", "note"]


def paired(intact: Samples, changed: Samples) -> tuple[pd.DataFrame, list[str]]:
    """One row per task, filter, metric and example with both models' values; and notes on metrics that have none per example.

    Raises:
        HeadwiseError: the two evaluations are not of the same examples.
    """
    rows: list[dict[str, Any]] = []
    left_out: dict[tuple[str, str], None] = {}
    for task, own in intact.items():
        others = {_place(sample): sample for sample in changed.get(task, ())}
        if len(others) != len(own) or {_place(sample) for sample in own} != set(others):
            raise HeadwiseError(
                f"the two evaluations of {task} are not of the same examples, so they cannot be paired"
            )
        for sample in own:
            other = others[_place(sample)]
            for metric in sample["metrics"]:
                values = [one.get(metric) for one in (sample, other)]
                if not all(isinstance(value, Number | np.generic) for value in values):
                    left_out[task, metric] = None
                    continue
                facts = {
                    "task": task,
                    "filter": sample["filter"],
                    "metric": metric,
                    "example": sample["doc_id"],
                }
                rows.append({**facts, "intact": float(values[0]), "changed": float(values[1])})  # type: ignore[arg-type]
    notes = [
        f"{metric} of {task} has no value per example, so it has no paired difference"
        for task, metric in left_out
    ]
    return pd.DataFrame(rows, columns=["task", "filter", "metric", "example", "intact", "changed"]), notes


def _place(sample: Mapping[str, Any]) -> tuple[Any, ...]:
    """What must agree between two evaluations of one example."""
    return sample["filter"], sample["doc_id"], sample.get("doc_hash"), sample.get("prompt_hash")


def summary(examples: pd.DataFrame, bootstrap: int, level: float, seed: int) -> pd.DataFrame:
    """Means of both models by task, filter and metric, and the paired difference with its interval over examples, or why it has none."""
    rows = []
    for (task, kept, metric), part in examples.groupby(["task", "filter", "metric"], sort=False):
        difference = (part["changed"] - part["intact"]).to_numpy()
        n = len(difference)
        counts = resample_counts(n, bootstrap, seed)
        draws = counts @ difference / n
        low, high = map(float, mean_interval(difference, counts, level))
        why = why_none(draws, level, examples=n)
        why = "no example differs between the two models" if why and not difference.any() else why
        means = {
            "intact": part["intact"].mean(),
            "changed": part["changed"].mean(),
            "difference": difference.mean(),
        }
        rows.append(
            {"task": task, "filter": kept, "metric": metric, **means, "low": low, "high": high, "examples": n}
        )
        rows[-1]["note"] = f"no interval: {why}" if why else ""
    return pd.DataFrame(rows, columns=COLUMNS)
