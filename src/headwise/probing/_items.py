"""What parameter-free probes ask about: the labelled things of sentences (words, spans, phrases, arcs), and counting answers."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.models._decoders.words import room_for
from headwise.tasks import Batch, Examples

CENTROID_KINDS = ("tags", "spans", "constituents")
ARC_KINDS = ("dependencies", "roles")
KINDS = (*CENTROID_KINDS, *ARC_KINDS)


@dataclass(frozen=True)
class Items:
    """The things of one split.

    Attributes:
        labels: label names by number.
        rows: per sentence an array (things, 4): start, end (exclusive), label, partner. The partner is the word that an arc leads
            to (the head of a dependent, the predicate of an argument); -1 for words, spans and phrases.
        targets: per sentence (words,) bool: arcs are counted as drawn if they lead to one of these (dependencies: any word; roles:
            predicates).
        sources: per sentence (words,) bool: ... and come from one of these (dependencies: words that have a head among the words and
            count in the metric; roles: any word).
    """

    labels: tuple[str, ...]
    rows: list[NDArray[np.int64]]
    targets: list[NDArray[np.bool_]]
    sources: list[NDArray[np.bool_]]

    def weights(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """For a batch: (things, n × words), 1/width on the words of each thing, and (things,) labels."""
        assert batch.n_words is not None
        longest, numbers = room_for(batch), batch.index.tolist()
        parts = [self.rows[i] for i in numbers]
        owner = torch.from_numpy(np.repeat(np.arange(len(parts)), [len(part) for part in parts]))
        rows = torch.from_numpy(np.concatenate(parts))
        word = torch.arange(longest)
        inside = (word >= rows[:, :1]) & (word < rows[:, 1:2])  # (things, words)
        weights = torch.zeros(len(rows), len(parts), longest)
        weights[torch.arange(len(rows)), owner] = inside / (rows[:, 1] - rows[:, 0])[:, None]
        device = batch.n_words.device
        return weights.flatten(1).to(device), rows[:, 2].to(device)

    def count_classes(self, guess: Tensor, labels: Tensor) -> Tensor:
        """(1, labels, heads, counts) of guesses (things, heads) for things with `labels` (things,)."""
        size = len(self.labels)
        gold = torch.nn.functional.one_hot(labels, size).double()  # (things, labels)
        hot = torch.nn.functional.one_hot(guess, size).double()  # (things, heads, labels)
        hit = torch.einsum("tl,thl->lh", gold, hot)
        drawn = hot.sum(0).T
        return torch.stack([hit, gold.sum(0)[:, None].expand_as(hit), hit, drawn], -1)[None].cpu()

    def count_arcs(self, numbers: NDArray[np.int64], partner: Tensor) -> Tensor:
        """(ways, labels, heads, counts) for the sentences `numbers`, where word w finds partner[sentence, head, way, w]."""
        heads, ways = partner.shape[1], partner.shape[2]
        total = torch.zeros(ways, len(self.labels), heads, 4, dtype=torch.float64)
        for place, number in enumerate(numbers.tolist()):
            rows = self.rows[number]
            targets, sources = torch.from_numpy(self.targets[number]), torch.from_numpy(self.sources[number])
            found = partner[place, :, :, : len(targets)]  # (heads, ways, words)
            word = torch.arange(len(targets))
            start, end, label, goal = torch.from_numpy(rows).unbind(1)
            inside = (word >= start[:, None]) & (word < end[:, None]) & (word != goal[:, None])  # (things, words)
            reached = (found[None] == goal[:, None, None, None]) & inside[:, None, None, :]  # (things, heads, ways, words)
            hot = torch.nn.functional.one_hot(label, len(self.labels)).double()  # (things, labels)
            hit = torch.einsum("tl,thw->wlh", hot, reached.any(-1).double())
            right = torch.einsum("tl,thw->wlh", hot, reached.sum(-1).double())
            real = (found >= 0) & (found < len(targets))
            drawn = real & sources & targets[found.clamp(0, len(targets) - 1)]  # (heads, ways, words)
            drawn = drawn.sum(-1).T.double()[:, None, :].expand_as(hit)
            gold = hot.sum(0)[None, :, None].expand_as(hit)
            total += torch.stack([hit, gold, right, drawn], -1)
        return total


def find_items(examples: Examples, rng: np.random.Generator | None) -> Items:
    """The things of a split; with `rng` the control, in which labels (arcs: partners, within the sentence) are shuffled."""
    assert examples.sentences is not None
    sizes = [len(sentence) for sentence in examples.sentences]
    names = tuple(name.split("+")[-1] for name in examples.classes)  # the lowest phrase of a unary chain
    labels = tuple(sorted(set(names))) if examples.kind == "constituents" else names
    number = np.array([labels.index(name) for name in names], dtype=np.int64)
    rows, targets, sources = [], [], []
    for label, size in zip(examples.labels, sizes, strict=True):
        found, target = _things(examples.kind, np.asarray(label), size)
        if len(found):
            found[:, 2] = number[found[:, 2]]
        if rng is not None and examples.kind in ARC_KINDS:
            found, target = _shuffled_partners(found, target, size, rng, examples.kind)
        rows.append(found)
        targets.append(target)
        sources.append(np.isin(np.arange(size), found[:, 0]) if examples.kind == "dependencies" else np.ones(size, dtype=bool))
    if rng is not None and examples.kind in CENTROID_KINDS:
        shuffled = rng.permutation(np.concatenate([part[:, 2] for part in rows]))
        for part, own in zip(rows, np.split(shuffled, np.cumsum([len(part) for part in rows])[:-1]), strict=True):
            part[:, 2] = own
    return Items(labels, rows, targets, sources)


def _things(kind: str, label: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(things, 4) start, end, class, partner; and which words an arc may count for."""
    everyone = np.ones(size, dtype=bool)
    if kind == "tags":
        word = np.arange(size)
        return np.stack([word, word + 1, label, np.full(size, -1)], 1), everyone
    if kind == "dependencies":
        word = np.flatnonzero((label[:, 2] == 1) & (label[:, 0] > 0))
        return np.stack([word, word + 1, label[word, 1], label[word, 0] - 1], 1), everyone
    if kind == "roles":
        target = np.zeros(size, dtype=bool)
        target[label[label[:, 3] == 0, 0]] = True
        argument = label[label[:, 3] > 0]
        return argument[:, [1, 2, 3, 0]], target
    if kind == "constituents":
        phrases = label[label[:, 2] >= 0]
        # a lowest phrase holds no other; unary chains are one row already
        within = (phrases[:, None, 0] <= phrases[None, :, 0]) & (phrases[None, :, 1] <= phrases[:, None, 1])
        label = phrases[within.sum(1) == 1]
    return np.concatenate([label, np.full((len(label), 1), -1)], 1).astype(np.int64), everyone


def _shuffled_partners(
    rows: NDArray[np.int64], target: NDArray[np.bool_], size: int, rng: np.random.Generator, kind: str
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Dependencies: the words of a sentence swap their heads. Roles: predicates move to other words of the sentence."""
    rows = rows.copy()
    if kind == "dependencies":
        rows[:, 3] = rng.permutation(rows[:, 3])
        return rows, target
    place = rng.permutation(size)
    rows[:, 3] = place[rows[:, 3]]
    moved = np.zeros_like(target)
    moved[place[target]] = True
    return rows, moved
