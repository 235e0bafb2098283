"""Few-shot transfer (Tables 6 and 8): do models trained in one way learn a new task from fewer examples than others?"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from headwise.errors import HeadwiseError

MIN_SOURCES = 3  # thirty seeds from one checkpoint are not thirty models
Array = NDArray[np.float64]


def summary(scores: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation of the few-shot scores, in the layout of Table 6: rows (task, method), columns shots.

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


def compare(
    scores: pd.DataFrame,
    baseline: str,
    *,
    draws: int = 9999,
    seed: int = 0,
    alternative: Literal["two-sided", "greater"] = "two-sided",
) -> pd.DataFrame:
    """Each method against `baseline` by a paired bootstrap over seeds nested in source models (methods: §5).

    Sources are drawn first, then the seeds within each: the k-th source of the two methods is drawn together (they share their
    training seed), and so are the few-shot seeds (they share their examples). With fewer than three sources per method there is no
    p-value: one checkpoint says nothing about others.

    Args:
        scores: as for `summary`; every method needs the same sources' places (`source` is 0, 1, ...) and the same seeds.
        baseline: the method the others are compared with.
        draws, seed: of the bootstrap.
        alternative: "greater" tests whether a method is better than the baseline.

    Returns:
        one row per (task, shots, method): difference in points, its 95 % interval, p, q (false discovery rate over all rows).
    """
    if baseline not in set(scores["method"]):
        raise HeadwiseError(f"no scores of the baseline {baseline!r}; there are: {', '.join(dict.fromkeys(scores['method']))}")
    rows = []
    for (task, shots), cell in scores.groupby(["task", "shots"], sort=False):
        base = _grid(cell, baseline)
        for method in dict.fromkeys(cell["method"]):
            if method == baseline:
                continue
            grid = _grid(cell, method)
            if grid.shape != base.shape:
                raise HeadwiseError(
                    f"{method} has {grid.shape[0]} sources with {grid.shape[1]} seeds on {task}, {baseline} has {base.shape[0]} with "
                    f"{base.shape[1]}: a paired comparison needs the same"
                )
            means = nested_bootstrap(grid - base, draws, seed)
            low, high = np.quantile(means, [0.025, 0.975])
            tested = len(grid) >= MIN_SOURCES
            rows.append(
                {
                    "task": task,
                    "shots": shots,
                    "method": method,
                    "baseline": baseline,
                    "difference": 100 * float((grid - base).mean()),
                    "low": 100 * float(low),
                    "high": 100 * float(high),
                    "p": bootstrap_p(means, alternative) if tested else float("nan"),
                    "sources": len(grid),
                    "seeds": grid.shape[1],
                }
            )
    table = pd.DataFrame(rows)
    if len(table):
        table["q"] = np.nan
        known = table["p"].notna()
        if known.any():
            table.loc[known, "q"] = false_discovery_control(table.loc[known, "p"].to_numpy())
    return table


def nested_bootstrap(differences: Array, draws: int, seed: int) -> Array:
    """(sources, seeds) paired differences → (draws,) means of samples of sources, and of seeds within each drawn source."""
    rng = np.random.default_rng(seed)
    sources, seeds = differences.shape
    which = rng.integers(sources, size=(draws, sources))  # (draws, sources)
    within = rng.integers(seeds, size=(draws, sources, seeds))  # (draws, sources, seeds)
    return differences[which[..., None], within].mean((1, 2))


def bootstrap_p(means: Array, alternative: str) -> float:
    """How often the bootstrap crosses zero, the observed sample counted in."""
    below = (1 + int((means <= 0).sum())) / (1 + len(means))
    above = (1 + int((means >= 0).sum())) / (1 + len(means))
    return below if alternative == "greater" else min(1.0, 2 * min(below, above))


def _grid(cell: pd.DataFrame, method: str) -> Array:
    table = cell[cell["method"] == method].pivot(index="source", columns="seed", values="score")
    if table.isna().any().any():
        raise HeadwiseError(f"{method} lacks some seeds of some sources on {cell['task'].iloc[0]}: run the missing ones first")
    return table.to_numpy(float)


def transfer(
    sources: Mapping[str, Sequence[Any]],
    tasks: Sequence[Any],
    *,
    shots: Sequence[int] = (4, 16, 32, 100),
    seeds: int = 30,
    settings: Any = None,
    evaluate: int | None = None,
    device: str | None = None,
    progress: bool = True,
) -> Iterator[pd.DataFrame]:
    """Fine-tunes every source model on few examples of every task; yields the scores of one (source, task, shots) at a time.

    Args:
        sources: by method, trained multi-task models or the folders they were saved in; at least three per method for a test.
        tasks: new tasks, of kind classes or number.
        shots: training examples in all.
        seeds: fine-tunings per source, task and number of shots; the same examples for every method and source.
        settings: `FewShotSettings`.
        evaluate: evaluate on at most this many held-out examples (the same for all); None: on all.
        device: "cuda", "cpu"; None: where the models are, or a GPU if there is one for models read from folders.
        progress: show progress bars.
    """
    from headwise.training.fewshot import FewShotSettings, few_shot

    settings = settings or FewShotSettings()
    for method, models in sources.items():
        for number, given in enumerate(models):
            model = open_model(given, device)
            for task in tasks:
                held_out = task.split("validation" if "validation" in task.splits else "test")
                if evaluate is not None:
                    held_out = held_out.sample(evaluate)
                for k in shots:
                    result = few_shot(model, task, k, range(seeds), settings, evaluate_on=held_out, progress=progress)
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


def open_model(given: Any, device: str | None = None) -> Any:
    """A multi-task model, from itself or from the folder it was saved in."""
    if not isinstance(given, str) and not hasattr(given, "__fspath__"):
        return given.to(device) if device else given
    import torch

    from headwise.loading import load

    return load(given).to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
