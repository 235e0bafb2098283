"""Feeding the loop: each task cycles through reshuffled passes of its own data, prepared a few steps
ahead."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.tasks import Batch, Batches, Encoded, batches, collate, prefetched


class Stream:
    """The endless batches of one task: pass after pass over its examples, each reshuffled, none repeated
    before all were seen.

    Args:
        encoded: its training examples.
        batch_size: examples per step.
        seed: of the order; the k-th batch depends on it and on k alone.
    """

    def __init__(self, encoded: Encoded, batch_size: int, seed: int) -> None:
        self.encoded, self.batch_size, self.seed = encoded, batch_size, seed
        self._pass: tuple[int, Batches] = (-1, batches(encoded, batch_size))

    @property
    def n_batches(self) -> int:
        """Batches in one pass."""
        return -(-len(self.encoded) // self.batch_size)

    def rows_of_batch(self, number: int) -> tuple[NDArray[np.int64], int]:
        """Example numbers of the batch `number`, counted over all passes; and the number of its pass."""
        pass_number, batch_in_pass = divmod(number, self.n_batches)
        if self._pass[0] != pass_number:
            self._pass = (
                pass_number,
                batches(self.encoded, self.batch_size, seed=self.seed, epoch=pass_number),
            )
        return self._pass[1].plan[batch_in_pass], pass_number


@dataclass(frozen=True)
class Step:
    """What one process does in one optimizer step.

    Attributes:
        task: task number.
        size: examples in the step over all processes.
        micro: this process's micro-batches, with the weight of each (0 for one that only keeps a process
            without examples in step).
    """

    task: int
    size: int
    micro: list[tuple[Batch, float]]


class Throughput:
    """Examples per second over the last minute or so, for the progress bar."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=200)

    def add(self, examples: int) -> None:
        """Notes how many examples were consumed."""
        self._seen.append((time.monotonic(), examples))

    def note(self) -> str:
        """As text; nothing before there are two steps to compare."""
        if len(self._seen) < 2:
            return "…"
        took = self._seen[-1][0] - self._seen[0][0]
        examples = sum(size for _, size in self._seen) * (1 - 1 / len(self._seen))
        return f"{examples / max(took, 1e-9):.0f} examples/s"


def shares(
    rows: NDArray[np.int64], rank: int, world: int, micro: int | None
) -> list[tuple[NDArray[np.int64], float]]:
    """The parts of a step's examples that process `rank` of `world` works on, each of at most `micro`
    examples.

    All processes have equally many parts, so that they meet at the same number of backward passes; where
    examples run out a part is one example with weight 0.
    """
    most = -(-len(rows) // world)
    share_count = -(-most // (micro or most))
    process_rows = np.array_split(rows, world * share_count)[rank * share_count : (rank + 1) * share_count]
    micro_batches = []
    for share in process_rows:
        if len(share):
            micro_batches.append((share, 1.0))
        else:
            micro_batches.append((rows[:1], 0.0))
    return micro_batches


def steps(
    plan: NDArray[np.int64],
    streams: Sequence[Stream],
    start: int,
    *,
    rank: int = 0,
    world: int = 1,
    micro: int | None = None,
    device: torch.device | None = None,
    pad: int | None = None,
) -> Iterator[Step]:
    """The steps of a training from step `start` on, made by a thread that stays a few steps ahead.

    Args:
        plan: the task of every step.
        streams: one per task.
        start: first step wanted; what came before is counted, not made.
        rank, world: this process, and how many there are.
        micro: most examples per forward pass.
        device: where batches go (through page-locked memory, if it is a GPU).
        pad: tokens are padded to a multiple of this.
    """
    used = np.bincount(plan[:start], minlength=len(streams))

    def make() -> Iterator[Step]:
        for task in plan[start:]:
            stream = streams[task]
            rows, which = stream.rows_of_batch(int(used[task]))
            used[task] += 1
            micro_batches = []
            for share, weight in shares(rows, rank, world, micro):
                batch = collate(
                    stream.encoded, share, pad, mask_seed=which
                )  # other tokens are masked in each pass
                if device is not None and device.type == "cuda":
                    batch = batch.pin_memory().to(device, non_blocking=True)
                micro_batches.append((batch, weight))
            yield Step(int(task), len(rows), micro_batches)

    return prefetched(make(), device)
