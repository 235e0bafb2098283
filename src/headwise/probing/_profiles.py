"""Parameter-free probes of one model on several word-level tasks, beside baselines that choose their best
heads in the same way."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import xarray as xr

from headwise._base.opener import fresh
from headwise._base.sentences import number
from headwise.heads import Heads
from headwise.models import open_model
from headwise.probing._items import FORMS
from headwise.probing._parameter_free import FreeProbe, fixed_offset, free_probe
from headwise.probing._settings import Profiling
from headwise.sections import Described, Section, Table
from headwise.settings import operation
from headwise.tasks import Task, as_tasks


@dataclass(frozen=True, repr=False)
class Profile(Described):
    """What a model's heads give away of several tasks.

    Attributes:
        heads: (task, layer, head) score of every head on test, 0–1 (`FreeProbe.head_scores`).
        labels: subject, task, label, way, layer, head (chosen on validation), validation, precision, recall,
            f1, gold.
        summary: subject ("model" or a baseline), task, precision, recall, f1 (means over labels), labels (how
            many).
    """

    heads: xr.DataArray
    labels: pd.DataFrame
    summary: pd.DataFrame

    def section(self, labels: bool = False) -> Section:
        """What is said of the profile.

        Args:
            labels: show the best head of every label as well, where room is short.
        """
        shares = ["precision", "recall", "f1"]
        subjects = ["task", "subject", *shares, "labels"]
        summary = self.summary.assign(**{name: 100 * self.summary[name] for name in shares})[subjects]
        best = self.labels[self.labels["subject"] == "model"].drop(columns="subject")
        best = best.assign(**{name: 100 * best[name] for name in shares if name in best})
        means = summary[summary["subject"] == "model"]
        values = ", ".join(f"{row.task} {number(row.f1)} %" for row in means.itertuples())
        return Section(
            title="Best head per label",
            findings=[f"Mean F1 over labels on test, by the best head of each: {values}."],
            blocks=[
                Table("summary", "Means over labels on test, %", summary.sort_values("task", kind="stable")),
                Table("labels", "Best head of every label, %", best, detail=not labels),
                Table(
                    "every-label", "Best head of every label, baselines too, shares", self.labels, detail=True
                ),
            ],
            methods="Nothing is trained: centroids from train, heads chosen on validation; "
            "baselines choose theirs in the same way.",
        )


@operation(Profiling)
def profile(model: Any, tasks: Task | Iterable[Task], settings: Profiling) -> Profile:
    """Probes a model, tuned or not, on some word-level tasks; nothing is trained.

    Args:
        model: a folder, hub id, live transformers model, or `MultiTaskModel`.
        tasks: word-level tasks with splits train, validation and test.
    """
    tasks, baselines = as_tasks(tasks), settings.baselines
    opened = open_model(
        model,
        need="encoder",
        device="auto",
        dtype="float32",
        trust_remote_code=settings.trust_remote_code,
        tokenizer=settings.tokenizer,
    )
    encoder, tokenizer = opened.encoder, settings.tokenizer or opened.tokenizer
    heads = Heads(encoder)
    shared: dict[str, Any] = {
        name: getattr(settings, name) for name in ("examples", "seed", "batch_size", "max_length", "quiet")
    }
    random = Heads(fresh(encoder, settings.seed)) if "random weights" in baselines else None
    scores, labels, rows = [], [], []
    for task in tasks:
        probes: dict[str, FreeProbe] = {"model": free_probe(encoder, task, tokenizer, heads=heads, **shared)}
        if random is not None:
            probes["random weights"] = free_probe(random.model, task, tokenizer, heads=random, **shared)
        if "permuted labels" in baselines:
            probes["permuted labels"] = free_probe(
                encoder, task, tokenizer, heads=heads, permuted=True, **shared
            )
        if "fixed offset" in baselines and FORMS[task.kind].shuffle is not None:
            probes["fixed offset"] = fixed_offset(task, examples=settings.examples, seed=settings.seed)
        scores.append(probes["model"].head_scores())
        for subject, probe in probes.items():
            best = probe.best()
            means = best[["precision", "recall", "f1"]].mean().to_dict()
            labels.append(best.assign(subject=subject, task=task.name))
            rows.append({"subject": subject, "task": task.name, **means, "labels": len(best)})
    table = pd.concat(labels, ignore_index=True)
    stacked = xr.concat(scores, pd.Index([task.name for task in tasks], name="task")).rename("score")
    return Profile(stacked, table[["subject", "task", *labels[0].columns[:-2]]], pd.DataFrame(rows))
