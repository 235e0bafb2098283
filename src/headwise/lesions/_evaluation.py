"""`headwise.lesion`: every set of heads silenced, every task evaluated, every example kept."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.lesions._settings import Lesion
from headwise.models import as_trained, order_notes
from headwise.sections import Described, Section, Table
from headwise.settings import operation
from headwise.tasks import KINDS, Task, as_tasks, at_chance, chance_note, metrics

if TYPE_CHECKING:
    from headwise._passes.subject import Subject

INTACT = "intact"
LITTLE = "lesions show little: was it trained for this task, and is the tokenizer its own?"


@dataclass(frozen=True)
class TaskOutcome:
    """One task under all lesions, the intact model first.

    Attributes:
        kind, metric: of the task.
        predictions: (lesions, examples), or (lesions, examples, columns) where a row holds counts.
        losses: (lesions, examples).
        labels: (examples,); None where predictions are counts.
        chance: the metric of the best guess that ignores the text.
        ways: how the lesions were run.
    """

    kind: str
    metric: str
    predictions: NDArray[Any]
    losses: NDArray[Any]
    labels: NDArray[Any] | None
    chance: float
    ways: dict[str, Any]

    def facts(self) -> dict[str, Any]:
        """What is kept beside the arrays."""
        return {"kind": self.kind, "metric": self.metric, "chance": self.chance, "ways": self.ways}

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """The metric of every lesion, (lesions,)."""
        return np.array(
            [metrics.score(self.metric, self.kind, rows, self.labels) for rows in self.predictions]
        )

    def differing(self, rows: Sequence[int]) -> NDArray[np.int64]:
        """On how many examples two of some lesions differ: in whether they are right, for accuracy, else in
        what they predict."""
        answers = self.predictions[list(rows)]
        if self.metric == "accuracy" and self.labels is not None:
            answers = answers == self.labels
        counts = np.zeros((len(rows), len(rows)), dtype=np.int64)
        for a, b in combinations(range(len(rows)), 2):
            unlike = answers[a] != answers[b]  # (examples,), or (examples, columns) of counts
            if unlike.ndim > 1:
                unlike = unlike.any(-1)
            counts[a, b] = counts[b, a] = unlike.sum()
        return counts

    @cached_property
    def at_chance(self) -> bool:
        """Whether the intact model is at chance, by the rule of trainings."""
        return at_chance(self.metric, self.kind, self.predictions[0], self.labels, self.chance)


@dataclass(frozen=True, repr=False)
class Lesions(Described):
    """What `lesion` found.

    Attributes:
        sets: the heads each lesion silences, by name; "intact" silences none.
        tasks: by task name, every example's prediction under every lesion, in the order of `sets`.
        settings: how it was run.
    """

    sets: dict[str, HeadSet]
    tasks: dict[str, TaskOutcome]
    settings: dict[str, Any]

    def section(self) -> Section:
        """What is said of these lesions: every task's metric under each, and which one costs it most."""
        lesioned = self.performance.drop(INTACT, errors="ignore")
        worst = pd.Series(dtype=object)
        if len(self.sets) > 1:
            worst = lesioned.idxmin()
        intact = self.performance.loc[INTACT] if INTACT in self.sets else self.performance.iloc[0]
        lowest = lesioned.min()
        falls = [
            f"{task} has its lowest value without {name}: {lowest[str(task)]:.3f}, intact "
            f"{intact[str(task)]:.3f}"
            for task, name in worst.items()
        ]
        table = Table("performance", "Metric of each task under each lesion", self.performance.reset_index())
        return Section(
            "Lesions",
            [f"{'; '.join(falls)}."] if falls else [],
            [table],
            settings=self.settings,
            notes=self.notes,
        )

    @cached_property
    def notes(self) -> list[str]:
        """What a reader must know: tasks at which the intact model is no better than a guess, and classes
        that were matched by order."""
        weak = [
            chance_note(name, outcome.values[0], outcome.chance, LITTLE)
            for name, outcome in self.tasks.items()
            if outcome.at_chance
        ]
        return [*weak, *self.settings.get("by_order", {}).values()]

    @cached_property
    def performance(self) -> pd.DataFrame:
        """The metric of every task (columns) under every lesion (rows), on the metric's own scale."""
        values = {name: outcome.values for name, outcome in self.tasks.items()}
        return pd.DataFrame(values, index=pd.Index(list(self.sets), name="lesion"))

    def joined(self, further: "Lesions") -> "Lesions":
        """These lesions and further ones of the same tasks and examples; the intact model is kept once."""
        new = [row for row, name in enumerate(further.sets) if name not in self.sets]
        tasks = {}
        for name, outcome in self.tasks.items():
            predictions = np.concatenate([outcome.predictions, further.tasks[name].predictions[new]])
            losses = np.concatenate([outcome.losses, further.tasks[name].losses[new]])
            tasks[name] = replace(outcome, predictions=predictions, losses=losses)
        new_sets = {name: heads for name, heads in further.sets.items() if name not in self.sets}
        return Lesions(self.sets | new_sets, tasks, self.settings)

    def table(self) -> pd.DataFrame:
        """One row per (lesion, task, example): what was predicted, the label, the loss, and the task's metric
        under that lesion.

        The prediction is one column for classes and numbers, and counts (correct, predicted, gold; or right,
        tokens, nll, bytes) otherwise.
        """
        names = list(self.sets)
        tables = []
        for task, outcome in self.tasks.items():
            lesions, examples = outcome.losses.shape
            columns: dict[str, Any] = {
                "lesion": pd.Categorical(np.repeat(names, examples), categories=names),
                "task": pd.Categorical([task] * (lesions * examples), categories=list(self.tasks)),
                "example": np.tile(np.arange(examples), lesions),
            }
            if outcome.predictions.ndim == 2:
                columns["prediction"] = outcome.predictions.reshape(-1).astype(float)
                columns["label"] = np.tile(np.asarray(outcome.labels, dtype=float), lesions)
            else:
                for number, count in enumerate(KINDS[outcome.kind].counts[: outcome.predictions.shape[2]]):
                    columns[count] = outcome.predictions[..., number].reshape(-1).astype(float)
            columns["loss"] = outcome.losses.reshape(-1)
            columns["metric"] = pd.Categorical([outcome.metric] * (lesions * examples))
            columns["value"] = np.repeat(outcome.values, examples)
            tables.append(pd.DataFrame(columns))
        return pd.concat(tables, ignore_index=True)


@operation(Lesion, "head_sets")
def lesion(
    model: Any,
    tasks: Task | Sequence[Task],
    head_sets: Mapping[str, HeadSet] | Sequence[HeadSet],
    settings: Lesion,
) -> Lesions:
    """Evaluates every task with every set of heads silenced.

    Weights stay frozen and attention as it is; batches are sorted by length. Lesions that touch only upper
    layers start from the intact model's lower ones, lesions of many heads run in a smaller model, and several
    lesions share a small batch, each where that pays. The choice is automatic and changes results by rounding
    at most.

    Args:
        model: a multi-task model, a plain transformers model with a head, or a folder that headwise saved.
        tasks: the task or tasks.
        head_sets: sets, or lists of (layer, head) pairs, by name; or a list of them (then they are called
            "0", "1", …). The intact model is always evaluated too.

    Returns:
        per-example predictions and metrics: `.performance` (lesions × tasks, the intact model first) and
        `.table()` (one row per lesion, task, example); `.notes` has what a reader must know. A model that is
        at chance on a task is warned of.
    """
    results = lesions(model, tasks, head_sets, settings)
    for name, outcome in results.tasks.items():
        if outcome.at_chance:
            warnings.warn(chance_note(name, outcome.values[0], outcome.chance, LITTLE), stacklevel=3)
    return results


def lesions(
    model: Any,
    tasks: Task | Sequence[Task],
    head_sets: Mapping[str, HeadSet] | Sequence[HeadSet],
    settings: Lesion,
) -> Lesions:
    """The same, of a model or a `Subject`; nobody is warned of a model at chance."""
    from headwise._passes.lesioned import evaluate
    from headwise._passes.subject import open_subject, prepare, weights_type

    tasks, sets = as_tasks(tasks), named_sets(head_sets)
    subject = open_subject(model, tasks, settings)
    tasks = as_trained(subject.model, tasks)
    outcomes = {}
    for task in tasks:
        task_subject = prepare(subject, task, settings)
        reference = None if settings.how == "zero" else _reference(subject, task, settings)
        description = f"{len(sets)} lesions, {task.name}"
        outcome = evaluate(
            task_subject, list(sets.values()), description, settings.way, settings.how, reference
        )
        labels = task_subject.encoded.examples.labels
        gold = None if isinstance(labels, list) or KINDS[task.kind].counts else np.asarray(labels)
        # on the examples that were asked, not the whole split
        chance = metrics.chance_level(task.metric, task.kind, labels)
        outcomes[task.name] = TaskOutcome(
            task.kind, task.metric, outcome.predictions, outcome.losses, gold, chance, outcome.ways
        )
    names = ("how", "split", "examples", "seed", "way", "precision")
    facts = {name: getattr(settings, name) for name in names}
    return Lesions(sets, outcomes, facts | weights_type(subject.model) | order_notes(subject.model, tasks))


def _reference(subject: "Subject", task: Task, settings: Lesion) -> Any:
    """What heads put out on training examples: their means, or inputs to draw from."""
    from headwise._passes.subject import prepare

    reading = settings.with_changes(split="train", examples=settings.reference_examples)
    task_subject = prepare(subject, task, reading)
    inputs = [batch.inputs for batch in task_subject.read(task_subject.plan())]
    if settings.how == "mean":
        return subject.heads.mean_outputs(inputs)
    return inputs


def named_sets(head_sets: Mapping[str, HeadSet] | Sequence[HeadSet]) -> dict[str, HeadSet]:
    """Sets by name, the intact model first."""
    if isinstance(head_sets, HeadSet):
        raise HeadwiseError("head_sets is one HeadSet; give a list of them, [head_set], or a dict by name")
    if isinstance(head_sets, Mapping):
        named = dict(head_sets)
    else:
        named = {str(number): head_set for number, head_set in enumerate(head_sets)}
    if named.get(INTACT):
        raise HeadwiseError(
            f"the name {INTACT!r} is kept for the model without a lesion; call this set something else"
        )
    named.pop(INTACT, None)
    return {INTACT: HeadSet(), **{name: HeadSet(heads) for name, heads in named.items()}}
