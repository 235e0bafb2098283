"""`Recording`: what was recorded, read a few heads at a time."""

from collections.abc import Sequence
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise._base.parsing import read_json, reading
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet

MANIFEST = "recording.json"


class Recording:
    """Head outputs and hidden states of one list of texts (or pairs), memory-mapped.

    Args:
        folder: what `record` wrote.

    Attributes:
        n_heads, dims: heads of each layer and the width of one head's output there.
        width: width of the hidden states; 0 if they were not recorded.
        examples: number of examples.
        sides: 2 if both texts of each pair were recorded by themselves, else 1.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / MANIFEST).is_file():
            raise HeadwiseError(f"{folder} holds no recording: there is no {MANIFEST} in it")
        self.settings = read_json(self.folder / MANIFEST)
        with reading(self.folder / MANIFEST, "the description of a recording"):
            self.n_heads: tuple[int, ...] = tuple(map(index, self.settings["heads"]))
            self.dims: tuple[int, ...] = tuple(map(index, self.settings["dims"]))
            self.width, self.examples, self.sides = (
                index(self.settings[name]) for name in ("width", "examples", "sides")
            )
            if index(self.settings["shard"]) < 1:
                raise ValueError("a shard holds at least one example")

    @property
    def layers(self) -> int:
        """Number of layers (sites)."""
        return len(self.n_heads)

    @property
    def shape(self) -> tuple[int, int]:
        """(layers, heads of the widest layer)."""
        return self.layers, max(self.n_heads)

    def all(self) -> HeadSet:
        """Every head."""
        heads: list[tuple[int, int]] = []
        for layer, count in enumerate(self.n_heads):
            heads += [(layer, head) for head in range(count)]
        return HeadSet(heads)

    @property
    def n_shards(self) -> int:
        return -(-self.examples // int(self.settings["shard"]))

    def bounds(self, number: int) -> tuple[int, int]:
        """The examples of a shard: first, last + 1."""
        size = int(self.settings["shard"])
        return number * size, min(self.examples, (number + 1) * size)

    def shard_folder(self, number: int) -> Path:
        return self.folder / f"shard-{number:05d}"

    @cached_property
    def _maps(self) -> list[tuple[NDArray[Any], NDArray[Any] | None]]:
        maps = []
        for number in range(self.n_shards):
            folder = self.shard_folder(number)
            if not folder.is_dir():
                raise HeadwiseError(
                    f"{self.folder} is not complete: {folder.name} is missing; record again to resume"
                )
            with reading(folder, "a shard of a recording"):
                hidden = np.load(folder / "hidden.npy", mmap_mode="r") if self.width else None
                maps.append((np.load(folder / "heads.npy", mmap_mode="r"), hidden))
        return maps

    def heads(self, members: Sequence[tuple[int, int]]) -> Tensor:
        """Features of heads of equal width, each a set of its own: (heads, examples, dim), for compared pairs
        (…, 2·dim)."""
        dims = {self.dims[layer] for layer, _ in members}
        if len(dims) != 1:
            raise HeadwiseError(
                f"heads of widths {sorted(dims)} cannot be read as one array: read each width separately"
            )
        dim = dims.pop()
        sides = []
        for side in range(self.sides):
            outputs = np.empty((len(members), self.examples, dim), dtype=self.settings["dtype"])
            for number, (heads, _) in enumerate(self._maps):
                low, high = self.bounds(number)
                for row, (layer, head) in enumerate(members):
                    outputs[row, low:high] = heads[side, layer, head, :, :dim]
            sides.append(torch.from_numpy(outputs))
        return _compared(sides)

    def hidden(self, layer: int) -> Tensor:
        """Hidden states after one layer as one feature set: (1, examples, width), for compared pairs (1,
        examples, 2·width)."""
        return _compared([torch.from_numpy(side)[None] for side in self._states(layer)])

    def output(self) -> Tensor:
        """The model's output, which is its last layer's after the final norm (where it has one), as `hidden`
        gives a layer's."""
        return _compared([torch.from_numpy(side)[None] for side in self._states(self.layers)])

    @property
    def normed(self) -> bool:
        """Whether the model's output is another than its last layer's: it has a final norm."""
        return not np.array_equal(self._states(self.layers), self._states(self.layers - 1))

    def _states(self, number: int) -> NDArray[Any]:
        """(sides, examples, width)"""
        if not self.width:
            raise HeadwiseError(f"{self.folder} was recorded without hidden states: record with hidden=True")
        return np.concatenate([hidden[:, number] for _, hidden in self._maps if hidden is not None], axis=1)

    def embedding(self, head_set: HeadSet) -> Tensor:
        """Concatenated outputs of chosen heads as one feature set (1, examples, sum of dims), in the order of
        the set.

        Compared pairs: (1, examples, 2 · sum of dims), [|u − v|; u · v] of the concatenated vectors.
        """
        sides = []
        for side in range(self.sides):
            rows = []
            for heads, _ in self._maps:
                outputs = [heads[side, layer, head, :, : self.dims[layer]] for layer, head in head_set]
                rows.append(np.concatenate(outputs, axis=-1))
            sides.append(torch.from_numpy(np.concatenate(rows))[None])
        return _compared(sides)


def _compared(sides: list[Tensor]) -> Tensor:
    """One side as it is; two sides as [|u − v|; u · v], the product taken value by value."""
    if len(sides) == 1:
        return sides[0]
    u, v = (side.float() for side in sides)
    return torch.cat([(u - v).abs(), u * v], dim=-1)
