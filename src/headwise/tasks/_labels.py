"""Labels of a batch as arrays, and the room they take.

Sentences differ in words and in labels. Padded batches round that room up, so that few shapes serve all
batches of a task.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.tasks._encoding import Encoded
from headwise.tasks._kinds import IGNORED, KINDS

FEWEST = 8  # padded lists have this many rows, or a power of two above it


class Room(NamedTuple):
    """What the labels of a batch of a word kind have room for, known without looking at a device.

    Attributes:
        words: of a sentence.
        rows: of labels, where they are a list.
        predicates: rows of one sentence whose class is the kind's first ("V"); 0 where the kind has no such
            class.
        arguments: the further rows of one sentence, the same.
    """

    words: int
    rows: int
    predicates: int
    arguments: int


def room_of_labels(encoded: Encoded, numbers: NDArray[np.int64], pad: int | None) -> Room | None:
    """The room that the labels of a batch take; None where the kind's labels take one row an example.

    Args:
        encoded: the examples.
        numbers: of those in the batch.
        pad: words are rounded up to a multiple of this, lists to a power of two; None: nothing is.
    """
    if encoded.needs is None:
        return None
    kind, needs = KINDS[encoded.examples.kind], encoded.needs[numbers]  # (n, 4)
    words, _, predicates, arguments = needs.max(0, initial=0).tolist()
    rows = int(needs[:, 1].sum())
    if pad:
        words = -(-words // pad) * pad
        rows, predicates, arguments = _power(rows), _power(predicates), _power(arguments)
    if kind.batched != "list":
        rows = 0
    if not kind.first:
        predicates = arguments = 0
    return Room(words, rows, predicates, arguments)


def _power(size: int) -> int:
    """The next power of two, at least FEWEST."""
    return 1 << (max(size, FEWEST) - 1).bit_length()


def label_tensor(encoded: Encoded, numbers: NDArray[np.int64], room: Room | None) -> torch.Tensor:
    """Labels of sequence and word kinds, as `Batch` describes them."""
    examples, kind = encoded.examples, KINDS[encoded.examples.kind]
    if encoded.answers is not None:
        return torch.from_numpy(encoded.answers[numbers])
    if not isinstance(examples.labels, list):
        return torch.from_numpy(examples.labels[numbers].astype(kind.dtype))
    label_rows = [examples.labels[i] for i in numbers]
    counts = np.array([len(rows) for rows in label_rows], dtype=np.int64)
    owner = np.repeat(np.arange(len(label_rows)), counts)
    labels = np.concatenate(label_rows) if label_rows else np.zeros((0, 1), np.int64)
    if kind.batched == "list":
        rows = room.rows if room else len(owner)
        listed = np.zeros((rows, 1 + labels.shape[1]), np.int64)
        listed[len(owner) :, 0] = -1
        listed[: len(owner)] = np.column_stack([owner, labels])
        return torch.from_numpy(listed)
    filling = np.array(kind.filling).reshape(labels.shape[1:])
    longest = room.words if room else int(counts.max(initial=0))
    out = np.tile(filling, (len(label_rows), longest, *[1] * filling.ndim))
    word = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    out[owner, word] = labels
    return torch.from_numpy(out)


def tree_tensor(encoded: Encoded, numbers: NDArray[np.int64], room: Room | None) -> torch.Tensor | None:
    """Gold trees made binary, (n, 2 words − 1, 3), as `Batch` describes them; None: the kind has no trees."""
    examples = encoded.examples
    if room is None or not KINDS[examples.kind].trees or not isinstance(examples.labels, list):
        return None
    trees, needs = encoded.trees, encoded.needs
    assert needs is not None
    for i in numbers.tolist():
        if i not in trees:
            labels = np.insert(examples.labels[i], 0, 0, axis=1)  # of sentence 0
            trees[i] = binary_spans(labels, [int(needs[i, 0])])[:, 1:]
    return dense_trees([trees[i] for i in numbers.tolist()], room.words)


def dense_trees(trees: Sequence[NDArray[np.int64]], words: int) -> torch.Tensor:
    """Spans (start, end, class + 1) of each tree as one tensor (n, 2 words − 1, 3); (0, 0, -100) beyond a
    tree.
    """
    out = np.tile(np.array([0, 0, IGNORED]), (len(trees), max(2 * words - 1, 0), 1))
    for row, tree in zip(out, trees, strict=True):
        row[: len(tree)] = tree
    return torch.from_numpy(out)


def binary_spans(labels: NDArray[np.int64], lengths: Sequence[int]) -> NDArray[np.int64]:
    """Gold trees made binary: children are gathered from the left, spans that are not constituents have label
    0.

    Args:
        labels: (constituents, 4): sentence, start, end, class; class -1 marks words that do not count.
        lengths: words of each sentence.

    Returns:
        (spans, 4): sentence, start, end, class + 1; 2n - 1 rows for a sentence of n words.
    """
    trees: list[dict[tuple[int, int], int]] = []  # of each sentence the class + 1 of every span
    for length in lengths:
        words = ((i, i + 1) for i in range(length))
        trees.append(dict.fromkeys([(0, length), *words], 0))
    for sentence, start, end, number in labels.tolist():
        if number >= 0:
            trees[sentence][start, end] = number + 1
    spans: list[tuple[int, int, int, int]] = []
    for sentence, tree in enumerate(trees):
        stack: list[tuple[int, int, int]] = []  # (start, end, children so far) of the open nodes
        # parents before children, left to right: by start, then the wider first
        for start, end in sorted(tree, key=lambda span: (span[0], -span[1])):
            spans.append((sentence, start, end, tree[start, end]))
            while stack and stack[-1][1] <= start:
                stack.pop()
            if stack:
                parent_start, parent_end, children = stack[-1]
                stack[-1] = (parent_start, parent_end, children + 1)
                if children and end < parent_end:  # the second, third, ... child joins what lies left of it
                    spans.append((sentence, parent_start, end, 0))
            stack.append((start, end, 0))
    return np.array(spans, dtype=np.int64).reshape(-1, 4)
