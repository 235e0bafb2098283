"""Labels of a batch as arrays, and the room they take.

Sentences differ in words and in labels. Padded batches round that room up, so that few shapes serve all batches of a task.
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
        heads: rows of one sentence whose class is the kind's first (roles: predicates); 0 where the kind has no such class.
        others: the other rows of one sentence (roles: arguments), the same.
    """

    words: int
    rows: int
    heads: int
    others: int


def room_of_labels(encoded: Encoded, chosen: NDArray[np.int64], pad: int | None) -> Room | None:
    """The room that the batch of the examples `chosen` takes; None: its kind has none of its own.

    Args:
        encoded: the examples.
        chosen: numbers of those in the batch.
        pad: words are rounded up to a multiple of this, lists to a power of two; None: nothing is.
    """
    if encoded.needs is None:
        return None
    kind, own = KINDS[encoded.examples.kind], encoded.needs[chosen]  # (n, 4)
    words, _, heads, others = own.max(0, initial=0).tolist()
    rows = int(own[:, 1].sum()) if kind.batched == "list" else 0
    if pad:
        words = -(-words // pad) * pad
        rows = _power(rows) if kind.batched == "list" else 0
        heads, others = (_power(heads), _power(others)) if kind.first else (0, 0)
    return Room(words, rows, heads, others)


def _power(size: int) -> int:
    """The next power of two, at least FEWEST."""
    return 1 << (max(size, FEWEST) - 1).bit_length()


def label_tensor(encoded: Encoded, chosen: NDArray[np.int64], room: Room | None) -> torch.Tensor:
    """Labels of sequence and word kinds, as `Batch` describes them."""
    examples, kind = encoded.examples, KINDS[encoded.examples.kind]
    if encoded.answers is not None:
        return torch.from_numpy(encoded.answers[chosen])
    if not isinstance(examples.labels, list):
        return torch.from_numpy(examples.labels[chosen].astype(kind.dtype))
    parts = [examples.labels[i] for i in chosen]
    counts = np.array([len(part) for part in parts], dtype=np.int64)
    owner = np.repeat(np.arange(len(parts)), counts)
    together = np.concatenate(parts) if parts else np.zeros((0, 1), np.int64)
    if kind.batched == "list":
        listed = np.zeros((room.rows if room else len(owner), 1 + together.shape[1]), np.int64)
        listed[len(owner) :, 0] = -1
        listed[: len(owner)] = np.column_stack([owner, together])
        return torch.from_numpy(listed)
    filling = np.array(kind.filling).reshape(together.shape[1:])
    longest = room.words if room else int(counts.max(initial=0))
    out = np.tile(filling, (len(parts), longest, *[1] * filling.ndim))
    out[owner, np.arange(len(together)) - np.repeat(np.cumsum(counts) - counts, counts)] = together
    return torch.from_numpy(out)


def tree_tensor(encoded: Encoded, chosen: NDArray[np.int64], room: Room | None) -> torch.Tensor | None:
    """Gold trees made binary, (n, 2 words − 1, 3), as `Batch` describes them; None: the kind has no trees."""
    examples = encoded.examples
    if room is None or not KINDS[examples.kind].trees or not isinstance(examples.labels, list):
        return None
    known, needs = encoded.trees, encoded.needs
    assert needs is not None
    for i in chosen.tolist():
        if i not in known:
            labels = np.insert(examples.labels[i], 0, 0, axis=1)  # of sentence 0
            known[i] = binary_spans(labels, [int(needs[i, 0])])[:, 1:]
    return dense_trees([known[i] for i in chosen.tolist()], room.words)


def dense_trees(trees: Sequence[NDArray[np.int64]], words: int) -> torch.Tensor:
    """Spans (start, end, class + 1) of each tree as one tensor (n, 2 words − 1, 3); (0, 0, -100) beyond a tree."""
    out = np.tile(np.array([0, 0, IGNORED]), (len(trees), max(2 * words - 1, 0), 1))
    for row, tree in zip(out, trees, strict=True):
        row[: len(tree)] = tree
    return torch.from_numpy(out)


def binary_spans(labels: NDArray[np.int64], lengths: Sequence[int]) -> NDArray[np.int64]:
    """Gold trees made binary: children are gathered from the left, spans that are not constituents have label 0.

    Args:
        labels: (constituents, 4): sentence, start, end, class; class -1 marks words that do not count.
        lengths: words of each sentence.

    Returns:
        (spans, 4): sentence, start, end, class + 1; 2n - 1 rows for a sentence of n words.
    """
    out: list[tuple[int, int, int, int]] = []
    trees: list[dict[tuple[int, int], int]] = [
        {(0, n): 0, **{(i, i + 1): 0 for i in range(n)}} for n in lengths
    ]
    for b, s, e, c in labels.tolist():
        if c >= 0:
            trees[b][s, e] = c + 1
    for b, tree in enumerate(trees):
        # Parents before children, left to right: by start, then the wider first.
        nodes = sorted(((s, e, c) for (s, e), c in tree.items()), key=lambda node: (node[0], -node[1]))
        stack: list[tuple[int, int, int]] = []  # (start, end, children so far) of the open nodes
        for s, e, c in nodes:
            out.append((b, s, e, c))
            while stack and stack[-1][1] <= s:
                stack.pop()
            if stack:
                top_s, top_e, children = stack[-1]
                stack[-1] = (top_s, top_e, children + 1)
                if children and e < top_e:  # the second, third, ... child joins what lies left of it
                    out.append((b, top_s, e, 0))
            stack.append((s, e, 0))
    return np.array(out, dtype=np.int64).reshape(-1, 4)
