"""What parameter-free probes ask about: the labelled spans of sentences (words, entities, phrases, ends of
arcs), and counting answers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise._base.lazy import Registry
from headwise.models import word_room
from headwise.tasks import Batch, Examples

Rows = NDArray[np.int64]  # (spans, 4): start, end (exclusive), class, partner
Mask = NDArray[np.bool_]  # (words,)


@dataclass(frozen=True)
class Items:
    """The labelled spans of one split.

    Attributes:
        labels: label names by number.
        rows: per sentence an array (spans, 4): start, end (exclusive), label, partner. The partner is the
            word that an arc leads to (the head of a dependent, the predicate of an argument); -1 for words,
            spans and phrases.
        targets: per sentence (words,) bool: arcs are counted as drawn if they lead to one of these
            (dependencies: any word; roles: predicates).
        sources: per sentence (words,) bool: ... and come from one of these (dependencies: words that have a
            head among the words and count in the metric; roles: any word).
    """

    labels: tuple[str, ...]
    rows: list[NDArray[np.int64]]
    targets: list[NDArray[np.bool_]]
    sources: list[NDArray[np.bool_]]

    def weights(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """For a batch: (spans, n × words), 1/width on the words of each span, and (spans,) labels."""
        assert batch.n_words is not None
        longest, numbers = word_room(batch), batch.index.tolist()
        by_sentence = [self.rows[number] for number in numbers]
        sentence = torch.from_numpy(np.repeat(np.arange(len(numbers)), [*map(len, by_sentence)]))
        rows = torch.from_numpy(np.concatenate(by_sentence))
        word = torch.arange(longest)
        inside = (word >= rows[:, :1]) & (word < rows[:, 1:2])  # (spans, words)
        weights = torch.zeros(len(rows), len(numbers), longest)
        weights[torch.arange(len(rows)), sentence] = inside / (rows[:, 1] - rows[:, 0])[:, None]
        device = batch.n_words.device
        return weights.flatten(1).to(device), rows[:, 2].to(device)

    def count_classes(self, guess: Tensor, labels: Tensor) -> Tensor:
        """(1, labels, heads, counts) of guesses (spans, heads) for spans with `labels` (spans,)."""
        size = len(self.labels)
        gold = torch.nn.functional.one_hot(labels, size).double()  # (spans, labels)
        hot = torch.nn.functional.one_hot(guess, size).double()  # (spans, heads, labels)
        hit = torch.einsum("tl,thl->lh", gold, hot)
        drawn = hot.sum(0).T
        return torch.stack([hit, gold.sum(0)[:, None].expand_as(hit), hit, drawn], -1)[None].cpu()

    def count_arcs(self, numbers: NDArray[np.int64], partner: Tensor) -> Tensor:
        """(ways, labels, heads, counts) for the sentences `numbers`, where word w finds partner[sentence,
        head, way, w]."""
        heads, ways = partner.shape[1], partner.shape[2]
        total = torch.zeros(ways, len(self.labels), heads, 4, dtype=torch.float64)
        for row, number in enumerate(numbers.tolist()):
            targets, sources = torch.from_numpy(self.targets[number]), torch.from_numpy(self.sources[number])
            partners = partner[row, :, :, : len(targets)]  # (heads, ways, words)
            word = torch.arange(len(targets))
            start, end, label, goal = torch.from_numpy(self.rows[number]).unbind(1)
            # (spans, words)
            inside = (word >= start[:, None]) & (word < end[:, None]) & (word != goal[:, None])
            # (spans, heads, ways, words)
            reached = (partners[None] == goal[:, None, None, None]) & inside[:, None, None, :]
            hot = torch.nn.functional.one_hot(label, len(self.labels)).double()  # (spans, labels)
            hit = torch.einsum("tl,thw->wlh", hot, reached.any(-1).double())
            right = torch.einsum("tl,thw->wlh", hot, reached.sum(-1).double())
            real = (partners >= 0) & (partners < len(targets))
            drawn = real & sources & targets[partners.clamp(0, len(targets) - 1)]  # (heads, ways, words)
            drawn = drawn.sum(-1).T.double()[:, None, :].expand_as(hit)
            gold = hot.sum(0)[None, :, None].expand_as(hit)
            total += torch.stack([hit, gold, right, drawn], -1)
        return total


def find_items(examples: Examples, rng: np.random.Generator | None) -> Items:
    """The labelled spans of a split; with `rng` the control, in which labels (arcs: partners, within the
    sentence) are shuffled."""
    assert examples.sentences is not None
    form = FORMS[examples.kind]
    names = tuple(name.split("+")[-1] for name in examples.classes)  # the lowest phrase of a unary chain
    labels = tuple(sorted(set(names))) if form.chains else names
    number = np.array([labels.index(name) for name in names], dtype=np.int64)
    rows, targets, sources = [], [], []
    for label, sentence in zip(examples.labels, examples.sentences, strict=True):
        spans, target, source = form.spans(np.asarray(label), len(sentence))
        spans[:, 2] = number[spans[:, 2]]
        if rng is not None and form.shuffle is not None:
            spans, target = form.shuffle(spans, target, rng)
        rows.append(spans)
        targets.append(target)
        sources.append(source)
    if rng is not None and form.shuffle is None:
        shuffled = rng.permutation(np.concatenate([spans[:, 2] for spans in rows]))
        edges = np.cumsum([*map(len, rows)])[:-1]
        for spans, classes in zip(rows, np.split(shuffled, edges), strict=True):
            spans[:, 2] = classes
    return Items(labels, rows, targets, sources)


@dataclass(frozen=True)
class Form:
    """What the labelled spans of one kind of task are.

    Attributes:
        spans: finds those of a sentence in its labels and number of words: rows, targets, and sources, see
            `Items`.
        shuffle: makes the control of arcs, of the rows and targets of a sentence; None: the spans have no
            partners, and a probe compares them with the centroids of their classes.
        chains: class names are chains of phrases, of which the lowest counts.
    """

    spans: Callable[[NDArray[np.int64], int], tuple[Rows, Mask, Mask]]
    shuffle: Callable[[Rows, Mask, np.random.Generator], tuple[Rows, Mask]] | None = None
    chains: bool = False


def _all(size: int) -> Mask:
    return np.ones(size, dtype=bool)


def _words(label: NDArray[np.int64], size: int) -> tuple[Rows, Mask, Mask]:
    word = np.arange(size)
    return np.stack([word, word + 1, label, np.full(size, -1)], 1), _all(size), _all(size)


def _spans(label: NDArray[np.int64], size: int) -> tuple[Rows, Mask, Mask]:
    return np.concatenate([label, np.full((len(label), 1), -1)], 1).astype(np.int64), _all(size), _all(size)


def _lowest_phrases(label: NDArray[np.int64], size: int) -> tuple[Rows, Mask, Mask]:
    """The phrases that hold no other; unary chains are one row already."""
    phrases = label[label[:, 2] >= 0]
    within = (phrases[:, None, 0] <= phrases[None, :, 0]) & (phrases[None, :, 1] <= phrases[:, None, 1])
    return _spans(phrases[within.sum(1) == 1], size)


def _dependents(label: NDArray[np.int64], size: int) -> tuple[Rows, Mask, Mask]:
    word = np.flatnonzero((label[:, 2] == 1) & (label[:, 0] > 0))
    rows = np.stack([word, word + 1, label[word, 1], label[word, 0] - 1], 1)
    return rows, _all(size), np.isin(np.arange(size), word)


def _swapped_heads(rows: Rows, target: Mask, rng: np.random.Generator) -> tuple[Rows, Mask]:
    """The words of a sentence swap their heads."""
    return np.column_stack([rows[:, :3], rng.permutation(rows[:, 3])]), target


def _arguments(label: NDArray[np.int64], size: int) -> tuple[Rows, Mask, Mask]:
    target = np.zeros(size, dtype=bool)
    target[label[label[:, 3] == 0, 0]] = True
    return label[label[:, 3] > 0][:, [1, 2, 3, 0]], target, _all(size)


def _moved_predicates(rows: Rows, target: Mask, rng: np.random.Generator) -> tuple[Rows, Mask]:
    """Predicates move to other words of the sentence."""
    new_number = rng.permutation(len(target))
    moved = np.zeros_like(target)
    moved[new_number[target]] = True
    return np.column_stack([rows[:, :3], new_number[rows[:, 3]]]), moved


FORMS: Registry[Form] = Registry(
    "kind of task that these probes read",
    {
        "tags": Form(_words),
        "spans": Form(_spans),
        "constituents": Form(_lowest_phrases, chains=True),
        "dependencies": Form(_dependents, _swapped_heads),
        "roles": Form(_arguments, _moved_predicates),
    },
)
