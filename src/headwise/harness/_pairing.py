"""Examples of two evaluations, paired: each metric of the intact and of the changed model, and their
difference with its interval."""

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd

from headwise.errors import HeadwiseError
from headwise.lesions import mean_interval, resample_counts, why_none

Samples = Mapping[str, Sequence[Mapping[str, Any]]]  # by task, as lm-evaluation-harness logs them

NUMBER = (Number, np.generic)
EXAMPLE_COLUMNS = ["task", "filter", "metric", "example", "intact", "changed"]
COLUMNS = ["task", "filter", "metric", "intact", "changed", "difference", "low", "high", "examples", "note"]


def paired(intact: Samples, changed: Samples) -> tuple[pd.DataFrame, list[str]]:
    """One row per task, filter, metric and example with both models' values; and notes on metrics without
    any.

    Raises:
        HeadwiseError: the two evaluations are not of the same examples.
    """
    rows: list[dict[str, Any]] = []
    unpaired: dict[tuple[str, str], None] = {}
    for task, samples in intact.items():
        changed_samples = {_identity(sample): sample for sample in changed.get(task, ())}
        identities = [_identity(sample) for sample in samples]
        if len(changed_samples) != len(samples) or set(identities) != set(changed_samples):
            raise HeadwiseError(
                f"the two evaluations of {task} are not of the same examples, so they cannot be paired"
            )
        for sample, identity in zip(samples, identities, strict=True):
            facts = {"task": task, "filter": sample["filter"], "example": sample["doc_id"]}
            for metric in sample["metrics"]:
                before: Any = sample.get(metric)
                after: Any = changed_samples[identity].get(metric)
                if not all(isinstance(value, NUMBER) for value in (before, after)):
                    unpaired[task, metric] = None
                    continue
                values = {"intact": float(before), "changed": float(after)}
                rows.append({**facts, "metric": metric, **values})
    notes = [
        f"{metric} of {task} has no value per example, so it has no paired difference"
        for task, metric in unpaired
    ]
    return pd.DataFrame(rows, columns=EXAMPLE_COLUMNS), notes


def _identity(sample: Mapping[str, Any]) -> tuple[Any, ...]:
    """What must agree between two evaluations of one example."""
    return sample["filter"], sample["doc_id"], sample.get("doc_hash"), sample.get("prompt_hash")


def summary(examples: pd.DataFrame, bootstrap: int, level: float, seed: int) -> pd.DataFrame:
    """Means of both models by task, filter and metric, and the paired difference with its interval over
    examples, or why it has none."""
    rows = []
    for group, values in examples.groupby(["task", "filter", "metric"], sort=False):
        difference = (values["changed"] - values["intact"]).to_numpy()
        n = len(difference)
        counts = resample_counts(n, bootstrap, seed)
        low, high = map(float, mean_interval(difference, counts, level))
        reason = why_none(counts @ difference / n, level, examples=n)
        if reason and not difference.any():
            reason = "no example differs between the two models"
        means = values["intact"].mean(), values["changed"].mean(), difference.mean()
        note = f"no interval: {reason}" if reason else ""
        rows.append((*group, *means, low, high, n, note))
    return pd.DataFrame(rows, columns=COLUMNS)
