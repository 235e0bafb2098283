"""Tables of a training study: tasks × methods over seeds, and how far each method is from plain training."""

import pandas as pd

from headwise._base.inference import t_interval, why_no_t


def table_of(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per model, sampling, method, split and task, scores in percent; the task "average" is the mean over tasks.

    Args:
        scores: one row per model, sampling, method, seed, split and task.
    """
    keys = ["model", "sampling", "method", "split"]
    labelled = scores.dropna(subset="score")
    average = labelled.groupby([*keys, "seed"], sort=False)["score"].mean().reset_index().assign(task="average")
    rows = pd.concat([labelled, average], ignore_index=True)
    grouped = (100 * rows.set_index([*keys, "task"])["score"]).groupby(level=[*keys, "task"], sort=False)
    return grouped.agg(mean="mean", sd="std", seeds="count").reset_index()


def differences_of(scores: pd.DataFrame, base: str = "multi-task") -> pd.DataFrame:
    """How far each method is from `base`, in points: one row per model, sampling, split, method and task, paired by seed.

    Args:
        scores: one row per model, sampling, method, seed, split and task; a task "average" is added.
        base: what the others are compared with.

    Returns:
        the mean over seeds with its t interval (95 %), the number of seeds both methods have, and why there is no interval, if so.
    """
    keys = ["model", "sampling", "split"]
    rows = []
    for place, some in scores.dropna(subset="score").groupby(keys, sort=False):
        table = 100 * some.pivot_table(index=["method", "seed"], columns="task", values="score", sort=False)
        table["average"] = table.mean(axis=1)
        methods = list(dict.fromkeys(some["method"]))
        for method in [name for name in methods if name != base and base in methods]:
            for task, each in (table.loc[method] - table.loc[base]).items():
                values = each.dropna().to_numpy()
                low, high = t_interval(values)
                found = {"difference": values.mean(), "low": float(low), "high": float(high), "seeds": len(values)}
                found["note"] = f"no interval: {why}" if (why := why_no_t(values, "seed")) else ""
                rows.append({**dict(zip(keys, place, strict=True)), "method": method, "task": task, **found})
    return pd.DataFrame(rows, columns=[*keys, "method", "task", "difference", "low", "high", "seeds", "note"])
