"""`headwise.dissociate`: are they different heads?"""

import warnings
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from headwise._base.senses import importance
from headwise._passes.decision import decision_of
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.lesions import _dissociation as d
from headwise.lesions._evaluation import INTACT, lesions
from headwise.lesions._matched import matched_masks, matched_test
from headwise.lesions._notes import guesses
from headwise.lesions._result import Dissociation, at_share, silenced_by
from headwise.lesions._settings import Dissociate, Lesion
from headwise.lesions._statistics import TestOfD, resplit_test
from headwise.models import as_trained
from headwise.scoring import Score, count_for, estimate, given_scores, random_heads, top_heads
from headwise.settings import checked, operation
from headwise.store import Entry, kept
from headwise.tasks import Task, as_tasks

if TYPE_CHECKING:
    from headwise._passes.subject import Subject

# settings that a result says
SAID = (
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


@operation(Dissociate)
def dissociate(model: Any, tasks: Sequence[Task], settings: Dissociate) -> Dissociation:
    """Scores heads for every task, silences each task's top heads, and compares what that does to every task
    (Eq. 5–7).

    Args:
        model: a multi-task model, or a folder that headwise saved.
        tasks: two tasks or more. Scores are always taken on their training split.

    Returns:
        scores, sets, lesions, D with intervals, verdicts and tests: see `Dissociation`.
    """
    tasks = as_tasks(tasks)
    names = [task.name for task in tasks]
    if len(tasks) < 2:
        raise HeadwiseError(f"a dissociation compares two tasks or more; got {', '.join(names) or 'none'}")
    for name in names:
        if name == INTACT or name.startswith("random "):
            raise HeadwiseError(f"a task is called {name!r}, which names a row of the result; rename it")
    if settings.scores is not None:
        settings = settings.with_changes(scores=given_scores(settings.scores))  # counts by its content
    result = _finished(model, tasks, settings)
    for note in guesses(result):
        warnings.warn(note, stacklevel=3)
    return result


def _finished(model: Any, tasks: list[Task], settings: Dissociate) -> Dissociation:
    """A dissociation as it is kept in `out`, or computed."""
    if settings.out is None:
        return _dissociate(model, tasks, settings)
    decided = decision_of("dissociate", model, tasks, settings, "train", settings.split)

    def compute(entry: Entry) -> Dissociation:
        result = _dissociate(model, tasks, settings)
        result.save(entry.folder, **entry.seals())
        return result

    result, notes = kept(settings.out, decided, compute)
    result.notes.extend(notes)
    return result


def _dissociate(model: Any, tasks: list[Task], settings: Dissociate) -> Dissociation:
    """A dissociation that is not there yet: the model is opened here, and every step reads this one."""
    from headwise._passes.subject import open_subject

    subject = open_subject(model, tasks, settings)
    tasks = as_trained(subject.model, tasks)
    _check(tasks)
    heads, fraction, least = subject.heads, settings.fraction, settings.min_per_layer
    if not count_for(fraction, heads.total):
        raise HeadwiseError(
            f"fraction is {fraction}, which is less than one of {heads.total} heads: nothing would be "
            "silenced"
        )
    scores = settings.scores
    names = [task.name for task in tasks]
    if scores is None:
        scores = _scored(subject, tasks, settings)
    elif list(scores["task"].to_numpy()) != names:
        raise HeadwiseError(
            f"scores are of the tasks {list(scores['task'].to_numpy())}; expected {names}, in this order"
        )

    def top_of_tasks(share: float) -> dict[str, HeadSet]:
        return {name: top_heads(scores.sel(task=name), share, min_per_layer=least) for name in names}

    shares = tuple(share for share in dict.fromkeys(settings.fractions) if share != fraction)
    sets = top_of_tasks(fraction)
    draws = random_heads(
        heads.valid.numpy(), fraction, draws=settings.random_draws, seed=settings.seed, min_per_layer=least
    )
    lesioned = sets | {f"random {number}": drawn for number, drawn in enumerate(draws)}
    for share in shares:
        lesioned |= {at_share(name, share): top for name, top in top_of_tasks(share).items()}
    reading = checked(Lesion, settings.part(Lesion))
    outcome = lesions(subject, tasks, lesioned, reading)
    ways = tuple(dict.fromkeys(settings.also))
    for how in ways:
        replaced = {silenced_by(name, how): top for name, top in sets.items()}
        outcome = outcome.joined(lesions(subject, tasks, replaced, reading.with_changes(how=how)))
    result = Dissociation(
        scores=scores,
        sets=sets,
        lesions=outcome,
        fraction=fraction,
        fractions=shares,
        also=ways,
        tests={},
        settings=_facts(subject, tasks, scores, settings),
    )
    if settings.test_draws:
        for number, (a, b) in enumerate(combinations(tasks, 2)):
            result.tests[a.name, b.name] = _test(
                subject, a, b, result, settings, settings.seed + number, reading
            )
    if settings.matched_draws:
        for number, name in enumerate(names):
            result.matched[name] = _matched(subject, tasks, number, result, settings, reading)
    return result


def _scored(subject: "Subject", tasks: list[Task], settings: Dissociate) -> xr.DataArray:
    """Scores of the heads, on the training split."""
    training = {"split": "train", "examples": settings.score_examples, "out": None, "device": None}
    return estimate(subject, tasks, True, checked(Score, {**settings.part(Score), **training}))


def _facts(
    subject: "Subject", tasks: list[Task], scores: xr.DataArray, settings: Dissociate
) -> dict[str, Any]:
    """What a result says of how it was run."""
    from headwise._passes.subject import weights_type
    from headwise.models import reading_length

    model, total = subject.model, subject.heads.total
    return {
        "method": scores.attrs.get("method", "given"),
        "variant": scores.attrs.get("variant"),
        "heads_each": count_for(settings.fraction, total),
        "heads_total": total,
        "metrics": {task.name: task.metric for task in tasks},
        **{name: getattr(settings, name) for name in SAID},
        **weights_type(model),
        "held_out": [task.name for task in tasks if task.holds_out],
        "synthetic": [task.name for task in tasks if task.synthetic],
        "max_length": {task.name: reading_length(model, task.name, settings.max_length) for task in tasks},
    }


def _check(tasks: Sequence[Task]) -> None:
    for task in tasks:
        if not task.higher_is_better:
            raise HeadwiseError(
                f"task {task.name!r} is judged by {task.metric}, where lower is better, which would reverse "
                "the sign of D; choose another metric, for instance metric='token-accuracy'"
            )


def _test(
    subject: "Subject",
    a: Task,
    b: Task,
    result: Dissociation,
    settings: Dissociate,
    seed: int,
    reading: Lesion,
) -> TestOfD:
    """Lesions both tasks again under every re-split; only the metrics are kept."""

    def evaluate(splits: Sequence[tuple[HeadSet, HeadSet]]) -> list[float]:
        sets: dict[str, HeadSet] = {}
        for number, (of_a, of_b) in enumerate(splits):
            sets |= {f"{number} A": of_a, f"{number} B": of_b}
        table = lesions(subject, [a, b], sets, reading).performance
        intact = table.loc[INTACT].to_numpy()
        values = table.drop(INTACT).to_numpy().reshape(len(splits), 2, 2)  # (splits, lesions, tasks)
        return [float(value) for value in d.overall(d.relative_performance(values, intact))]

    rows = [result.tasks.index(task.name) for task in (a, b)]
    observed = float(d.overall(result.analysis.rp[np.ix_(rows, rows)]))
    sets = result.sets[a.name], result.sets[b.name]
    return resplit_test(
        observed, *sets, evaluate, draws=settings.test_draws, seed=seed, within_layers=settings.within_layers
    )


def _matched(
    subject: "Subject",
    tasks: list[Task],
    number: int,
    result: Dissociation,
    settings: Dissociate,
    reading: Lesion,
) -> TestOfD:
    """Lesions every task under the sets that one task's is compared with; only the metrics are kept."""
    values = importance(result.scores)  # (tasks, layers, heads)
    masks = np.stack([result.sets[name].to_mask(values.shape[1:]) for name in result.tasks])
    drawn = matched_masks(masks, values, number, settings.matched_draws, settings.seed + number)
    table = lesions(subject, tasks, [HeadSet.from_mask(mask) for mask in drawn], reading).performance
    performance = table.drop(INTACT)[list(result.tasks)].to_numpy(dtype=float)
    return matched_test(
        result.analysis.rp[number], d.relative_performance(performance, result.analysis.intact), number
    )
