"""Several methods and seeds: their trainings one after another, with shared beginnings shared, and the table that compares them."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headwise.errors import HeadwiseError
from headwise.parsing import whole_number
from headwise.tasks import Task
from headwise.training.api import read_options, train
from headwise.training.methods import METHODS, Method, option_names
from headwise.training.methods.iat import ImportantHeads
from headwise.training.methods.prune import PruneLeast
from headwise.training.result import TrainingResult
from headwise.training.settings import TrainingSettings


@dataclass(frozen=True)
class Comparison:
    """Results of methods × seeds.

    Attributes:
        results: by (method, seed).
    """

    results: dict[tuple[str, int], TrainingResult]

    @property
    def scores(self) -> pd.DataFrame:
        """One row per method, seed, task and split."""
        parts = [result.scores.assign(method=method, seed=seed) for (method, seed), result in self.results.items()]
        return pd.concat(parts, ignore_index=True)

    def table(self, split: str = "validation") -> pd.DataFrame:
        """Tasks × methods in percent, "mean ± sd" over seeds; the last row is the average over tasks. What is at chance says so."""
        rows = self.scores[self.scores["split"] == split]
        wide = rows.pivot_table(index=["seed", "method"], columns="task", values="score", sort=False) * 100
        wide["average"] = wide.mean(axis=1)
        by_method = wide.groupby("method", sort=False)
        mean, sd = by_method.mean(), by_method.std()  # sd over seeds, n - 1
        at_chance = rows.groupby(["method", "task"])["at_chance"].agg(["sum", "size"])
        text = {
            method: {
                task: _cell(mean.loc[method, task], sd.loc[method, task])
                + (_mark(*at_chance.loc[(method, task)]) if (method, task) in at_chance.index else "")
                for task in wide.columns
            }
            for method in mean.index
        }
        return pd.DataFrame(text).rename_axis("task")


def _cell(mean: Any, sd: Any) -> str:
    return f"{mean:.1f}" if pd.isna(sd) else f"{mean:.1f} ± {sd:.1f}"


def _mark(at_chance: int, seeds: int) -> str:
    """What a cell says of a task that did no better than a guess."""
    if not at_chance:
        return ""
    return " at chance" if at_chance == seeds else f" ({at_chance} of {seeds} seeds at chance)"


def compare(
    model: str | Path,
    tasks: Sequence[Task],
    methods: Sequence[str],
    *,
    seeds: int | Sequence[int] = 3,
    out: str | Path,
    also: Mapping[str, Task] | None = None,
    predict: Sequence[str] = (),
    pooling: str | None = None,
    **settings: Any,
) -> Comparison:
    """Trains every method with every seed into `out`/method/seed-n (one method and one seed: into `out` itself); what is there
    already is read back.

    Methods that are plain multi-task training until their last δ start from one checkpoint of it, so that their comparison is
    paired (and the common part is computed once).

    Args:
        model: a hub id or a folder.
        tasks, also, predict, pooling: as for `train`.
        methods: names of `METHODS`.
        seeds: how many (0, 1, ...), or which.
        out: the folder of all results.
        settings: as for `train`; an option goes to every method that has it.
    """
    out = Path(out)
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    every = {name for method in methods for name in option_names(method)}
    results: dict[tuple[str, int], TrainingResult] = {}
    shared: Any = {"also": also, "predict": predict, "pooling": pooling}
    for seed in chosen:
        options = {method: _options(method, every, {**settings, "seed": seed}) for method in methods}
        made = {method: read_options(method, options[method]) for method in methods}
        common = out / "branches" / f"seed-{seed}"
        until = {method: branch_of(made[method][0], steps_of(tasks, made[method][1])) for method in methods}
        for method in sorted(methods, key=lambda name: -(until[name] or 0)):  # the one that stays plain longest goes first
            others = {step: common / f"step-{step}" for step in until.values() if step is not None and until[method] is not None}
            wanted = {step: path for step, path in others.items() if step <= (until[method] or 0) and not _saved(path)}
            own = until[method]
            start = others[own] if own is not None and _saved(others[own]) else None
            folder = out / method / f"seed-{seed}" if len(methods) * len(chosen) > 1 else out
            results[method, seed] = train(
                model, tasks, method, out=folder, start=start, branches={} if start else wanted, **shared, **options[method]
            )
            results[method, seed].models.clear()  # opened again from the folder when asked for; many would not fit in memory
        shutil.rmtree(common, ignore_errors=True)
    shutil.rmtree(out / "branches", ignore_errors=True)
    return Comparison({(method, seed): results[method, seed] for method in methods for seed in chosen})


def _saved(folder: Path) -> bool:
    """Whether a whole checkpoint lies in `folder`."""
    return folder.is_dir() and any(whole_number(path.name) is not None for path in folder.iterdir())


def branch_of(method: Method, steps: int) -> int | None:
    """Until which step a method is plain multi-task training; None if it never is."""
    if type(method) is Method:
        return steps
    if isinstance(method, ImportantHeads | PruneLeast):
        branch = method.branch_step(steps)
        return steps if branch is None else branch
    return None


def steps_of(tasks: Sequence[Task], settings: TrainingSettings) -> int:
    """Optimizer steps of a training."""
    sizes = [min(len(task.split("train")), settings.max_examples or len(task.split("train"))) for task in tasks]
    return settings.epochs * sum(-(-size // settings.batch_size) for size in sizes)


def _options(method: str, every: set[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that concern one method: settings, and its own; those of other methods are left out."""
    known = set(TrainingSettings().to_json()) | set(option_names(method))
    unknown = [name for name in given if name not in known and name not in every]
    if unknown:
        owners = [name for name in METHODS if unknown[0] in option_names(name)]
        if owners:
            raise HeadwiseError(f"method {method!r} has no option {unknown[0]!r}, which belongs to {', '.join(owners)}")
        TrainingSettings().with_changes(**{unknown[0]: given[unknown[0]]})  # raises, with the nearest name
    return {name: value for name, value in given.items() if name in known}
