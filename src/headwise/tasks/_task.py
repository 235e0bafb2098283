"""Task: what a model is asked. Text, labels, metric, splits; loaded when first used."""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from headwise._base.memory import release
from headwise._base.names import check_name, listed
from headwise.errors import HeadwiseError
from headwise.tasks import _builders as building, _metrics as metrics, _sources as sources
from headwise.tasks._checks import check_settings
from headwise.tasks._classes import guess_kind, numbered_by
from headwise.tasks._columns import column
from headwise.tasks._examples import Examples, in_order
from headwise.tasks._kinds import KINDS
from headwise.tasks._splits import (
    SPLIT_FRACTIONS,
    VALIDATION_SHARE,
    by_fraction,
    check_split_names,
    divided,
    text_key,
)
from headwise.tasks._texts import FEW


class Task:
    """Data with a question: texts, labels, a metric, and splits. Nothing is read before it is needed.

    Give exactly one source:

    Args:
        name: the task's name; results and models refer to it.
        path: a file (parquet, CSV, TSV, JSON lines, CoNLL-U, ...), a folder with train, validation and test
            files or one that `Dataset.save_to_disk` wrote, or {split: file}.
        data: a DataFrame, a Dataset, {column: values}, rows (dicts, tuples (text..., label), or Sentences),
            {split: any of these}, or a function that reads them.
        hub: the name of a dataset on the Hugging Face hub, never a folder; `subset` its configuration,
            `revision` its version.

        text: the text column, or two for pairs (minimal pairs: good, bad), four for a contrast; "a|b" is the
            first of two columns that is there. Word kinds read from a table: the column of word lists.
        label: the label column; for word kinds the layer of Sentence (default: the kind's own; "upos" or
            "xpos" for tags).
        kind: one of `tasks.KINDS`; default: from the labels (fractions: number, lists: tags, else classes).
        metric: one of `tasks.METRICS`; default by kind.
        classes: class names by number; default: those of the source, else those found in the training split,
            sorted.
        splits: {our split: the source's split or file name} where they differ, e.g. {"validation":
            "validation_matched"}.
        split_column: the column that names each row's split; default "split" if there is one.
        fractions: how a source without splits is divided.
        together: a column; rows that share its value stay in one split when a source is divided.
        group: a column kept as `Examples.groups` (phenomenon, genre, ...).
        seed: of that division.
        skip_unlabelled: leave out rows without a label (or with -1) instead of raising.
        drop_empty: leave out rows whose text is empty, with a warning that counts them, instead of raising.
        skip_bad: leave out malformed sentences of treebank files and count them, instead of raising.
        synthetic: whether the text was generated; shown wherever its numbers are.
        reading: options of the sentence readers: `columns` and `scheme` (CoNLL columns), `mentions`
            (CoNLL-U).

    A source with a train but no validation split gets one: 10 % of train by seed, identical texts kept
    together.
    """

    def __init__(
        self,
        name: str,
        *,
        path: str | Path | Mapping[str, str | Path] | None = None,
        data: Any = None,
        hub: str | None = None,
        subset: str | None = None,
        revision: str | None = None,
        text: str | Sequence[str] = "text",
        label: str | None = None,
        kind: str | None = None,
        metric: str | None = None,
        classes: Sequence[str] | None = None,
        splits: Mapping[str, str] | None = None,
        split_column: str | None = None,
        fractions: Mapping[str, float] = SPLIT_FRACTIONS,
        together: str | None = None,
        group: str | None = None,
        seed: int = 0,
        skip_unlabelled: bool = False,
        drop_empty: bool = False,
        skip_bad: bool = False,
        synthetic: bool = False,
        reading: Mapping[str, Any] | None = None,
    ) -> None:
        check_settings(check_name(name), dict(locals()))  # all arguments by name
        if sum(source is not None for source in (path, data, hub)) != 1:
            raise HeadwiseError(f"task {name!r}: give exactly one of path=, data=, hub=")
        if classes is not None and len(set(classes)) < len(classes):
            raise HeadwiseError(f"task {name!r}: classes= names a class twice: {listed(classes)}")
        if kind is not None and kind not in KINDS:
            raise HeadwiseError(f"task {name!r}: unknown kind {kind!r}; expected one of {', '.join(KINDS)}")
        self.name, self.synthetic = name, synthetic
        self.text = building.text_columns(name, text, kind)
        self._source = {"path": path, "data": data, "hub": hub, "subset": subset, "revision": revision}
        self._kind, self._label, self._metric, self._classes = kind, label, metric, classes
        # else a model may remember another, which it was trained and judged by
        self.metric_given = metric is not None
        # what `tasks.find_tasks` finds it by, so that a saved model can say it
        self.origin: dict[str, Any] | None = None
        self._splits, self._split_column, self._fractions = splits, split_column, dict(fractions)
        self._together, self._group, self._drop_empty = together, group, drop_empty
        self._seed, self._skip_unlabelled = seed, skip_unlabelled
        self._reading = {**(reading or {}), "skip_bad": skip_bad}
        metrics.check_known(metric, name)
        if kind is not None and metric is not None:
            metrics.find(metric, kind)

    # whether validation is a tenth of train (no other, or `held_out`); known once it was read
    validation_carved = False
    holds_out = False  # whether a tenth of train takes the place of the source's validation split

    @classmethod
    def from_examples(
        cls, name: str, splits: Mapping[str, Examples], *, metric: str | None = None, synthetic: bool = False
    ) -> "Task":
        """A task of ready Examples, all of one kind and with the same classes."""
        first = next(iter(splits.values()))
        for examples in splits.values():
            if examples.kind != first.kind or examples.classes != first.classes:
                raise HeadwiseError(f"task {name!r}: its splits differ in kind or classes")
        task = cls(name, data=dict(splits), kind=first.kind, metric=metric, synthetic=synthetic)
        task.__dict__["_examples"] = in_order(name, splits)
        return task

    @classmethod
    def from_toml(cls, source: str | Path) -> "Task":
        """The one task that a TOML file or text defines; `tasks.read_toml` reads several."""
        from headwise.tasks._names import read_toml

        tasks = read_toml(source)
        if len(tasks) != 1:
            names = ", ".join(task.name for task in tasks)
            raise HeadwiseError(f"expected one task, found {len(tasks)}: {names}; use tasks.read_toml")
        return tasks[0]

    def renamed(self, name: str) -> "Task":
        """The same task under another name."""
        task = copy.copy(self)
        task.name = check_name(name)
        if "_examples" in self.__dict__:
            task.__dict__["_examples"] = in_order(name, self._examples)
        return task

    def with_metric(self, metric: str, by_user: bool = True) -> "Task":
        """The same task judged by another metric; `by_user` says whether a user chose it."""
        metrics.check_known(metric, self.name)
        metrics.find(metric, self.kind)
        task = copy.copy(self)
        task._metric, task.metric_given = metric, by_user
        if "_examples" in self.__dict__:
            metrics.check_classes(metric, self.name, self.classes)
        return task

    def with_splits(self, name: str | None = None, **splits: Examples) -> "Task":
        """The same task with some splits replaced, e.g. by a small training sample."""
        task = Task.from_examples(
            name or self.name, {**self._examples, **splits}, metric=self.metric, synthetic=self.synthetic
        )
        task.metric_given = self.metric_given
        task.validation_carved = self.validation_carved and "validation" not in splits
        return task

    def held_out(self) -> "Task":
        """The same task judged on a tenth of its training examples, which are not trained on, in place of its
        validation split: to choose settings by. The seed decides the tenth; identical texts stay together."""
        task = copy.copy(self)
        task.holds_out, task.validation_carved = True, False
        if "_examples" in self.__dict__:
            task.__dict__["_examples"] = in_order(self.name, task._with_validation(self._examples))
        return task

    def _with_validation(self, splits: dict[str, Examples]) -> dict[str, Examples]:
        """The splits with a tenth of train as validation, where there is none or a tenth of train takes its
        place.
        """
        if "train" not in splits:
            return splits
        if "validation" in splits and (not self.holds_out or self.validation_carved):
            return splits
        keys = (text_key(text) for text in splits["train"].texts)
        rows_by_split = by_fraction(keys, VALIDATION_SHARE, self._seed)
        if not all(map(len, rows_by_split.values())):
            return splits
        self.validation_carved = True
        return splits | {name: splits["train"].subset(rows) for name, rows in rows_by_split.items()}

    @cached_property
    def _examples(self) -> dict[str, Examples]:
        raw = self._read()
        kind = self._kind or guess_kind(_training(raw), self._label or "label", self.text[0])
        if KINDS[kind].reads == "words":
            splits = building.annotated(self.name, raw, kind, self.text[0], self._label, self._classes)
        else:
            splits = self._plain(raw, kind)
        splits = self._with_validation(splits)
        building.check(self.name, splits)
        metrics.check_classes(self._metric, self.name, next(iter(splits.values())).classes)
        release(sum(map(len, splits.values())) > FEW)
        return in_order(self.name, splits)

    def _read(self) -> dict[str, sources.Raw]:
        """The source's tables by split, divided where it has none."""
        source, label = self._source, self._label or "label"
        if source["hub"] is not None:
            raw = sources.from_hub(source["hub"], source["subset"], source["revision"], self._splits)
        elif source["path"] is not None:
            word_level = self._kind is not None and KINDS[self._kind].reads == "words"
            raw = sources.from_path(source["path"], word_level, **self._reading)
        else:
            raw = sources.from_data(source["data"], (*self.text, label))
        if self._splits:
            missing = [name for name in self._splits.values() if sources.split_name(name) not in raw]
            if missing:
                raise HeadwiseError(
                    f"task {self.name!r}: the source has no split {missing[0]!r}, only: {listed(raw)}"
                )
            raw = {ours: raw[sources.split_name(theirs)] for ours, theirs in self._splits.items()}
        if not raw:
            raise HeadwiseError(f"task {self.name!r}: the source has no split at all")
        if sources.ALL in raw and len(raw) == 1:
            raw = divided(
                raw[sources.ALL], self.text, self._split_column, self._together, self._fractions, self._seed
            )
        if not self._splits:
            by_split = isinstance(source["path"], Mapping) or isinstance(source["data"], Mapping)
            check_split_names(self.name, raw, named=by_split or self._fractions != SPLIT_FRACTIONS)
        return raw

    def _plain(self, raw: dict[str, sources.Raw], kind: str) -> dict[str, Examples]:
        label = self._label or "label"
        train = _training(raw)
        entry = KINDS[kind]
        classes: tuple[str, ...] = ()
        if entry.class_names is not None:
            classes = tuple(self._classes or entry.class_names(train, label))
        by = numbered_by(train, label, by_user=self._classes is not None)
        splits = {}
        for split in list(raw):
            table = raw.pop(split)  # the table of a split is not kept beside the examples made from it
            may_miss = self._skip_unlabelled or split.startswith("test")
            if self._drop_empty:
                table = building.without_empty(self.name, table, self.text)
            examples = building.plain(table, kind, self.text, label, classes, by=by, may_miss=may_miss)
            if self._group is not None:
                examples = replace(examples, groups=tuple(column(table, self._group).astype(str)))
            if self._skip_unlabelled:
                examples = examples.subset(~entry.lacking(np.asarray(examples.labels)))
            building.warn_of_gaps(self.name, split, examples)
            splits[split] = examples
        return splits

    @property
    def kind(self) -> str:
        """One of `tasks.KINDS`."""
        return self._kind or next(iter(self._examples.values())).kind

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names by number; () for kinds without classes."""
        return next(iter(self._examples.values())).classes

    @property
    def metric(self) -> str:
        """The metric's name, a key of `tasks.METRICS`."""
        return self._metric or KINDS[self.kind].metrics[0]

    @property
    def higher_is_better(self) -> bool:
        """False for perplexity and bits per byte."""
        return metrics.METRICS[self.metric].higher_is_better

    @property
    def pairs(self) -> bool:
        """Whether the texts come in pairs."""
        return next(iter(self._examples.values())).pairs

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits there are."""
        return tuple(self._examples)

    def split(self, name: str) -> Examples:
        """The examples of a split: "train", "validation", "test", or another that the source has."""
        if name not in self._examples:
            raise HeadwiseError(f"task {self.name!r} has no split {name!r}, only: {', '.join(self.splits)}")
        return self._examples[name]

    @property
    def fingerprint(self) -> str:
        """A hash of all examples of all splits and of the metric: equal for equal content, whatever the name
        or source.
        """
        prints = [self.metric, *(f"{split} {self.split(split).fingerprint}" for split in self.splits)]
        return hashlib.blake2b("\n".join(prints).encode(), digest_size=16).hexdigest()

    def score(self, predictions: ArrayLike, labels: ArrayLike | None = None) -> float:
        """The task's metric of a prediction table with one row per example (see `tasks.metrics`), on a scale
        where 1 is perfect.

        Args:
            predictions: class numbers, floats, or rows of counts.
            labels: gold labels as in `Examples.labels`; not needed for counts.
        """
        return metrics.score(self.metric, self.kind, predictions, labels)

    @property
    def chance(self) -> float:
        """The metric of the best guess that ignores the text, on validation (else the first labelled split);
        see `metrics.chance`.
        """
        usual: list[str] = [name for name in ("validation", "test", "train") if name in self.splits]
        choices = usual or list(self.splits)
        return self.chance_on(next((name for name in choices if self.split(name).labelled), choices[0]))

    def chance_on(self, split: str) -> float:
        """`chance` on one split."""
        return metrics.chance_level(self.metric, self.kind, self.split(split).labels)

    def __repr__(self) -> str:
        kind, sizes = self._kind or "kind from labels", "not loaded yet"
        if "_examples" in self.__dict__:
            kind = self.kind
            sizes = ", ".join(f"{split} {len(examples)}" for split, examples in self._examples.items())
        synthetic = ", synthetic" if self.synthetic else ""
        return f"Task({self.name!r}, {kind}{synthetic}: {sizes})"


def _training(raw: Mapping[str, sources.Raw]) -> sources.Raw:
    """The training table, or the first where there is none."""
    return raw.get("train", next(iter(raw.values())))
