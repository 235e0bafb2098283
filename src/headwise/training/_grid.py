"""Several methods and seeds: their trainings one after another, with shared beginnings shared, and the table
that compares them."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any

import pandas as pd

from headwise._base.parsing import whole_number
from headwise.errors import HeadwiseError
from headwise.sections import Described, Section
from headwise.settings import checked
from headwise.store import claimed_folder, key_of, model_parts
from headwise.tasks import Task
from headwise.training._api import decide, train
from headwise.training._portions import portion_of
from headwise.training._processes import is_first_process
from headwise.training._result import TrainingResult
from headwise.training._section import trainings_section, wide
from headwise.training._settings import Train
from headwise.training.methods import MultiTask, make_method, method_of, option_names

BRANCHES = ".branches"  # no training can be called that


@dataclass(frozen=True, repr=False)
class Comparison(Described):
    """Results of methods × seeds.

    Attributes:
        results: by (method, seed); a method trained under several settings has one label for each, as
            `entries` gives them.
        swept: by label, the method's name and the options it was swept over.
    """

    results: dict[tuple[str, int], TrainingResult]
    swept: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """What must be known of how the scores came about."""
        notes = chain.from_iterable(result.description.get("notes", []) for result in self.results.values())
        return list(dict.fromkeys(notes))

    @property
    def scores(self) -> pd.DataFrame:
        """One row per method, seed, task and split."""
        tables = [
            result.scores.assign(method=method, seed=seed) for (method, seed), result in self.results.items()
        ]
        return pd.concat(tables, ignore_index=True)

    def table(self, split: str = "validation") -> pd.DataFrame:
        """Tasks × methods in percent, "mean ± sd" over seeds; the last row is the average over the tasks that
        all methods have. What is at chance says so."""
        table = wide(self.scores[self.scores["split"] == split]).set_index("task")
        return table.drop(columns=["metric", "chance"], errors="ignore")

    def section(self) -> Section:
        """What is said of these trainings: methods compared over seeds."""
        return trainings_section(list(self.results.values()), [method for method, _ in self.results])


def compare(
    model: str | Path,
    tasks: Sequence[Task],
    methods: Sequence[str],
    *,
    seeds: int | Sequence[int] = 3,
    out: str | Path,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    method_options: Mapping[str, Mapping[str, Any]] | None = None,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> Comparison:
    """Trains every method with every seed into `out`/method/seed-n (one method and one seed: into `out`
    itself); what is there already is read back.

    Methods that are plain multi-task training until their last δ start from one checkpoint of it, so that
    their comparison is paired (and the common part is computed once). So do the settings of a sweep.

    Args:
        model: a hub id or a folder.
        tasks: as for `train`.
        methods: names of `METHODS`.
        seeds: how many, from `seed` (0) on, or which.
        out: the folder of all results.
        sweep: option of a method to the values to try, e.g. {"alpha": (0.1, 0.3), "delta": (0.05, 0.1)}: a
            method that has it is trained with each combination, any other once.
        method_options: by method, options that are its own alone.
        variants: by name, a method with options of its own, trained beside the others: {"iat-drift":
            {"method": "iat", "drift": True}}. What it does not say, it has from its method (`method_options`,
            `sweep`).
        settings: of `Train`; an option of methods goes to every method that has it.

    Raises:
        HeadwiseError: as `train`; or another process is at work in `out`.
    """
    out = Path(out)
    base: Train = checked(Train, settings)
    all_methods = [*methods, *(variant["method"] for variant in (variants or {}).values())]
    for name, value in base.options.items():
        if not any(name in option_names(method) for method in all_methods):
            make_method(all_methods[0], **{name: value})  # raises, with whose it is
    seed_numbers = [base.seed + i for i in range(seeds)] if isinstance(seeds, int) else list(seeds)
    entries = grid_entries(methods, sweep or {}, variants or {})
    labels = list(entries)
    results: dict[tuple[str, int], TrainingResult] = {}
    several = len(labels) * len(seed_numbers) > 1
    content = model_parts(model, base.tokenizer, training=True)
    with claimed_folder(out, several and is_first_process()):  # one training alone claims `out` itself
        for seed in seed_numbers:
            settings_by_label: dict[str, Train] = {}
            plain_steps: dict[str, int | None] = {}  # up to which a training is plain multi-task training
            shared: dict[str, Path] = {}  # where checkpoints of that beginning lie
            for label, (name, swept) in entries.items():
                options = _options(base, name, (method_options or {}).get(name, {}), swept)
                settings_by_label[label] = base.with_changes(seed=seed, options=options)
                method = method_of(name, settings_by_label[label])
                loop_settings = method.settings(settings_by_label[label])
                plain_steps[label] = method.plain_until(steps_of(tasks, loop_settings))
                # trainings branch from one another where everything that decides their plain beginning is the
                # same
                plain = decide(content, tasks, MultiTask(), loop_settings)
                shared[label] = out / BRANCHES / key_of(plain)[:20]
            # the one that stays plain longest goes first
            for label in sorted(labels, key=lambda label: -(plain_steps[label] or 0)):
                branches: dict[int, Path] = {}
                if len(labels) > 1:
                    twins = [twin for twin in labels if shared[twin] == shared[label]]
                    steps = _branch_steps(plain_steps[label], [plain_steps[twin] for twin in twins])
                    branches = {step: shared[label] / f"step-{step}" for step in steps}
                start = None
                saved = [step for step, path in branches.items() if _saved(path)]
                if saved:  # the last step up to which it is the same training
                    start = branches[saved[-1]]
                    branches = {step: path for step, path in branches.items() if step > saved[-1]}
                name = entries[label][0]
                placed = settings_by_label[label].with_changes(
                    out=out / label / f"seed-{seed}" if several else out,
                    start=start,
                    branches=branches,
                    label=None if label == name else label,
                )
                result = train(model, tasks, name, **placed.given())
                # opened again from the folder when asked for; many would not fit in memory
                result.models.clear()
                results[label, seed] = result
            if several:
                shutil.rmtree(out / BRANCHES, ignore_errors=True)
    return Comparison({key: results[key] for key in product(labels, seed_numbers)}, entries)


def _branch_steps(last: int | None, steps: Sequence[int | None]) -> list[int]:
    """The steps, in order, at which a training that is plain up to step `last` passes where another one
    branches off.

    Args:
        last: None: it is never plain.
        steps: up to which each training with the same beginning is plain, this one among them.
    """
    if last is None:
        return []
    return sorted({step for step in steps if step is not None and step <= last})


def grid_entries(
    methods: Sequence[str],
    sweep: Mapping[str, Sequence[Any]],
    variants: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, tuple[str, dict[str, Any]]]:
    """By label, each method with the swept options it has: "iat-alpha-0.1-delta-0.05"; options of one value
        are not in the label.

    A variant is labelled by its own name in the same way; an option that it sets itself is not swept.

    Raises:
        HeadwiseError: a swept option belongs to none of the methods, or two trainings would have the same
            label.
    """
    named: list[tuple[str, str, dict[str, Any]]] = [(method, method, {}) for method in methods]
    for name, variant in (variants or {}).items():
        fixed = {option: value for option, value in variant.items() if option != "method"}
        named.append((name, variant["method"], fixed))
    entries: dict[str, tuple[str, dict[str, Any]]] = {}
    for name in sweep:
        if not any(name in option_names(method) for _, method, _ in named):
            raise HeadwiseError(f"{name!r} cannot be swept over: it is not an option of {', '.join(methods)}")
    for name, method, fixed in named:
        swept = [option for option in sweep if option in option_names(method) and option not in fixed]
        for values in product(*(sweep[option] for option in swept)):
            options = dict(zip(swept, values, strict=True))
            varied = [f"{option}-{value}" for option, value in options.items() if len(sweep[option]) > 1]
            label = "-".join([name, *varied])
            if label in entries:
                raise HeadwiseError(f"two trainings would be called {label!r}; give the variant another name")
            entries[label] = (method, options | fixed)
    return entries


def _saved(folder: Path) -> bool:
    """Whether a whole checkpoint lies in `folder`."""
    return folder.is_dir() and any(whole_number(path.name) is not None for path in folder.iterdir())


def steps_of(tasks: Sequence[Task], settings: Train) -> int:
    """Optimizer steps of a training."""
    sizes = [len(portion_of(task, settings).train) for task in tasks]
    return settings.epochs * sum(-(-size // settings.batch_size) for size in sizes)


def _options(base: Train, method: str, *further: Mapping[str, Any]) -> dict[str, Any]:
    """The options of one method: of those given to all methods the ones it has, and its own."""
    options = {name: value for name, value in base.options.items() if name in option_names(method)}
    for method_options in further:
        options |= method_options
    return options
