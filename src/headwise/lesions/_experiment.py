"""`headwise.dissociate`: are they different heads?"""

import warnings
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import xarray as xr

from headwise._base.senses import importance
from headwise._passes.decision import asked
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.lesions import _dissociation as d
from headwise.lesions._evaluation import INTACT, lesions
from headwise.lesions._matched import matched_masks, matched_test
from headwise.lesions._notes import guesses
from headwise.lesions._result import Dissociation, at, by
from headwise.lesions._settings import Dissociate, Lesion
from headwise.lesions._statistics import TestOfD, resplit_test
from headwise.models import as_trained
from headwise.scoring import Score, count_for, estimate, given_scores, random_heads, top_heads
from headwise.settings import checked, operation
from headwise.store import Entry, kept
from headwise.tasks import Task, as_tasks


@operation(Dissociate)
def dissociate(model: Any, tasks: Sequence[Task], settings: Dissociate) -> Dissociation:
    """Scores heads for every task, silences each task's top heads, and compares what that does to every task (Eq. 5–7).

    Args:
        model: a multi-task model, or a folder that headwise saved.
        tasks: two tasks or more. Scores are always taken on their training split.

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
    if settings.scores is not None:
        settings = settings.with_changes(scores=given_scores(settings.scores))  # counts by its content
    found = _kept(model, several, settings)
    for note in guesses(found):
        warnings.warn(note, stacklevel=3)
    return found


def _kept(model: Any, several: list[Task], settings: Dissociate) -> Dissociation:
    """A dissociation as it is kept in `out`, or computed."""
    if settings.out is None:
        return _dissociate(model, several, settings)
    decided = asked("dissociate", model, several, settings, "train", settings.split)

    def compute(entry: Entry) -> Dissociation:
        result = _dissociate(model, several, settings)
        result.save(entry.folder, **entry.seals())
        return result

    found, notes = kept(settings.out, decided, compute)
    found.notes.extend(notes)
    return found


def _dissociate(model: Any, several: list[Task], settings: Dissociate) -> Dissociation:
    """A dissociation that is not there yet."""
    from headwise._passes.subject import opened, weights_type
    from headwise.heads import Heads
    from headwise.models import reading_length

    names = tuple(task.name for task in several)
    model = opened(model, several, settings)
    several = as_trained(model, several)
    _check(several)
    heads = settings.heads or Heads(model.encoder)
    fraction, least, seed = settings.fraction, settings.min_per_layer, settings.seed
    if not count_for(fraction, heads.total):
        raise HeadwiseError(
            f"fraction is {fraction}, which is less than one of {heads.total} heads: nothing would be silenced"
        )
    scores = settings.scores
    own = {"heads": heads, "tokenizer": None, "trust_remote_code": False, "device": None}
    reading = checked(Lesion, {**settings.part(Lesion), **own})
    if scores is None:
        chosen = {**settings.part(Score), "split": "train", "examples": settings.score_examples, "out": None}
        scores = estimate(model, several, True, checked(Score, {**chosen, **own}))
    elif list(scores["task"].to_numpy()) != list(names):
        raise HeadwiseError(
            f"scores are of the tasks {list(scores['task'].to_numpy())}; expected {list(names)}, in this order"
        )

    shares = tuple(share for share in dict.fromkeys(settings.fractions) if share != fraction)
    sets = {name: _chosen(scores, name, fraction, least) for name in names}
    random = random_heads(
        heads.valid.numpy(), fraction, draws=settings.random_draws, seed=seed, min_per_layer=least
    )
    swept = {at(name, share): _chosen(scores, name, share, least) for share in shares for name in names}
    found = lesions(
        model, several, {**sets, **{f"random {i}": s for i, s in enumerate(random)}, **swept}, reading
    )
    also = tuple(dict.fromkeys(settings.also))
    for how in also:
        further = {by(name, how): chosen for name, chosen in sets.items()}
        found = found.joined(lesions(model, several, further, reading.with_changes(how=how)))
    noted = (
        "random_draws",
        "test_draws",
        "matched_draws",
        "within_layers",
        "min_per_layer",
        "split",
        "bootstrap",
        "level",
        "seed",
        "precision",
    )
    result = Dissociation(
        scores=scores,
        sets=sets,
        lesions=found,
        fraction=fraction,
        fractions=shares,
        also=also,
        tests={},
        settings={
            "method": scores.attrs.get("method", "given"),
            "variant": scores.attrs.get("variant"),
            "heads_each": count_for(fraction, heads.total),
            "heads_total": heads.total,
            "metrics": {task.name: task.metric for task in several},
            **{name: getattr(settings, name) for name in noted},
            **weights_type(model),
            "held_out": [task.name for task in several if task.holds_out],
            "synthetic": [task.name for task in several if task.synthetic],
            "max_length": {
                task.name: reading_length(model, task.name, settings.max_length) for task in several
            },
        },
    )
    if settings.test_draws:
        for number, (a, b) in enumerate(combinations(several, 2)):
            result.tests[a.name, b.name] = _test(model, a, b, result, settings, seed + number, reading)
    if settings.matched_draws:
        for number in range(len(several)):
            result.matched[names[number]] = _matched(model, several, number, result, settings, reading)
    return result


def _chosen(scores: xr.DataArray, name: str, fraction: float, min_per_layer: int) -> HeadSet:
    return top_heads(scores.sel(task=name), fraction, min_per_layer=min_per_layer)


def _check(tasks: Sequence[Task]) -> None:
    for task in tasks:
        if not task.higher_is_better:
            raise HeadwiseError(
                f"task {task.name!r} is judged by {task.metric}, where lower is better, which would reverse the sign of D; "
                "choose another metric, for instance metric='token-accuracy'"
            )


def _test(
    model: Any, a: Task, b: Task, result: Dissociation, settings: Dissociate, seed: int, reading: Lesion
) -> TestOfD:
    """Lesions both tasks again under every re-split; only the metrics are kept."""

    def evaluate(splits: Sequence[tuple[HeadSet, HeadSet]]) -> list[float]:
        sets = {
            f"{i} {side}": chosen
            for i, pair in enumerate(splits)
            for side, chosen in zip("AB", pair, strict=True)
        }
        table = lesions(model, [a, b], sets, reading).performance
        intact = table.loc[INTACT].to_numpy()
        values = table.drop(INTACT).to_numpy().reshape(len(splits), 2, 2)  # (splits, lesions, tasks)
        return [float(value) for value in d.overall(d.relative_performance(values, intact))]

    places = [result.tasks.index(task.name) for task in (a, b)]
    observed = float(d.overall(result.analysis.rp[np.ix_(places, places)]))
    sets = result.sets[a.name], result.sets[b.name]
    return resplit_test(
        observed, *sets, evaluate, draws=settings.test_draws, seed=seed, within_layers=settings.within_layers
    )


def _matched(
    model: Any, tasks: list[Task], number: int, result: Dissociation, settings: Dissociate, reading: Lesion
) -> TestOfD:
    """Lesions every task under the sets that one task's is compared with; only the metrics are kept."""
    values = importance(result.scores)  # (tasks, layers, heads)
    own = np.stack([result.sets[name].to_mask(values.shape[1:]) for name in result.tasks])
    drawn = matched_masks(own, values, number, settings.matched_draws, settings.seed + number)
    table = lesions(model, tasks, [HeadSet.from_mask(mask) for mask in drawn], reading).performance
    performance = table.drop(INTACT)[list(result.tasks)].to_numpy(dtype=float)
    return matched_test(
        result.analysis.rp[number], d.relative_performance(performance, result.analysis.intact), number
    )
