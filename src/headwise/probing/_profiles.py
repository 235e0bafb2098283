"""Parameter-free probes of one model on several word-level tasks, beside baselines that choose their best heads in the same way."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
import xarray as xr

from headwise._base.opener import fresh
from headwise.heads import Heads
from headwise.probing._items import ARC_KINDS
from headwise.probing._parameter_free import FreeProbe, fixed_offset, free_probe
from headwise.tasks import Task

BASELINES = ("random weights", "permuted labels", "fixed offset")


class Profile(NamedTuple):
    """What a model's heads give away of several tasks.

    Attributes:
        heads: (task, layer, head) score of every head on test, 0–1 (`FreeProbe.head_scores`).
        labels: subject, task, label, way, layer, head (chosen on validation), validation, precision, recall, f1, gold.
        summary: subject ("model" or a baseline), task, precision, recall, f1 (means over labels), labels (how many).
    """

    heads: xr.DataArray
    labels: pd.DataFrame
    summary: pd.DataFrame


def profile(
    model: Any,
    tokenizer: Any,
    tasks: Sequence[Task],
    *,
    baselines: Sequence[str] = BASELINES,
    examples: int | None = None,
    seed: int = 0,
    heads: Heads | None = None,
    **reading: Any,
) -> Profile:
    """Probes a model, tuned or not, on some word-level tasks.

    Args:
        model: an encoder or decoder of transformers.
        tokenizer: its tokenizer.
        tasks: word-level tasks with splits train, validation and test.
        baselines: some of BASELINES: the same architecture with random weights; the same model with shuffled labels; and for arcs a
            fixed distance between words. Each chooses its best head (or distance) per label on validation, as the model does.
        examples: at most so many sentences of every split.
        seed: of samples, random weights and shuffles.
        heads: the model's `Heads`, if made already.
        reading: batch_size, max_length, quiet: see `free_probe`.
    """
    heads = heads or Heads(model)
    shared: dict[str, Any] = {"examples": examples, "seed": seed, **reading}
    random = Heads(fresh(model, seed)) if "random weights" in baselines else None
    found: dict[tuple[str, str], FreeProbe] = {}
    for task in tasks:
        found["model", task.name] = free_probe(model, task, tokenizer, heads=heads, **shared)
        if random is not None:
            found["random weights", task.name] = free_probe(random.model, task, tokenizer, heads=random, **shared)
        if "permuted labels" in baselines:
            found["permuted labels", task.name] = free_probe(model, task, tokenizer, heads=heads, permuted=True, **shared)
        if "fixed offset" in baselines and task.kind in ARC_KINDS:
            found["fixed offset", task.name] = fixed_offset(task, examples=examples, seed=seed)
    labels, rows = [], []
    for (subject, name), probe in found.items():
        best = probe.best()
        labels.append(best.assign(subject=subject, task=name))
        rows.append(
            {"subject": subject, "task": name, **best[["precision", "recall", "f1"]].mean().to_dict(), "labels": len(best)}
        )
    table = pd.concat(labels, ignore_index=True)
    scores = [found["model", task.name].head_scores() for task in tasks]
    stacked = xr.concat(scores, pd.Index([task.name for task in tasks], name="task")).rename("score")
    return Profile(stacked, table[["subject", "task", *labels[0].columns[:-2]]], pd.DataFrame(rows))
