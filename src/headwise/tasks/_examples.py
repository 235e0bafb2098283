"""Examples: the texts and labels of one split of a task."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwise._base.names import shown
from headwise.errors import HeadwiseError
from headwise.tasks._kinds import KINDS
from headwise.tasks._sentence import Sentence
from headwise.tasks._texts import Texts


class Example(NamedTuple):
    """One example: its text (one or two strings) and its label (a number, or an array as in
    `tasks.kinds`).
    """

    text: tuple[str, ...]
    label: Any


@dataclass(frozen=True, eq=False)
class Examples:
    """One split of a task.

    Attributes:
        texts: for every example a tuple of one or two strings; minimal pairs: (good, bad); contrasts:
            (clean, corrupted, right answer, wrong answer). A list, or `Texts` where they are many.
        labels: by kind:
            classes: int64 array (n,), class numbers, -1 where unlabelled;
            number: float64 array (n,), NaN where unlabelled;
            word kinds: list of n int64 arrays, see `tasks.kinds`;
            next-token, masked-token: int64 zeros (n,), unused; minimal-pairs: int64 zeros (n,): the good
            sentence is number 0;
            contrast: int64 zeros (n,), unused.
        kind: one of KINDS.
        classes: class names by number; () for number and token kinds.
        sentences: word kinds only, the annotated sentences (`sentences[i].words` is what is tokenised).
        groups: optional name of each example's group (BLiMP phenomenon, genre, ...); () where there is none.
        task, name: the task's name and the split's.
    """

    texts: Sequence[tuple[str, ...]]
    labels: NDArray[Any] | list[NDArray[np.int64]]
    kind: str
    classes: tuple[str, ...] = ()
    sentences: list[Sentence] | None = None
    groups: tuple[str, ...] = ()
    task: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise HeadwiseError(f"unknown kind {self.kind!r}; expected one of {', '.join(KINDS)}")
        if len(self.texts) != len(self.labels):
            raise HeadwiseError(
                f"{self.task} {self.name}: {len(self.texts)} texts and {len(self.labels)} labels"
            )
        if isinstance(self.texts, list):
            for text in self.texts:
                if not isinstance(text, tuple):
                    raise HeadwiseError(
                        f"{self.task} {self.name}: the text {shown(text)} is no tuple; "
                        "expected (text,) or a pair"
                    )
        if KINDS[self.kind].reads == "text":
            self._check_labels()

    def _check_labels(self) -> None:
        labels, where = self.labels, f"{self.task} {self.name}"
        dtype: Any = np.integer
        expected = "class numbers (whole numbers)"
        if KINDS[self.kind].numbers:
            dtype, expected = np.floating, "floats"
        if not isinstance(labels, np.ndarray):
            raise HeadwiseError(
                f"{where}: labels are a {type(labels).__name__}; expected an array of {expected}"
            )
        if not np.issubdtype(labels.dtype, dtype):
            raise HeadwiseError(
                f"{where}: labels are an array of {labels.dtype}; expected an array of {expected}"
            )
        count = len(self.classes)
        if KINDS[self.kind].one_hot and labels.shape[1:] != (count,):
            raise HeadwiseError(
                f"{where}: labels have the shape {labels.shape}; expected one column a class, {count}"
            )
        if count and len(labels) and not -1 <= labels.min() <= labels.max() < count:
            raise HeadwiseError(
                f"{where}: labels run from {labels.min()} to {labels.max()}; expected numbers of the {count} "
                "classes, "
                "from 0, or -1 where there is none"
            )

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Example:
        return Example(self.texts[index], self.labels[index])

    def __iter__(self) -> Iterator[Example]:
        return (self[i] for i in range(len(self)))

    @property
    def pairs(self) -> bool:
        """Whether the examples are pairs of texts."""
        return bool(self.texts) and len(self.texts[0]) == 2

    @property
    def labelled(self) -> bool:
        """Whether every example has its label (GLUE test sets have none)."""
        if isinstance(self.labels, list):
            return True
        return not KINDS[self.kind].lacking(self.labels).any()

    def subset(self, indices: Sequence[int] | NDArray[Any]) -> "Examples":
        """The examples at `indices` (numbers, or a boolean mask), in that order."""
        numbers = np.asarray(indices)
        if numbers.dtype == bool:
            numbers = np.flatnonzero(numbers)
        numbers = numbers.astype(np.int64).reshape(-1)

        def select(values: Any) -> Any:
            if values is None:
                return None
            if isinstance(values, Texts):
                return values.take(numbers)
            if isinstance(values, np.ndarray):
                return values[numbers]
            return [values[i] for i in numbers]

        return replace(
            self,
            texts=select(self.texts),
            labels=select(self.labels),
            sentences=select(self.sentences),
            groups=tuple(select(self.groups)) if self.groups else (),
        )

    def sample(self, size: int, seed: int = 0) -> "Examples":
        """At most `size` examples drawn without replacement, in their old order; all of them if there are no
        more.
        """
        if size >= len(self):
            return self
        return self.subset(np.sort(np.random.default_rng(seed).choice(len(self), size, replace=False)))

    @cached_property
    def text_fingerprint(self) -> str:
        """A hash of what a tokenizer reads: kind, texts and words, but no labels."""
        digest = hashlib.blake2b(digest_size=16)
        if self.sentences is None:
            _put(digest, [self.kind])
            for text in self.texts:
                _put(digest, [str(len(text)), *text])
        else:
            _put(digest, ["words"])
            for sentence in self.sentences:
                _put(digest, [str(len(sentence)), *sentence.words])
        return digest.hexdigest()

    @cached_property
    def fingerprint(self) -> str:
        """A hash of kind, texts, words, labels and class names: equal for equal content, whatever the
        source.
        """
        digest = hashlib.blake2b(self.text_fingerprint.encode(), digest_size=16)
        _put(digest, [self.kind, *self.classes])
        for text in self.texts:
            _put(digest, [str(len(text)), *text])
        arrays = self.labels if isinstance(self.labels, list) else [self.labels]
        for array in map(np.ascontiguousarray, arrays):
            _put(digest, [f"{array.dtype.str}{array.shape}"])
            digest.update(array.tobytes())
        return digest.hexdigest()


def _put(digest: "hashlib.blake2b", strings: Iterable[str]) -> None:
    """Adds strings so that ("ab", "c") and ("a", "bc") differ."""
    for string in strings:
        data = string.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)


def in_order(task: str, splits: Mapping[str, Examples]) -> dict[str, Examples]:
    """Train, validation, test, then others by name; each knows its task's name and its own."""
    first = [name for name in ("train", "validation", "test") if name in splits]
    return {
        name: replace(splits[name], task=task, name=name)
        for name in [*first, *sorted(set(splits) - set(first))]
    }
