"""Few-shot transfer (Tables 6 and 8): do models trained in one way learn a new task from fewer examples than
others?"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise._base.inference import MIN_TESTED, SAME, crossed_t, false_discovery, sign_flip_p
from headwise.errors import HeadwiseError
from headwise.settings import operation
from headwise.training import FewShot, Transfer

Array = NDArray[np.float64]


def summary(scores: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation of the few-shot scores, in the layout of Table 6: rows (task, method),
    columns shots.

    Args:
        scores: one row per fine-tuning: method, source, task, shots, seed, score (0–1).

    Returns:
        one row per (task, method, shots): mean, sd, runs, sources; in percent.
    """
    grouped = scores.groupby(["task", "method", "shots"], sort=False)
    table = grouped["score"].agg(mean="mean", sd="std", runs="size")
    table[["mean", "sd"]] *= 100
    table["sources"] = grouped["source"].nunique()
    return table.reset_index()


def compare_transfers(
    scores: pd.DataFrame, baseline: str, *, alternative: Literal["two-sided", "greater"] = "two-sided"
) -> pd.DataFrame:
    """Each method against `baseline`, paired; the unit is the source model (methods: §5).

    Thirty few-shot seeds of one checkpoint are not thirty models: scores are averaged over the seeds of each
    source, and methods compared over sources (the k-th sources of two methods share their training seed). The
    few-shot examples are the same for all sources, so what they have in common does not average out: the
    interval counts them as drawn too (`inference.crossed_t`).

    Args:
        scores: as for `summary`; every method needs the same sources' places (`source` is 0, 1, ...) and the
            same seeds.
        baseline: the method the others are compared with.
        alternative: "greater" tests whether a method is better than the baseline.

    Returns:
        one row per (task, shots, method): difference in points with its 95 % interval (NaN for one source);
        p, the larger of the exact sign-flip test over sources and the t of the crossed design; q (false
        discovery rate over all rows); unit, sources, seeds; and `note`, why there is no p (below six sources
        no sign-flip test can reach 5 %) or no interval.
    """
    if baseline not in set(scores["method"]):
        raise HeadwiseError(
            f"no scores of the baseline {baseline!r}; there are: {', '.join(dict.fromkeys(scores['method']))}"
        )
    rows = []
    for (task, shots), cell in scores.groupby(["task", "shots"], sort=False):
        base = _grid(cell, baseline)
        for method in dict.fromkeys(cell["method"]):
            if method == baseline:
                continue
            grid = _grid(cell, method)
            if grid.shape != base.shape:
                raise HeadwiseError(
                    f"{method} has {grid.shape[0]} sources with {grid.shape[1]} seeds on {task}, {baseline} "
                    f"has {base.shape[0]} with {base.shape[1]}: a paired comparison needs the same"
                )
            test = difference(grid - base, alternative)
            coords = {"task": task, "shots": shots, "method": method, "baseline": baseline}
            rows.append(
                {**coords, **test, "unit": "source model", "sources": len(grid), "seeds": grid.shape[1]}
            )
    table = pd.DataFrame(rows)
    if len(table):
        table["q"] = false_discovery(table["p"].to_numpy())
        table["note"] = [_note(n, low) for n, low in zip(table["sources"], table["low"], strict=True)]
    return table


def _note(sources: int, low: float) -> str:
    """Why a comparison over `sources` source models has no p, and no lower bound `low`; empty where it has
    both."""
    notes = []
    if sources < MIN_TESTED:
        models = f"{sources} source model{'s' * (sources > 1)} of each method"
        interval = " (and 2 for an interval)" * (sources < 2)
        notes.append(f"no p: {models}, {MIN_TESTED} are needed{interval}")
    if sources > 1 and not np.isfinite(low):
        notes.append(f"no interval: {SAME.format(unit='source and seed')}")
    return "; ".join(notes)


def difference(grid: Array, alternative: Literal["two-sided", "greater"] = "two-sided") -> dict[str, float]:
    """The mean of paired differences (sources, seeds) in points, its 95 % interval, and p (NaN below six
    sources)."""
    mean = float(grid.mean())
    low, high, both = (float(value) for value in crossed_t(grid))
    flipped = sign_flip_p(grid.mean(1), alternative)
    if alternative == "greater":
        both = both / 2 if mean > 0 else 1 - both / 2
    p = float("nan")
    if not np.isnan(flipped):
        p = max(flipped, both)
    return {"difference": 100 * mean, "low": 100 * low, "high": 100 * high, "p": p}


def _grid(cell: pd.DataFrame, method: str) -> Array:
    table = cell[cell["method"] == method].pivot(index="source", columns="seed", values="score")
    if table.isna().any().any():
        raise HeadwiseError(
            f"{method} lacks some seeds of some sources on {cell['task'].iloc[0]}: run the missing ones first"
        )
    return table.to_numpy(float)


def held_out_examples(task: Any, size: int | None) -> Any:
    """The validation split of a task, or its test split where it has none; a sample of it where a size is
    set."""
    split = task.split("validation" if "validation" in task.splits else "test")
    return split if size is None else split.sample(size)


@operation(Transfer)
def transfer(
    sources: Mapping[str, Sequence[Any]], tasks: Sequence[Any], settings: Transfer
) -> Iterator[pd.DataFrame]:
    """Fine-tunes every source model on few examples of every task; yields the scores of one (source, task,
    shots) at a time.

    Args:
        sources: by method, trained multi-task models or the folders they were saved in (whatever `open_model`
            takes); six or more per method for a test.
        tasks: new tasks, of kind classes or number.
    """
    from headwise.models import open_model
    from headwise.training import few_shot

    for method, models in sources.items():
        for number, source in enumerate(models):
            model = open_model(source, need="encoder", device=settings.device or "auto", dtype="float32")
            for task in tasks:
                held_out = held_out_examples(task, settings.evaluate)
                how = settings.part(FewShot) | {"evaluate_on": held_out}
                for k in settings.shots:
                    result = few_shot(model, task, k, range(settings.seeds), **how)
                    yield pd.DataFrame(
                        {
                            "method": method,
                            "source": number,
                            "task": task.name,
                            "shots": k,
                            "seed": result["seed"].values,
                            "score": result["score"].values,
                            "examples": len(held_out),
                            "note": result.attrs["note"],
                        }
                    )
