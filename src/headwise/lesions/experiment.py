"""`headwise.dissociate`: are they different heads?"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal, Unpack

import numpy as np
import xarray as xr

from headwise.decoders.memory import LENGTH, as_trained, length_of
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.lesions import dissociation as d
from headwise.lesions.evaluation import INTACT, lesion
from headwise.lesions.result import Dissociation, at, by
from headwise.lesions.statistics import TestOfD, resplit_test
from headwise.passes.subject import Reading, opened
from headwise.scoring.estimators import score
from headwise.scoring.selection import count_for, random_heads, top_heads
from headwise.tasks.naming import as_tasks
from headwise.tasks.task import Task


def dissociate(
    model: Any,
    tasks: Sequence[Task],
    *,
    fraction: float = 0.3,
    method: str = "gate-gradient",
    scores: xr.DataArray | None = None,
    random_draws: int = 10,
    test_draws: int = 0,
    within_layers: bool = False,
    fractions: Sequence[float] = (),
    also: Sequence[Literal["mean", "resample"]] = (),
    min_per_layer: int = 0,
    score_examples: int | None = 10_000,
    bootstrap: int = 1000,
    level: float = 0.95,
    options: dict[str, Any] | None = None,
    **reading: Unpack[Reading],
) -> Dissociation:
    """Scores heads for every task, silences each task's top heads, and compares what that does to every task (Eq. 5–7).

    Args:
        model: a multi-task model, or a folder that headwise saved.
        tasks: two tasks or more.
        fraction: α, the share of all heads silenced for each task.
        method: how heads are scored; see `headwise.score`. options: of that method.
        scores: (task, layer, head) scores that are already there, instead.
        random_draws: random sets of the same size, under the same constraint, for the random row.
        test_draws: R of the re-split test of D for every pair; 0 runs none. At least 199 are advised. The cost is 4 R evaluations
            (2 lesions, 2 tasks) for each pair, against the n² of the study itself.
        within_layers: the test re-splits heads within their layers only.
        fractions: further shares of heads, for an α sweep.
        also: silence each task's heads in these ways too, beside by zero: see `headwise.lesion`.
        min_per_layer: heads of each layer that are never silenced.
        score_examples: training examples to score on, at most.
        bootstrap: resamples of the examples for intervals; level: of the intervals.
        reading: see `headwise.scoring.Reading`; split (default "validation") and examples name the held-out data that lesions are
            judged on. Scores are always taken on the training split.

    Returns:
        scores, sets, lesions, D with intervals, verdicts and tests: see `Dissociation`.
    """
    several = as_tasks(tasks)
    names = tuple(task.name for task in several)
    if len(several) < 2:
        raise HeadwiseError(f"a dissociation compares two tasks or more; got {', '.join(names) or 'none'}")
    for name in names:
        if name == INTACT or name.startswith("random "):
            raise HeadwiseError(f"a task is called {name!r}, which names a row of the result; rename it")
    for share in (fraction, *fractions):
        if not 0 < share < 1:
            raise HeadwiseError(
                f"fraction is {share}; a lesion needs some heads to silence and some to leave: more than 0, less than 1"
            )
    model = opened(model, several, reading)
    several = as_trained(model, several)
    _check(several)
    heads = reading["heads"] = reading.get("heads") or Heads(model.encoder)
    seed = reading.get("seed", 0)
    if not count_for(fraction, heads.total):
        raise HeadwiseError(
            f"fraction is {fraction}, which is less than one head of {heads.total}: there would be nothing to silence"
        )
    if scores is None:
        wanted: dict[str, Any] = {**reading, "examples": score_examples, "split": "train", **(options or {})}
        scores = score(model, several, method, **wanted)
    elif list(scores["task"].to_numpy()) != list(names):
        raise HeadwiseError(f"scores are of the tasks {list(scores['task'].to_numpy())}; expected {list(names)}, in this order")

    shares = tuple(share for share in dict.fromkeys(fractions) if share != fraction)
    sets = {name: _chosen(scores, name, fraction, min_per_layer) for name in names}
    random = random_heads(heads.valid.numpy(), fraction, draws=random_draws, seed=seed, min_per_layer=min_per_layer)
    swept = {at(name, share): _chosen(scores, name, share, min_per_layer) for share in shares for name in names}
    reading.setdefault("split", "validation")
    found = lesion(model, several, {**sets, **{f"random {i}": s for i, s in enumerate(random)}, **swept}, **reading)
    for how in dict.fromkeys(also):
        found = found.joined(lesion(model, several, {by(name, how): chosen for name, chosen in sets.items()}, how=how, **reading))
    result = Dissociation(
        scores=scores,
        sets=sets,
        lesions=found,
        fraction=fraction,
        fractions=shares,
        also=tuple(dict.fromkeys(also)),
        tests={},
        settings={
            "method": scores.attrs.get("method", "given"),
            "variant": scores.attrs.get("variant"),
            "heads_each": count_for(fraction, heads.total),
            "heads_total": heads.total,
            "random_draws": random_draws,
            "test_draws": test_draws,
            "within_layers": within_layers,
            "min_per_layer": min_per_layer,
            "split": reading["split"],
            "metrics": {task.name: task.metric for task in several},
            "max_length": {task.name: length_of(model, task.name, reading.get("max_length")) or LENGTH for task in several},
            "bootstrap": bootstrap,
            "level": level,
            "seed": seed,
        },
    )
    if test_draws:
        for number, (a, b) in enumerate(combinations(several, 2)):
            result.tests[a.name, b.name] = _test(model, a, b, result, test_draws, within_layers, seed + number, reading)
    return result


def _chosen(scores: xr.DataArray, name: str, fraction: float, min_per_layer: int) -> HeadSet:
    return top_heads(scores.sel(task=name), fraction, min_per_layer=min_per_layer)


def _check(tasks: Sequence[Task]) -> None:
    for task in tasks:
        if not task.higher_is_better:
            raise HeadwiseError(
                f"task {task.name!r} is judged by {task.metric}, where lower is better, and a ratio to it would turn D around; "
                "choose another metric, for instance metric='token-accuracy'"
            )


def _test(
    model: Any, a: Task, b: Task, result: Dissociation, draws: int, within_layers: bool, seed: int, reading: Reading
) -> TestOfD:
    """Lesions both tasks again under every re-split; only the metrics are kept."""

    def evaluate(splits: Sequence[tuple[HeadSet, HeadSet]]) -> list[float]:
        sets = {f"{i} {side}": chosen for i, pair in enumerate(splits) for side, chosen in zip("AB", pair, strict=True)}
        table = lesion(model, [a, b], sets, **reading).performance
        intact = table.loc[INTACT].to_numpy()
        values = table.drop(INTACT).to_numpy().reshape(len(splits), 2, 2)  # (splits, lesions, tasks)
        return [float(value) for value in d.overall(d.relative_performance(values, intact))]

    places = [result.tasks.index(task.name) for task in (a, b)]
    observed = float(d.overall(result.analysis.rp[np.ix_(places, places)]))
    sets = result.sets[a.name], result.sets[b.name]
    return resplit_test(observed, *sets, evaluate, draws=draws, seed=seed, within_layers=within_layers)
