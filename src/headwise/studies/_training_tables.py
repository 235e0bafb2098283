"""Tables of a training study: tasks × methods over seeds, and how far each method is from plain training."""

from typing import Any

import pandas as pd

from headwise._base.averages import common_average, common_columns
from headwise._base.inference import t_interval, why_no_t

PLACE = ["model", "sampling", "split"]  # within which methods are compared


def table_of(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per model, sampling, method, split and task, scores in percent; `tasks` says over how many
    tasks a row is.

    The task "average" is the mean over the tasks that all methods of the same model, sampling and split have;
    a seed that lacks one of them does not count.

    Args:
        scores: one row per model, sampling, method, seed, split and task.
    """
    keys = ["model", "sampling", "method", "split"]
    rows = [scores.dropna(subset="score")[[*keys, "seed", "task", "score"]].assign(tasks=1)]
    for setting, setting_scores in rows[0].groupby(PLACE, sort=False):
        shared: dict[str, Any] = dict(zip(PLACE, setting, strict=True))
        wide = _wide(setting_scores)
        average = common_average(wide).rename("score").reset_index().dropna(subset="score")
        rows.append(average.assign(**shared, task="average", tasks=len(common_columns(wide))))
    grouped = pd.concat(rows, ignore_index=True).assign(score=lambda frame: 100 * frame["score"])
    by = grouped.groupby([*keys, "task"], sort=False)
    return (
        by["score"].agg(mean="mean", sd="std", seeds="count").assign(tasks=by["tasks"].first()).reset_index()
    )


def differences_of(scores: pd.DataFrame, base: str = "multi-task") -> pd.DataFrame:
    """How far each method is from `base`, in points: one row per model, sampling, split, method and task,
    paired by seed.

    Args:
        scores: one row per model, sampling, method, seed, split and task; a task "average" is added, over the
            `tasks` that both have.
        base: what the others are compared with.

    Returns:
        the mean over seeds with its t interval (95 %), the number of seeds both methods have, the number of
        tasks the row is over, and why there is no interval, if so. A task that one of the two lacks has no
        row, and where they share none there is no average.
    """
    rows = []
    for setting, setting_scores in scores.dropna(subset="score").groupby(PLACE, sort=False):
        table = 100 * _wide(setting_scores)
        methods = list(dict.fromkeys(setting_scores["method"]))
        for method in [name for name in methods if name != base and base in methods]:
            pair = table.loc[[method, base]]
            tasks = common_columns(pair)
            pair = pair[tasks].assign(average=common_average(pair))
            for task, each in (pair.loc[method] - pair.loc[base]).items():
                values = each.dropna().to_numpy()
                if not len(values):
                    continue
                low, high = t_interval(values)
                row = {
                    "difference": values.mean(),
                    "low": float(low),
                    "high": float(high),
                    "seeds": len(values),
                }
                row |= {"tasks": len(tasks) if task == "average" else 1}
                row["note"] = f"no interval: {why}" if (why := why_no_t(values, "seed")) else ""
                rows.append({**dict(zip(PLACE, setting, strict=True)), "method": method, "task": task, **row})
    return pd.DataFrame(
        rows, columns=[*PLACE, "method", "task", "difference", "low", "high", "seeds", "tasks", "note"]
    )


def _wide(scores: pd.DataFrame) -> pd.DataFrame:
    """Methods and seeds × tasks."""
    return scores.pivot_table(index=["method", "seed"], columns="task", values="score", sort=False)
