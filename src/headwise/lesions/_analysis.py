"""From lesions to dissociation: one pass of arithmetic over predictions that are already there."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise._base.inference import MIN_EXAMPLES
from headwise.lesions import _dissociation as d
from headwise.lesions._evaluation import INTACT, Lesions
from headwise.lesions._resampling import metric_draws
from headwise.lesions._statistics import interval, resample_counts

Array = NDArray[np.float64]
BLOCK = 100  # bootstrap draws held in memory at once


@dataclass(frozen=True)
class Analysis:
    """Performance and dissociation of n tasks, each with its own lesion.

    Attributes:
        tasks: names, in the order of every axis below.
        intact: (tasks,); performance: (lesions, tasks); chance: (tasks,); examples: (tasks,), held-out ones.
        rp: (lesions, tasks), relative performance (Eq. 5); corrected: the same, chance-corrected.
        draws: (bootstrap, lesions, tasks), relative performance of each bootstrap sample; empty if none was asked for, NaN for tasks
            with fewer than 50 examples, whose intervals would be too narrow.
        level: of the intervals.
    """

    tasks: tuple[str, ...]
    intact: Array
    performance: Array
    chance: Array
    examples: NDArray[np.int64]
    rp: Array
    corrected: Array
    draws: Array
    level: float

    @property
    def d_i(self) -> Array:
        """D of each task (Eq. 7; for two tasks D_A and D_B of Eq. 6)."""
        return d.per_task(self.rp)

    @property
    def d(self) -> float:
        """D of all."""
        return float(d.overall(self.rp))

    def d_interval(self) -> tuple[float, float]:
        """Bootstrap interval of D."""
        return self._interval(d.overall(self.draws), int(self.examples.min()))

    def d_i_interval(self) -> tuple[Array, Array]:
        """Bootstrap intervals of D_i, (tasks,) each."""
        if not len(self.draws):
            return np.full(len(self.tasks), np.nan), np.full(len(self.tasks), np.nan)
        found = [
            interval(values, self.level, examples=int(n))
            for values, n in zip(d.per_task(self.draws).T, self.examples, strict=True)
        ]
        low, high = np.array(found).T
        return low, high

    def _interval(self, values: Array, examples: int) -> tuple[float, float]:
        if not len(values):
            return float("nan"), float("nan")
        low, high = interval(values, self.level, examples=examples)
        return float(low), float(high)

    def pairs(self) -> pd.DataFrame:
        """One row per pair of tasks: D_A, D_B, D with its interval (fractions), and the verdict."""
        rows = []
        for a, b in combinations(range(len(self.tasks)), 2):
            d_a, d_b = d.per_task(_pair(self.rp, a, b))
            low, high = self._interval(d.overall(_pair(self.draws, a, b)), int(self.examples[[a, b]].min()))
            rows.append(
                {
                    "A": self.tasks[a],
                    "B": self.tasks[b],
                    "D_A": float(d_a),
                    "D_B": float(d_b),
                    "D": float((d_a + d_b) / 2),
                    "D_low": low,
                    "D_high": high,
                    "D_corrected": float(d.overall(_pair(self.corrected, a, b))),
                    "verdict": d.verdict(float(d_a), float(d_b)),
                }
            )
        return pd.DataFrame(rows)

    def notes(self) -> list[str]:
        """What a reader must know before trusting the figures."""
        found = []
        for name, intact, chance in zip(self.tasks, self.intact, self.chance, strict=True):
            if intact <= 0:
                found.append(
                    f"{name}: its metric is {intact:.3g} when intact, so its relative performance and D are not meaningful"
                )
            elif intact <= chance:
                found.append(f"{name}: the intact model is not above chance ({intact:.3g} against {chance:.3g})")
        for name, examples in zip(self.tasks, self.examples, strict=True):
            if len(self.draws) and examples < MIN_EXAMPLES:
                found.append(f"{name}: {examples} held-out examples; {MIN_EXAMPLES} are needed for an interval of D")
        return found


def _pair(matrix: Array, a: int, b: int) -> Array:
    """The two lesions and two tasks of a pair: (..., 2, 2)."""
    return matrix[..., [a, b], :][..., [a, b]]


def analyse(
    lesions: Lesions, tasks: Sequence[str], own: Sequence[str], *, bootstrap: int = 1000, level: float = 0.95, seed: int = 0
) -> Analysis:
    """Relative performance, D and bootstrap draws.

    Args:
        lesions: with every task of `tasks` and every lesion of `own`.
        tasks: the tasks compared.
        own: for each, the name of the lesion of its own heads.
        bootstrap: resamples of the examples; the same for all lesions of a task, with the metric recomputed and head sets fixed.
        level: of the intervals.
        seed: of the resamples.
    """
    table = lesions.performance
    intact = table.loc[INTACT, list(tasks)].to_numpy(dtype=float)  # (tasks,)
    performance = table.loc[list(own), list(tasks)].to_numpy(dtype=float)  # (lesions, tasks)
    chance = np.array([lesions.tasks[name].chance for name in tasks])
    examples = np.array([lesions.tasks[name].losses.shape[1] for name in tasks])
    resampled = performance_draws(lesions, tasks, [INTACT, *own], bootstrap, seed)  # (bootstrap, 1 + lesions, tasks)
    resampled[..., examples < MIN_EXAMPLES] = np.nan
    return Analysis(
        tasks=tuple(tasks),
        intact=intact,
        performance=performance,
        chance=chance,
        examples=examples,
        rp=d.relative_performance(performance, intact),
        corrected=d.chance_corrected(performance, intact, chance),
        draws=d.relative_performance(resampled[:, 1:], resampled[:, 0]),
        level=level,
    )


def performance_draws(lesions: Lesions, tasks: Sequence[str], names: Sequence[str], draws: int, seed: int) -> Array:
    """The metric of each task under each named lesion on bootstrap samples of its examples: (draws, lesions, tasks)."""
    rows = [list(lesions.sets).index(name) for name in names]
    values = np.empty((draws, len(names), len(tasks)))
    for column, name in enumerate(tasks):
        outcome = lesions.tasks[name]
        # a task's samples depend on its name's place alone, so leaving a task out does not change another's
        rng = np.random.default_rng([seed, column])
        for start in range(0, draws, BLOCK):
            counts = resample_counts(outcome.losses.shape[1], min(BLOCK, draws - start), rng)
            some = metric_draws(outcome.metric, outcome.kind, outcome.predictions[rows], outcome.labels, counts)
            values[start : start + len(counts), :, column] = some
    return values
