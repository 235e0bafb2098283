"""The tables of a specialization study over models, task groups, methods and seeds; everything in percent."""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headwise._base.averages import common_average
from headwise._base.inference import false_discovery
from headwise.lesions import seed_interval, verdict
from headwise.studies._specialization_steps import SCORING

if TYPE_CHECKING:
    from headwise.heads import HeadSet

PLACE = ["model", "method", "alpha", "delta", "group"]  # what distinguishes trainings beside the seed
PLAIN = "multi-task"
LEVEL = 0.05


def coordinates(table: pd.DataFrame) -> list[str]:
    """What distinguishes the rows of a table of dissociations beside the seed."""
    return [*PLACE, SCORING] if SCORING in table else PLACE


def stacked(frames: Sequence[pd.DataFrame], coords: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Tables of single results as one, each row with the coordinates of its result."""
    labelled = [frame.assign(**frame_coords) for frame, frame_coords in zip(frames, coords, strict=True)]
    return pd.concat(labelled, ignore_index=True)


def marked(pairs: pd.DataFrame, weak: Collection[str]) -> pd.DataFrame:
    """`at_chance`: whether one of a pair's tasks is among those that are at chance when intact, so that its D
    says nothing."""
    return pairs.assign(at_chance=pairs["A"].isin(list(weak)) | pairs["B"].isin(list(weak)))


def corrected(pairs: pd.DataFrame) -> pd.DataFrame:
    """`p_fdr` over all pairs of one model, method and seed, also where every pair has a model of its own."""
    keys = [name for name in coordinates(pairs) if name != "group"]
    families = pairs.groupby([*keys, "seed"], sort=False)["p"]
    return pairs.assign(p_fdr=families.transform(lambda p: false_discovery(p.to_numpy(dtype=float))))


def pairs_over_seeds(pairs: pd.DataFrame) -> pd.DataFrame:
    """Table 9: every pair of every model, means over seeds, with the verdict on the means and how many seeds
    agree with it.

    `seeds_significant` counts the seeds whose test of D stands at 5 % after correction over pairs; empty
    where the test was not run. `seeds_at_chance` counts those in which a task is at chance when intact (see
    `tasks._chance`), so that their D says nothing.
    """
    rows = []
    keys = [*coordinates(pairs), "A", "B"]
    for coords, seeds in pairs.groupby(keys, sort=False):
        d_a, d_b = float(seeds["D_A"].mean()), float(seeds["D_B"].mean())
        mean_verdict = verdict(d_a / 100, d_b / 100)
        low, high = seed_interval(seeds["D"].to_numpy())
        weak = seeds["at_chance"] if "at_chance" in seeds else seeds["D_corrected"].isna()
        tested = "p_fdr" in seeds and bool(seeds["p_fdr"].notna().all())
        significant = float("nan")
        if tested:
            significant = float((seeds["p_fdr"] <= LEVEL).sum())
        rows.append(
            {
                **dict(zip(keys, coords, strict=True)),
                "D_A": d_a,
                "D_B": d_b,
                "D": float(seeds["D"].mean()),
                "D_sd": float(seeds["D"].std()),
                "D_seed_low": low,
                "D_seed_high": high,
                "D_corrected": float(seeds["D_corrected"].mean()),
                "overlap": float(seeds["overlap"].mean()),
                "verdict": mean_verdict,
                "seeds_agreeing": int((seeds["verdict"] == mean_verdict).sum()),
                "seeds_significant": significant,
                "seeds_at_chance": int(weak.sum()),
                "seeds": len(seeds),
            }
        )
    return pd.DataFrame(rows)


def grid(pairs: pd.DataFrame) -> pd.DataFrame:
    """Fig. 2: mean D of every model (rows; * = frozen encoder) on every pair (columns), and the average over
    the pairs that all of them have."""
    columns = [name for name in ("model", "method", SCORING) if name in pairs]
    labels = [label(*names) for names in pairs[columns].to_numpy()]
    labelled = pairs.assign(label=labels, pair=pairs["A"] + " – " + pairs["B"])
    wide = labelled.pivot_table(index="label", columns="pair", values="D", sort=False)
    return wide.assign(average=common_average(wide, "label")).reset_index()


def label(model: str, method: str, scoring: str | None = None) -> str:
    """A model with its method, as the paper writes it, and with the way its heads were scored."""
    if method == "frozen":
        name = f"{model}*"
    elif method == PLAIN:
        name = model
    else:
        name = f"{model} + {method}"
    return name if scoring is None else f"{name}, {scoring}"


def performance_over_seeds(performance: pd.DataFrame) -> pd.DataFrame:
    """Table 3: every task under every lesion, mean and standard deviation over seeds, in long form."""
    grouped = performance.groupby([*coordinates(performance), "lesion", "task"], sort=False)["value"]
    return grouped.agg(mean="mean", sd="std", seeds="count").reset_index()


def over_seeds(table: pd.DataFrame, keys: Sequence[str], values: Sequence[str]) -> pd.DataFrame:
    """Means over seeds of some columns (overlap of Table 11, heads per layer of Fig. 4)."""
    return table.groupby([*coordinates(table), *keys], sort=False)[list(values)].mean().reset_index()


def overall(summaries: pd.DataFrame) -> pd.DataFrame:
    """D of every result, seed by seed (Fig. 8 compares methods): the row "all" of each summary."""
    rows = summaries[summaries["task"] == "all"]
    columns = [*coordinates(rows), "seed", "D", "D low", "D high", "D corrected", "permutation_p"]
    return rows[columns].reset_index(drop=True)


def paradigms(pairs: pd.DataFrame, two_texts: Mapping[str, bool]) -> pd.DataFrame:
    """Mean D of pairs of tasks with the same and with different input paradigms (one text or two), for every
    model (§6.2)."""
    differs = [two_texts[a] != two_texts[b] for a, b in zip(pairs["A"], pairs["B"], strict=True)]
    table = pairs.assign(paradigm=np.where(differs, "different", "same"))
    keys = [name for name in coordinates(table) if name != "group"]
    grouped = table.groupby([*keys, "paradigm"], sort=False)["D"]
    return grouped.agg(D="mean", rows="count").reset_index()


def scorings(
    d: pd.DataFrame, head_sets: "Sequence[Mapping[str, HeadSet]]", layers: Sequence[int]
) -> pd.DataFrame:
    """How D depends on the way heads are scored: one row per scoring and seed.

    `overlap_of_tasks` is the share of heads that two tasks have in common, mean over pairs;
    `overlap_with_first` the share of a task's heads that the first scoring of the same model chooses too,
    mean over tasks; `last_layer` how many heads of a task lie in the last layer.

    Args:
        d: one row per result, as `overall` gives it.
        head_sets: of each of those results, the heads of every task.
        layers: of each, how many layers its model has.
    """
    first: dict[tuple[Any, ...], Mapping[str, HeadSet]] = {}
    rows = []
    for row, sets, depth in zip(d.to_dict("records"), head_sets, layers, strict=True):
        first_sets = first.setdefault((*(row[name] for name in PLACE), row["seed"]), sets)
        pairs = [len(set(a) & set(b)) / len(a) for a, b in combinations(sets.values(), 2)]
        same = [len(set(sets[task]) & set(first_sets[task])) / len(first_sets[task]) for task in sets]
        last = [len(heads.layers().get(depth - 1, ())) for heads in sets.values()]
        row |= {
            "overlap_of_tasks": 100 * np.mean(pairs),
            "overlap_with_first": 100 * np.mean(same),
            "last_layer": np.mean(last),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def averages(scores: pd.DataFrame) -> pd.DataFrame:
    """Average performance of every method, α and δ (Figs. 9, 10; Table 7) over the tasks that all of one
    model and group have, and on how many of the tasks that it and plain training have it is better.

    Args:
        scores: one row per place, seed, task and split: `score`, a share.
    """
    rows = scores[scores["split"] == "validation"]
    setting = ["method", "alpha", "delta"]
    frames = []
    model: Any
    group: Any
    for (model, group), group_rows in rows.groupby(["model", "group"], sort=False):
        wide = 100 * group_rows.pivot_table(
            index=[*setting, "seed"], columns="task", values="score", sort=False
        )
        by_seed = common_average(wide, setting).groupby(level=setting, sort=False)
        frames.append(
            by_seed.agg(average="mean", sd="std", seeds="count")
            .reset_index()
            .assign(model=model, group=group)
        )
    table = pd.concat(frames, ignore_index=True)[[*PLACE, "average", "sd", "seeds"]]
    by_task: dict[Any, float] = dict(rows.groupby([*PLACE, "task"], sort=False)["score"].mean().items())
    improved: list[float] = []
    for row in table.to_dict("records"):
        coords = tuple(row[name] for name in PLACE)
        task_scores = {key[-1]: score for key, score in by_task.items() if key[:-1] == coords}
        plain = (row["model"], PLAIN, row["group"])
        base = {key[-1]: score for key, score in by_task.items() if (key[0], key[1], key[4]) == plain}
        if base and row["method"] != PLAIN:
            improved.append(
                float(sum(task_scores[task] > base[task] for task in task_scores if task in base))
            )
        else:
            improved.append(float("nan"))
    return table.assign(tasks_improved=improved)
