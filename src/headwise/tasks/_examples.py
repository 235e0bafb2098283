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
    """One example: its text (one or two strings) and its label (a number, or an array as in `tasks.kinds`)."""

    text: tuple[str, ...]
    label: Any


@dataclass(frozen=True, eq=False)
class Examples:
    """One split of a task.

    Attributes:
        texts: for every example a tuple of one or two strings; minimal pairs: (good, bad); contrasts: (clean, corrupted, answer,
            other). A list, or `Texts` where they are many.
        labels: by kind:
            classes: int64 array (n,), class numbers, -1 where unlabelled; number: float64 array (n,), NaN where unlabelled;
            word kinds: list of n int64 arrays, see `tasks.kinds`;
            next-token, masked-token: int64 zeros (n,), unused; minimal-pairs: int64 zeros (n,): the good sentence is number 0;
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
        if isinstance(self.texts, list) and not all(isinstance(text, tuple) for text in self.texts):
            wrong = next(text for text in self.texts if not isinstance(text, tuple))
            raise HeadwiseError(
                f"{self.task} {self.name}: the text {shown(wrong)} is no tuple; expected (text,) or a pair"
            )
        if KINDS[self.kind].reads == "text":
            self._check_labels()

    def _check_labels(self) -> None:
        array = self.labels
        wanted = np.floating if KINDS[self.kind].numbers else np.integer
        if not isinstance(array, np.ndarray) or not np.issubdtype(array.dtype, wanted):
            held = (
                f"an array of {array.dtype}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
            )
            expected = "floats" if wanted is np.floating else "class numbers (whole numbers)"
            raise HeadwiseError(
                f"{self.task} {self.name}: labels are {held}; expected an array of {expected}"
            )
        if KINDS[self.kind].one_hot and array.shape[1:] != (len(self.classes),):
            raise HeadwiseError(
                f"{self.task} {self.name}: labels have the shape {array.shape}; expected one column a class, {len(self.classes)}"
            )
        if self.classes and len(array) and not -1 <= array.min() <= array.max() < len(self.classes):
            raise HeadwiseError(
                f"{self.task} {self.name}: labels run from {array.min()} to {array.max()}; expected numbers of the {len(self.classes)} classes, "
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
        array = np.asarray(indices)
        chosen = np.flatnonzero(array) if array.dtype == bool else array.astype(np.int64).reshape(-1)
        return replace(
            self,
            texts=self.texts.take(chosen)
            if isinstance(self.texts, Texts)
            else [self.texts[int(i)] for i in chosen],
            labels=[self.labels[i] for i in chosen] if isinstance(self.labels, list) else self.labels[chosen],
            sentences=None if self.sentences is None else [self.sentences[i] for i in chosen],
            groups=tuple(self.groups[i] for i in chosen) if self.groups else (),
        )

    def sample(self, size: int, seed: int = 0) -> "Examples":
        """At most `size` examples drawn without replacement, in their old order; all of them if there are no more."""
        if size >= len(self):
            return self
        return self.subset(np.sort(np.random.default_rng(seed).choice(len(self), size, replace=False)))

    @cached_property
    def text_fingerprint(self) -> str:
        """A hash of what a tokenizer reads: kind, texts and words, but no labels."""
        digest = hashlib.blake2b(digest_size=16)
        _put(digest, ["words" if self.sentences is not None else self.kind])
        for text in self.texts if self.sentences is None else ():
            _put(digest, [str(len(text)), *text])
        for sentence in self.sentences or ():
            _put(digest, [str(len(sentence)), *sentence.words])
        return digest.hexdigest()

    @cached_property
    def fingerprint(self) -> str:
        """A hash of kind, texts, words, labels and class names: equal for equal content, whatever the source."""
        digest = hashlib.blake2b(self.text_fingerprint.encode(), digest_size=16)
        _put(digest, [self.kind, *self.classes])
        for text in self.texts:
            _put(digest, [str(len(text)), *text])
        for label in self.labels if isinstance(self.labels, list) else [self.labels]:
            array = np.ascontiguousarray(label)
            _put(digest, [f"{array.dtype.str}{array.shape}"])
            digest.update(array.tobytes())
        return digest.hexdigest()


def _put(digest: "hashlib.blake2b", parts: Iterable[str]) -> None:
    """Adds strings so that ("ab", "c") and ("a", "bc") differ."""
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)


def in_order(task: str, splits: Mapping[str, Examples]) -> dict[str, Examples]:
    """Train, validation, test, then others by name; each knows its task's name and its own."""
    first = [name for name in ("train", "validation", "test") if name in splits]
    return {
        name: replace(splits[name], task=task, name=name)
        for name in [*first, *sorted(set(splits) - set(first))]
    }
