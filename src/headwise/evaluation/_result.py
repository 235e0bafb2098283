"""`Evaluation`: what a model answered to each example of a task, and the metric of it with its interval."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise._base.inference import MIN_EXAMPLES, share_interval
from headwise._base.least import EXPLAINED
from headwise.models import SavedTask, TaskLike
from headwise.sections import Described, Section, Table
from headwise.store import manifest
from headwise.tasks import KINDS, METRICS, Examples, at_chance, chance_note, metrics

KIND, PREDICTIONS, SUMMARY = "evaluation", "predictions.parquet", "summary.csv"
BLOCK = 100  # resamples held in memory at once


@dataclass(frozen=True, repr=False)
class Evaluation(Described):
    """A model on one split of one task.

    Attributes:
        task: the task, or what a saved evaluation remembers of it: name, kind, classes, metric.
        split: its name.
        predictions: (examples,) class numbers or numbers, or (examples, counts).
        losses: (examples,) each example's loss; NaN where it has no label.
        labels: (examples,); None where predictions are counts.
        chance: the metric of the best guess that ignores the text, on these examples; NaN where they have no
            labels.
        settings: how it was run.
    """

    task: TaskLike
    split: str
    predictions: NDArray[Any]
    losses: NDArray[np.float64]
    labels: NDArray[Any] | None
    chance: float
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_answers(
        cls,
        task: TaskLike,
        examples: Examples,
        answers: tuple[NDArray[Any], NDArray[Any]],
        split: str,
        settings: Mapping[str, Any] | None = None,
    ) -> "Evaluation":
        """The evaluation of `answers` (predictions and losses) to examples of a task."""
        labels = None if isinstance(examples.labels, list) else examples.labels
        chance = float("nan")
        if examples.labelled:
            chance = metrics.chance_level(task.metric, task.kind, examples.labels)
        return cls(task, split, *answers, labels, chance, dict(settings or {}))

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.losses)

    @property
    def labelled(self) -> bool:
        """Whether the examples have labels."""
        return not np.isnan(self.chance)

    @cached_property
    def score(self) -> float:
        """The task's metric, as a share (1 is perfect) where it is one; NaN where the examples have no
        labels."""
        if not self.labelled:
            return float("nan")
        return metrics.score(self.task.metric, self.task.kind, self.predictions, self.labels)

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric of the task's kind, by name; none where the examples have no labels."""
        if not self.labelled:
            return {}
        return metrics.every(self.task.kind, self.predictions, self.labels, len(self.task.classes))

    @cached_property
    def at_chance(self) -> bool:
        """Whether nothing shows that the text was used: see `headwise.tasks._metrics`."""
        if not self.labelled:
            return False
        return at_chance(self.task.metric, self.task.kind, self.predictions, self.labels, self.chance)

    @cached_property
    def _draws(self) -> NDArray[np.float64]:
        """The metric on bootstrap samples of the examples, (resamples,)."""
        from headwise.lesions import metric_draws, resample_counts

        draws = 0
        if self.labelled:
            draws = self.settings.get("bootstrap", 0)
        rng = np.random.default_rng(self.settings.get("seed", 0))
        values = np.empty(draws)
        for start in range(0, draws, BLOCK):
            counts = resample_counts(len(self), min(BLOCK, draws - start), rng)
            of_block = metric_draws(
                self.task.metric, self.task.kind, self.predictions[None], self.labels, counts
            )
            values[start : start + len(counts)] = of_block[:, 0]
        return values

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Interval of the score over examples, exact for accuracy, else by bootstrap; NaN where there is
        none: `no_interval` says why."""
        from headwise.lesions import interval

        if self.no_interval:
            return float("nan"), float("nan")
        if self._exact:
            return share_interval(int(np.sum(self.predictions == self.labels)), len(self), self.level)
        low, high = interval(
            self._draws, self.level, examples=len(self), value=self.score, differing=self._wrong
        )
        metric = METRICS[self.task.metric]
        if metric.share:  # NaN stays NaN
            low, high = np.maximum(low, metric.lowest), np.minimum(high, 1.0)
        return float(low), float(high)

    @property
    def _exact(self) -> bool:
        """Whether the score is a share of examples, whose interval needs no bootstrap."""
        return self.task.metric == "accuracy" and self.predictions.ndim == 1

    @property
    def _wrong(self) -> int | None:
        """On how many examples the answer is not the label: few near a perfect score; None where answers are
        numbers or counts."""
        if self.predictions.ndim > 1 or KINDS[self.task.kind].numbers:
            return None
        return int(np.sum(self.predictions != self.labels))

    @cached_property
    def no_interval(self) -> str:
        """Why the score has no interval; empty where it has one."""
        from headwise.lesions import why_none

        if not self.labelled:
            return "the examples have no labels"
        if self._exact and len(self) >= MIN_EXAMPLES and self.settings.get("bootstrap", 0):
            return ""
        return why_none(self._draws, self.level, examples=len(self))

    @property
    def level(self) -> float:
        """Confidence level of the interval."""
        return float(self.settings.get("level", 0.95))

    @cached_property
    def notes(self) -> list[str]:
        """What a reader must know: whether the model is at chance, and whether classes were matched by
        order."""
        little = "its score says little: was it trained for this task, and is the tokenizer its own?"
        notes = list(self.settings.get("by_order", {}).values())
        if self.at_chance:
            notes.insert(0, chance_note(self.task.name, self.score, self.chance, little))
        return notes

    def table(self) -> pd.DataFrame:
        """One row per example: task, split, example, loss, and label and prediction, or the counts of the
        kind."""
        columns: dict[str, Any] = {
            "task": self.task.name,
            "split": self.split,
            "example": np.arange(len(self)),
        }
        if self.predictions.ndim == 1:
            columns |= {"label": self.labels, "prediction": self.predictions}
        else:
            columns |= {name: self.predictions[:, i] for i, name in enumerate(KINDS[self.task.kind].counts)}
        return pd.DataFrame({**columns, "loss": self.losses})

    def summary(self) -> pd.DataFrame:
        """One row: task, split, metric, score with the ends of its interval, chance, whether it is at chance,
        examples, and why there is no interval. Shares from 0 to 1."""
        low, high = self.interval
        note = ""
        if self.no_interval:
            note = f"no interval: {self.no_interval}"
        row = {
            "task": self.task.name,
            "split": self.split,
            "metric": str(self.task.metric),
            "score": self.score,
            "low": low,
            "high": high,
            "chance": self.chance,
            "at_chance": self.at_chance,
            "examples": len(self),
            "note": note,
        }
        return pd.DataFrame([row])

    def section(self) -> Section:
        """What is said of this evaluation."""
        return _section([self])

    @property
    def finding(self) -> str:
        """The score with its interval, beside that of a guess, in one sentence."""
        share = METRICS[self.task.metric].share
        numbers = (self.score, *self.interval, self.chance)
        scale, digits, percent = (100, ".1f", " %") if share else (1, ".4g", "")
        score, low, high, guess = (f"{scale * x:{digits}}" for x in numbers)
        span = f"{100 * self.level:g} % interval {low} to {high}"
        if self.no_interval:
            span = f"no interval, since {self.no_interval}"
        beside = ""
        if np.isfinite(self.chance):
            beside = f"; a guess that ignores the text: {guess}{percent}"
        examples = f"{self.task.name}, {self.split}, {len(self)} examples"
        metric = metrics.metric_label(self.task.metric)
        return f"{examples}: {metric} {score}{percent} ({span}){beside}."

    def save(self, folder: str | Path, **deciding: Any) -> Path:
        """Writes every prediction and the summary; `headwise.load(folder)` opens it. The folder appears
        whole.

        Raises:
            HeadwiseError: the folder exists already.
        """
        return _save([self], folder, together=False, **deciding)


class Evaluations(Described, Mapping[str, Evaluation]):
    """A model on several tasks, by name."""

    def __init__(self, by_task: Mapping[str, Evaluation]) -> None:
        self._by_task = dict(by_task)

    def __getitem__(self, name: str) -> Evaluation:
        return self._by_task[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_task)

    def __len__(self) -> int:
        return len(self._by_task)

    @property
    def notes(self) -> list[str]:
        """What a reader must know, of all tasks."""
        return _notes(self.values())

    def table(self) -> pd.DataFrame:
        """One row per task and example, see `Evaluation.table`."""
        return pd.concat([evaluation.table() for evaluation in self.values()], ignore_index=True)

    def summary(self) -> pd.DataFrame:
        """One row per task, see `Evaluation.summary`."""
        return pd.concat([evaluation.summary() for evaluation in self.values()], ignore_index=True)

    def section(self) -> Section:
        """What is said of these evaluations."""
        return _section(list(self.values()))

    def save(self, folder: str | Path, **deciding: Any) -> Path:
        """As `Evaluation.save`."""
        return _save(list(self.values()), folder, together=True, **deciding)


def _section(evaluations: list[Evaluation]) -> Section:
    table = pd.concat([evaluation.summary() for evaluation in evaluations], ignore_index=True)
    return Section(
        title="Evaluation",
        findings=[evaluation.finding for evaluation in evaluations],
        blocks=[Table("evaluation", "Scores", table, "Shares from 0 to 1, where the metric is one.")],
        methods=f"{EXPLAINED}.",
        settings={evaluation.task.name: evaluation.settings for evaluation in evaluations},
        notes=_notes(evaluations),
    )


def _notes(evaluations: Iterable[Evaluation]) -> list[str]:
    return list(chain.from_iterable(evaluation.notes for evaluation in evaluations))


def _save(evaluations: list[Evaluation], folder: str | Path, **deciding: Any) -> Path:
    facts = [
        {
            **SavedTask.from_task(evaluation.task).to_json(),
            "split": evaluation.split,
            "chance": _json(evaluation.chance),
            "settings": evaluation.settings,
        }
        for evaluation in evaluations
    ]
    examples = pd.concat([evaluation.table() for evaluation in evaluations], ignore_index=True)
    summary = pd.concat([evaluation.summary() for evaluation in evaluations], ignore_index=True)
    with manifest.new_folder(folder, KIND, tasks=facts, **deciding) as aside:
        examples.to_parquet(aside / PREDICTIONS, index=False)
        summary.to_csv(aside / SUMMARY, index=False)
    return Path(folder)


def load_folder(folder: Path, record: Mapping[str, Any]) -> Evaluation | Evaluations:
    """Opens what `save` wrote; `headwise.load` calls this."""
    table = pd.read_parquet(folder / PREDICTIONS)
    by_task = {
        facts["name"]: _loaded(table[table["task"] == facts["name"]], facts) for facts in record["tasks"]
    }
    if record["together"]:
        return Evaluations(by_task)
    return next(iter(by_task.values()))


def _loaded(rows: pd.DataFrame, facts: Mapping[str, Any]) -> Evaluation:
    kind = KINDS[facts["kind"]]
    counts = [name for name in kind.counts if name in rows and rows[name].notna().all()]
    labels = None
    predictions: NDArray[Any]
    if counts:
        predictions = rows[counts].to_numpy()
    else:
        number_type = np.float64 if kind.numbers else np.int64
        predictions = rows["prediction"].to_numpy().astype(number_type)
        labels = rows["label"].to_numpy().astype(number_type)
    chance = np.nan
    if facts["chance"] is not None:
        chance = float(facts["chance"])
    task, losses = SavedTask.from_json(facts), rows["loss"].to_numpy()
    return Evaluation(task, facts["split"], predictions, losses, labels, chance, dict(facts["settings"]))


def _json(value: float) -> float | str | None:
    if np.isnan(value):
        return None
    if np.isinf(value):
        return "inf"
    return value
