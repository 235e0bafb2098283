"""`HeadSet`: which heads, as an immutable set of (layer, head) pairs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Set
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise._base.names import shown
from headwise._base.parsing import parse_json
from headwise._base.sentences import counted
from headwise.errors import HeadwiseError
from headwise.sections import Described, Section


class HeadSet(Described, Set[tuple[int, int]]):
    """An immutable, hashable set of heads; iterates in (layer, head) order.

    `layer` is a site's index in `Heads.sites`, for every kind of model. `|`, `&`, `-`, `^`, `<=` work as for
    any set.

    Args:
        heads: (layer, head) pairs, both counted from 0.

    Raises:
        HeadwiseError: an entry is not a pair of non-negative integers.
    """

    __slots__ = ("_heads", "_sorted")

    def __init__(self, heads: Iterable[tuple[int, int]] = ()) -> None:
        self._heads = frozenset(_pair(head) for head in heads)
        self._sorted = tuple(sorted(self._heads))

    def __contains__(self, head: object) -> bool:
        return head in self._heads

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._sorted)

    def __len__(self) -> int:
        return len(self._sorted)

    def __hash__(self) -> int:
        return hash(self._heads)

    def __repr__(self) -> str:
        return f"HeadSet([{', '.join(f'({layer}, {head})' for layer, head in self)}])"

    def __str__(self) -> str:
        """Heads grouped by layer: `3 heads: 0.3 0.5 7.10`."""
        heads = " ".join(f"{layer}.{head}" for layer, head in self)
        return f"{counted(len(self), 'head')}: {heads or 'none'}"

    def section(self) -> Section:
        """What is said of this set."""
        from headwise.heads._anatomy import head_set_section

        return head_set_section(self)

    def overlap(self, other: Iterable[tuple[int, int]]) -> float:
        """The share of common heads, |A∩B| ÷ n in 0..1, where n is the size of the larger set (the papers
        compare sets of one size).

        Two empty sets overlap by 0.
        """
        compared = HeadSet(other)
        return len(self & compared) / max(len(self), len(compared), 1)

    def layers(self) -> dict[int, tuple[int, ...]]:
        """The heads of each layer that has any, as {layer: heads}, both ascending."""
        grouped: dict[int, list[int]] = {}
        for layer, head in self:
            grouped.setdefault(layer, []).append(head)
        return {layer: tuple(heads) for layer, heads in grouped.items()}

    def to_mask(self, shape: tuple[int, int]) -> NDArray[np.bool_]:
        """A boolean array (layers, heads) that is True where a head is a member.

        Raises:
            HeadwiseError: a head lies outside `shape`, so this set belongs to another model.
        """
        mask = np.zeros(tuple(shape), dtype=bool)
        for layer, head in self:
            if layer >= shape[0] or head >= shape[1]:
                raise HeadwiseError(
                    f"head ({layer}, {head}) lies outside {shape[0]} layers of {shape[1]} heads: "
                    "was this set made for another model? layers and heads count from 0"
                )
            mask[layer, head] = True
        return mask

    @classmethod
    def from_mask(cls, mask: ArrayLike) -> HeadSet:
        """The heads where a (layers, heads) array (numpy, torch, nested lists) is true; its values must be 0
        or 1.

        Raises:
            HeadwiseError: the array has another number of axes, or other values.
        """
        values = np.asarray(mask)
        if values.ndim != 2 or not np.isin(values, (0, 1)).all():
            raise HeadwiseError(
                f"a mask of heads is (layers, heads) with values 0 or 1; got shape {values.shape} of "
                f"{values.dtype}: compare with a threshold first, for instance HeadSet.from_mask(scores > "
                "0.5)"
            )
        return cls((int(layer), int(head)) for layer, head in np.argwhere(values))

    def to_json(self) -> str:
        """A JSON list of [layer, head] pairs."""
        return json.dumps(self._sorted)

    @classmethod
    def from_json(cls, text: str) -> HeadSet:
        """Reads what `to_json` wrote.

        Raises:
            HeadwiseError: the text is not a JSON list of pairs.
        """
        expected = "a set of heads is a JSON list like [[0, 3], [7, 10]]"
        pairs = parse_json(text, f"{expected}; {shown(text)}")
        if not isinstance(pairs, list):
            raise HeadwiseError(f"{expected}; got {shown(text)}")
        return cls(pairs)


def _pair(pair: Any) -> tuple[int, int]:
    try:
        layer, head = map(index, pair)
    except (TypeError, ValueError):
        raise HeadwiseError(f"a head is a pair of integers (layer, head); got {shown(pair)}") from None
    if layer < 0 or head < 0:
        raise HeadwiseError(f"layers and heads count from 0; got ({layer}, {head})")
    return layer, head
