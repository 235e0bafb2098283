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
from headwise.tasks._splits import by_fraction, check_split_names, divided, text_key
from headwise.tasks._texts import FEW

SPLIT_FRACTIONS = {"train": 0.8, "validation": 0.1, "test": 0.1}


class Task:
    """Data with a question: texts, labels, a metric, and splits. Nothing is read before it is needed.

    Give exactly one source:

    Args:
        name: the task's name; results and models refer to it.
        path: a file (parquet, CSV, TSV, JSON lines, CoNLL-U, ...), a folder with train, validation and test files or one that
            `Dataset.save_to_disk` wrote, or {split: file}.
        data: a DataFrame, a Dataset, {column: values}, rows (dicts, tuples (text..., label), or Sentences), {split: any of these}, or a
            function that reads them.
        hub: the name of a dataset on the Hugging Face hub, never a folder; `subset` its configuration, `revision` its version.

        text: the text column, or two for pairs (minimal pairs: good, bad), four for a contrast; "a|b" is the first of two columns that is there.
            Word kinds read from a table: the column of word lists.
        label: the label column; for word kinds the layer of Sentence (default: the kind's own; "upos" or "xpos" for tags).
        kind: one of `tasks.KINDS`; default: from the labels (fractions: number, lists: tags, else classes).
        metric: one of `tasks.METRICS`; default by kind.
        classes: class names by number; default: those of the source, else those found in the training split, sorted.
        splits: {our split: the source's split or file name} where they differ, e.g. {"validation": "validation_matched"}.
        split_column: the column that names each row's split; default "split" if there is one.
        fractions: how a source without splits is divided.
        together: a column; rows that share its value stay in one split when a source is divided.
        group: a column kept as `Examples.groups` (phenomenon, genre, ...).
        seed: of that division.
        skip_unlabelled: leave out rows without a label (or with -1) instead of raising.
        drop_empty: leave out rows whose text is empty, with a warning that counts them, instead of raising.
        skip_bad: leave out malformed sentences of treebank files and count them, instead of raising.
        synthetic: whether the text was generated; shown wherever its numbers are.
        reading: options of the sentence readers: `columns` and `scheme` (CoNLL columns), `mentions` (CoNLL-U).

    A source with a train but no validation split gets one: 10 % of train by seed, identical texts kept together.
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
        self.metric_given = (
            metric is not None
        )  # else a model may remember another, which it was trained and judged by
        self.origin: dict[str, Any] | None = (
            None  # what `tasks.find_tasks` finds it by, so that a saved model can say it
        )
        self._splits, self._split_column, self._fractions = splits, split_column, dict(fractions)
        self._together, self._group, self._drop_empty = together, group, drop_empty
        self._seed, self._skip_unlabelled, self._reading = (
            seed,
            skip_unlabelled,
            {**(reading or {}), "skip_bad": skip_bad},
        )
        metrics.check_known(metric, name)
        if kind is not None and metric is not None:
            metrics.find(metric, kind)

    validation_carved = (
        False  # whether validation is a tenth of train (no other, or `held_out`); known once it was read
    )
    holds_out = False  # a tenth of train takes the place of the source's validation split

    @classmethod
    def of(
        cls, name: str, splits: Mapping[str, Examples], *, metric: str | None = None, synthetic: bool = False
    ) -> "Task":
        """A task of ready Examples, all of one kind and with the same classes."""
        first = next(iter(splits.values()))
        if any((e.kind, e.classes) != (first.kind, first.classes) for e in splits.values()):
            raise HeadwiseError(f"task {name!r}: its splits differ in kind or classes")
        task = cls(name, data=dict(splits), kind=first.kind, metric=metric, synthetic=synthetic)
        task.__dict__["_examples"] = in_order(name, splits)
        return task

    @classmethod
    def from_toml(cls, source: str | Path) -> "Task":
        """The one task that a TOML file or text defines; `tasks.read_toml` reads several."""
        from headwise.tasks._names import read_toml

        found = read_toml(source)
        if len(found) != 1:
            names = ", ".join(task.name for task in found)
            raise HeadwiseError(f"expected one task, found {len(found)}: {names}; use tasks.read_toml")
        return found[0]

    def renamed(self, name: str) -> "Task":
        """The same task under another name."""
        other = copy.copy(self)
        other.name = check_name(name)
        if "_examples" in other.__dict__:
            other.__dict__["_examples"] = in_order(name, other._examples)
        return other

    def with_metric(self, metric: str, given: bool = True) -> "Task":
        """The same task judged by another metric; `given` says whether a user chose it."""
        metrics.find(metric, self.kind)
        other = copy.copy(self)
        other._metric, other.metric_given = metric, given
        if "_examples" in self.__dict__:
            metrics.check_classes(metric, self.name, self.classes)
        return other

    def with_splits(self, name: str | None = None, **splits: Examples) -> "Task":
        """The same task with some splits replaced, e.g. by a small training sample."""
        other = Task.of(
            name or self.name, {**self._examples, **splits}, metric=self.metric, synthetic=self.synthetic
        )
        other.metric_given = self.metric_given
        other.validation_carved = self.validation_carved and "validation" not in splits
        return other

    def held_out(self) -> "Task":
        """The same task judged on a tenth of its training examples, which are not trained on, in place of its validation split: to
        choose settings by. The seed decides the tenth; identical texts stay together."""
        other = copy.copy(self)
        other.holds_out, other.validation_carved = True, False
        if "_examples" in self.__dict__:
            other.__dict__["_examples"] = in_order(self.name, other._with_validation(self._examples))
        return other

    def _with_validation(self, found: dict[str, Examples]) -> dict[str, Examples]:
        """The splits with a tenth of train as validation, where there is none or a part of train was asked for."""
        if "train" not in found or ("validation" in found and (not self.holds_out or self.validation_carved)):
            return found
        parts = by_fraction(
            (text_key(t) for t in found["train"].texts), {"train": 0.9, "validation": 0.1}, self._seed
        )
        if not all(map(len, parts.values())):
            return found
        self.validation_carved = True
        return found | {name: found["train"].subset(rows) for name, rows in parts.items()}

    @cached_property
    def _examples(self) -> dict[str, Examples]:
        raw = self._read()
        kind = self._kind or guess_kind(
            raw.get("train", next(iter(raw.values()))), self._label or "label", self.text[0]
        )
        if KINDS[kind].reads == "words":
            found = building.annotated(self.name, raw, kind, self.text[0], self._label, self._classes)
        else:
            found = self._plain(raw, kind)
        found = self._with_validation(found)
        building.check(self.name, found)
        metrics.check_classes(self._metric, self.name, next(iter(found.values())).classes)
        release(sum(map(len, found.values())) > FEW)
        return in_order(self.name, found)

    def _read(self) -> dict[str, sources.Raw]:
        """The source's tables by split, divided where it has none."""
        source, label = self._source, self._label or "label"
        if source["hub"] is not None:
            raw = sources.from_hub(source["hub"], source["subset"], source["revision"], self._splits)
        elif source["path"] is not None:
            raw = sources.from_path(
                source["path"], self._kind is not None and KINDS[self._kind].reads == "words", **self._reading
            )
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
            written = (
                any(isinstance(source[way], Mapping) for way in ("path", "data"))
                or self._fractions != SPLIT_FRACTIONS
            )
            check_split_names(self.name, raw, written)
        return raw

    def _plain(self, raw: dict[str, sources.Raw], kind: str) -> dict[str, Examples]:
        label = self._label or "label"
        train = raw.get("train", next(iter(raw.values())))
        entry = KINDS[kind]
        classes = (
            tuple(self._classes or entry.class_names(train, label)) if entry.class_names is not None else ()
        )
        by = numbered_by(train, label, self._classes is not None)
        found = {}
        for split in list(raw):
            part = raw.pop(split)  # the table of a split is not kept beside the examples made from it
            may_miss = self._skip_unlabelled or split.startswith("test")
            if self._drop_empty:
                part = building.without_empty(self.name, part, self.text)
            examples = building.plain(part, kind, self.text, label, classes, by=by, may_miss=may_miss)
            if self._group is not None:
                examples = replace(examples, groups=tuple(column(part, self._group).astype(str)))
            if self._skip_unlabelled:
                examples = examples.subset(~entry.lacking(np.asarray(examples.labels)))
            building.warn_of_gaps(self.name, split, examples)
            found[split] = examples
        return found

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
        """A hash of all examples of all splits and of the metric: equal for equal content, whatever the name or source."""
        parts = [self.metric, *(f"{split} {self.split(split).fingerprint}" for split in self.splits)]
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()

    def score(self, predictions: ArrayLike, labels: ArrayLike | None = None) -> float:
        """The task's metric of a prediction table with one row per example (see `tasks.metrics`), on a scale where 1 is perfect.

        Args:
            predictions: class numbers, floats, or rows of counts.
            labels: gold labels as in `Examples.labels`; not needed for counts.
        """
        return metrics.score(self.metric, self.kind, predictions, labels)

    @property
    def chance(self) -> float:
        """The metric of the best guess that ignores the text, on validation (else the first labelled split); see `metrics.chance`."""
        order: list[str] = [name for name in ("validation", "test", "train") if name in self.splits] or [
            *self.splits
        ]
        return self.chance_on(next((name for name in order if self.split(name).labelled), order[0]))

    def chance_on(self, split: str) -> float:
        """`chance` on one split."""
        return metrics.chance_level(self.metric, self.kind, self.split(split).labels)

    def __repr__(self) -> str:
        loaded = self.__dict__.get("_examples")
        sizes = ", ".join(f"{split} {len(e)}" for split, e in loaded.items()) if loaded else "not loaded yet"
        kind = self.kind if loaded else self._kind or "kind from labels"
        return f"Task({self.name!r}, {kind}{', synthetic' if self.synthetic else ''}: {sizes})"
