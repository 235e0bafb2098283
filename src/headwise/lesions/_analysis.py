"""From lesions to dissociation: one pass of arithmetic over predictions that are already there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise._base.inference import MIN_EXAMPLES, constant
from headwise.lesions import _dissociation as d
from headwise.lesions._evaluation import INTACT, Lesions
from headwise.lesions._intervals import interval, resample_counts, why_none
from headwise.lesions._resampling import metric_draws

Array = NDArray[np.float64]
BLOCK = 100  # bootstrap draws held in memory at once
SAME_ANSWERS = "the lesions leave the same predictions on every example"


class Bounds(NamedTuple):
    """An interval; NaN where there is none, and `why` says why (empty otherwise)."""

    low: float
    high: float
    why: str


@dataclass(frozen=True)
class Analysis:
    """Performance and dissociation of n tasks, each with its own lesion.

    Attributes:
        tasks: names, in the order of every axis below.
        intact: (tasks,); performance: (lesions, tasks); chance: (tasks,); examples: (tasks,), held-out ones.
        rp: (lesions, tasks), relative performance (Eq. 5); corrected: the same, chance-corrected.
        draws: (bootstrap, lesions, tasks), relative performance of each bootstrap sample; empty if none was
            asked for, NaN for tasks with fewer than 50 examples, whose intervals would be too narrow.
        differing: (1 + lesions, 1 + lesions, tasks), on how many examples the answers to a task differ
            between two lesions; the first is the intact model.
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
    differing: NDArray[np.int64]
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
        """Bootstrap interval of D; NaN where there is none."""
        return self.d_bounds()[:2]

    def d_bounds(self) -> Bounds:
        """Bootstrap interval of D, or why there is none."""
        every = list(range(len(self.tasks)))
        return self._bounds(self.d, d.overall(self.draws), every, self._apart(every, every))

    def d_i_bounds(self) -> list[Bounds]:
        """Bootstrap interval of each task's D_i, or why there is none."""
        every, draws = list(range(len(self.tasks))), d.per_task(self.draws)
        return [
            self._bounds(value, draws[:, task], [task], self._apart(every, [task]))
            for task, value in enumerate(self.d_i)
        ]

    def pair_bounds(self) -> dict[tuple[int, int], Bounds]:
        """Bootstrap interval of D of each pair, or why there is none."""
        bounds = {}
        for a, b in combinations(range(len(self.tasks)), 2):
            value, draws = float(d.overall(_pair(self.rp, a, b))), d.overall(_pair(self.draws, a, b))
            bounds[a, b] = self._bounds(value, draws, [a, b], self._apart([a, b], [a, b]))
        return bounds

    def rp_bounds(self, lesions: Sequence[int], task: int) -> Bounds:
        """Bootstrap interval of a task's mean relative performance under some lesions, or why there is
        none."""
        apart = float(self.differing[0, [1 + lesion for lesion in lesions], task].mean())
        return self._bounds(
            self.rp[lesions, task].mean(), self.draws[:, lesions, task].mean(1), [task], apart
        )

    def _apart(self, lesions: Sequence[int], tasks: Sequence[int]) -> float:
        """On how many examples the answers under a task's own lesion differ from those under another one, on
        average; all tasks together."""
        total = 0.0
        for task in tasks:
            rows = [1 + lesion for lesion in lesions if lesion != task]
            total += float(np.mean(self.differing[1 + task, rows, task]))
        return total

    def _bounds(self, value: float, draws: Array, tasks: Sequence[int], apart: float) -> Bounds:
        """The interval of a figure of some tasks, whose lesions differ on `apart` examples."""
        if np.isnan(value):
            return Bounds(np.nan, np.nan, "it is undefined")
        fewest = min(tasks, key=lambda task: int(self.examples[task]))
        examples = int(self.examples[fewest])
        low, high = interval(draws, self.level, examples=examples, value=value, differing=apart)
        why = why_none(draws, self.level, examples=examples)
        if len(draws) and examples < MIN_EXAMPLES:
            why = f"{self.tasks[fewest]} has {why}"
        elif why and len(draws) and constant(draws) and not apart:
            why = SAME_ANSWERS
        return Bounds(float(low), float(high), why)

    def uncorrected(self, tasks: Sequence[int]) -> str:
        """Why scores of some tasks cannot be corrected for chance; empty where they can."""
        weak = [self.tasks[task] for task in tasks if not self.intact[task] > self.chance[task]]
        if not weak:
            return ""
        return f"{' and '.join(weak)} {'are' if len(weak) > 1 else 'is'} not above chance when intact"

    def pairs(self) -> pd.DataFrame:
        """One row per pair of tasks: D_A, D_B, D with its interval (fractions), the verdict, and why anything
        is missing."""
        rows = []
        for (a, b), (low, high, why) in self.pair_bounds().items():
            d_a, d_b = d.per_task(_pair(self.rp, a, b))
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
                    "note": missing({"interval": why, "D_corrected": self.uncorrected([a, b])}),
                }
            )
        return pd.DataFrame(rows)


def missing(why: Mapping[str, str]) -> str:
    """What a row of a table lacks, each with the reason: "no interval: ...; no p: ..."."""
    return "; ".join(f"no {column}: {reason}" for column, reason in why.items() if reason)


def _pair(matrix: Array, a: int, b: int) -> Array:
    """The two lesions and two tasks of a pair: (..., 2, 2)."""
    return matrix[..., [a, b], :][..., [a, b]]


def analyse(
    lesions: Lesions,
    tasks: Sequence[str],
    lesion_names: Sequence[str],
    *,
    bootstrap: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Analysis:
    """Relative performance, D and bootstrap draws.

    Args:
        lesions: with every task of `tasks` and every lesion of `lesion_names`.
        tasks: the tasks compared.
        lesion_names: for each, the name of the lesion of its own heads.
        bootstrap: resamples of the examples; the same for all lesions of a task, with the metric recomputed
            and head sets fixed.
        level: of the intervals.
        seed: of the resamples.
    """
    table = lesions.performance
    intact = table.loc[INTACT, list(tasks)].to_numpy(dtype=float)  # (tasks,)
    performance = table.loc[list(lesion_names), list(tasks)].to_numpy(dtype=float)  # (lesions, tasks)
    chance = np.array([lesions.tasks[name].chance for name in tasks])
    examples = np.array([lesions.tasks[name].losses.shape[1] for name in tasks])
    # (bootstrap, 1 + lesions, tasks)
    resampled = performance_draws(lesions, tasks, [INTACT, *lesion_names], bootstrap, seed)
    resampled[..., examples < MIN_EXAMPLES] = np.nan
    rows = [list(lesions.sets).index(name) for name in (INTACT, *lesion_names)]
    differing = [lesions.tasks[name].differing(rows) for name in tasks]
    return Analysis(
        tasks=tuple(tasks),
        intact=intact,
        performance=performance,
        chance=chance,
        examples=examples,
        rp=d.relative_performance(performance, intact),
        corrected=d.chance_corrected(performance, intact, chance),
        draws=d.relative_performance(resampled[:, 1:], resampled[:, 0]),
        differing=np.stack(differing, axis=-1),
        level=level,
    )


def performance_draws(
    lesions: Lesions, tasks: Sequence[str], names: Sequence[str], draws: int, seed: int
) -> Array:
    """The metric of each task under each named lesion on bootstrap samples of its examples: (draws, lesions,
    tasks)."""
    rows = [list(lesions.sets).index(name) for name in names]
    values = np.empty((draws, len(names), len(tasks)))
    for column, name in enumerate(tasks):
        outcome = lesions.tasks[name]
        # a task's samples depend on its name's place alone, so leaving a task out does not change another's
        rng = np.random.default_rng([seed, column])
        for start in range(0, draws, BLOCK):
            counts = resample_counts(outcome.losses.shape[1], min(BLOCK, draws - start), rng)
            values[start : start + len(counts), :, column] = metric_draws(
                outcome.metric, outcome.kind, outcome.predictions[rows], outcome.labels, counts
            )
    return values
