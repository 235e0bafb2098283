"""`headwise.score`: one call for every estimator."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from headwise._base.opener import identity
from headwise._base.senses import MEANING, SENSES, importance
from headwise._passes.decision import decision_of
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.models import as_trained, order_notes
from headwise.scoring._files import keep_scores
from headwise.scoring._scores import HeadScores
from headwise.scoring._selection import bottom_heads, count_for, top_heads
from headwise.scoring._settings import ESTIMATORS, Reading, Score, check_options, estimator
from headwise.settings import checked, operation
from headwise.store import Entry, kept
from headwise.tasks import Task, as_tasks

if TYPE_CHECKING:
    from headwise._passes.subject import Subject


@operation(Score)
def score(model: Any, task: Task | Sequence[Task], settings: Score) -> HeadScores:
    """How much each head matters to a task.

    Options of the method may stand beside the others: `score(model, task, method="shapley",
    permutations=20)`.

    Args:
        model: a multi-task model, a plain transformers model with a head (classifier, tagger, causal or
            masked language model), or a folder that headwise saved.
        task: the task, or several that the model answers.

    Returns:
        (layer, head), or (task, layer, head) for several tasks, with the settings in `.attrs`.
        `attrs["performance"]` has every metric of the intact model on the examples that were read, by task; a
        model that is at chance on them is warned of. `attrs["sense"]` is "magnitude" where higher is more
        important, or "signed" where 0 is no effect and heads below it are in the task's way. NaN where a
        layer has no such head. Iterative scores are ranks from 0 (least important) to 1, by when a head was
        silenced. `.section()` describes them.
    """
    check_options(settings.method, settings.own)
    several = not isinstance(task, Task)
    tasks = as_tasks(task)
    if not tasks:
        raise HeadwiseError("there is no task to score")
    scores = HeadScores(_finished(model, tasks, several, settings))
    for note in scores.attrs.get("at_chance", {}).values():
        warnings.warn(note, stacklevel=3)
    return scores


def _finished(model: Any, tasks: list[Task], several: bool, settings: Score) -> xr.DataArray:
    """Scores as they are kept in `out`, or computed."""
    if settings.out is None:
        return estimate(model, tasks, several, settings)
    if settings.out.suffix == ".nc":
        raise HeadwiseError(
            f"out is {settings.out}: give the name of a folder; the scores are saved in it as scores.nc"
        )
    decided = decision_of("score", model, tasks, settings, settings.split, together=several)

    def compute(entry: Entry) -> xr.DataArray:
        return keep_scores(estimate(model, tasks, several, settings), entry.folder, **entry.seals())

    scores, notes = kept(settings.out, decided, compute)
    if "performance" not in scores.attrs:
        lack = "does not say how good the intact model is: scores were kept without that before"
        notes = [*notes, f"{settings.out} {lack}"]
    if notes:
        scores = scores.assign_attrs(notes=notes)
    return scores


def estimate(model: Any, tasks: list[Task], several: bool, settings: Score) -> xr.DataArray:
    """Scores that are not there yet, of a model or a `Subject`; nobody is warned of a model at chance."""
    from headwise._passes.answers import JUDGED
    from headwise._passes.subject import open_subject
    from headwise.models import reading_length

    subject = open_subject(model, tasks, settings)
    answering = subject.model
    names = [task.name for task in tasks]
    options = {name: value for name, value in settings.given().items() if name in Reading.model_fields}
    options |= {**settings.own, "heads": subject.heads, "tokenizer": None, "trust_remote_code": False}
    by_task = []
    for task in tasks:
        if settings.iterative is None:
            by_task.append(_scores(settings.method, subject, task, options))
        else:
            by_task.append(_iterated(subject, task, settings, settings.iterative, options))
    trained = as_trained(answering, tasks)
    verdicts = [_judged(subject, *pair, options) for pair in zip(trained, by_task, strict=True)]
    judged: dict[str, Any] = {}
    for fact in JUDGED:
        values = {}
        for verdict in verdicts:
            values.update(verdict.get(fact, {}))
        if values:
            judged[fact] = values
    name, revision = identity(answering.encoder.config)
    judged |= {
        **order_notes(answering, tasks),
        "model": name,
        "revision": revision,
        "metrics": {task.name: task.metric for task in trained},
        "max_length": {name: reading_length(answering, name, settings.max_length) for name in names},
        "synthetic": [task.name for task in trained if task.synthetic],
    }
    if not several:
        return by_task[0].assign_attrs(judged)
    # what differs between tasks (task, examples) cannot stand for all of them
    shared = dict(by_task[0].attrs)
    for scores in by_task:
        shared = {name: value for name, value in shared.items() if scores.attrs.get(name) == value}
    joined = xr.concat(by_task, dim="task", coords="different", compat="equals", combine_attrs="drop")
    return joined.assign_coords(task=names).assign_attrs({**shared, **judged})


def _judged(subject: "Subject", task: Task, scores: xr.DataArray, options: dict[str, Any]) -> dict[str, Any]:
    """How good the intact model is on the examples that were scored: as scores say it, or asked for those of
    a user's function."""
    performance = scores.attrs.get("performance")
    if isinstance(performance, Mapping) and task.name in performance:
        return scores.attrs
    from headwise._passes.subject import prepare

    reading = {name: value for name, value in options.items() if name in Reading.model_fields}
    if "examples" in scores.attrs:  # estimators differ in how many they read by default
        reading["examples"] = scores.attrs["examples"]
    return prepare(subject, task, checked(Reading, reading)).judged


def _scores(
    method: str | Callable[..., Any], subject: "Subject", task: Task, options: dict[str, Any]
) -> xr.DataArray:
    """Scores by one of `ESTIMATORS`, or by a user's function, which is given those settings that it takes."""
    function = estimator(method)
    if hasattr(function, "settings"):
        # a user may have made an operation of a function, too, and it expects a model
        reads_subject = method in ESTIMATORS
        return function(subject if reads_subject else subject.model, task, **options)
    parameters = signature(function).parameters
    if not any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        arguments = {name: value for name, value in options.items() if name in parameters}
    else:
        arguments = options
    values = function(subject.model, task, **arguments)
    label = getattr(function, "__name__", type(function).__name__)
    if not isinstance(values, xr.DataArray):
        values = _labelled(values, label, task, options)
    return values.assign_attrs(sense=_sense(values, function, label))


def _sense(scores: xr.DataArray, function: Callable[..., Any], label: str) -> str:
    """What scores of a user's function mean, as they or the function say it; where none is below 0 both
    senses are one."""
    sense = scores.attrs.get("sense", getattr(function, "sense", None))
    if sense is None and not bool((scores < 0).any()):
        return "magnitude"
    if sense not in SENSES:
        lack = f"has the sense {sense!r}"
        if sense is None:
            lack = "does not say what scores below 0 mean"
        raise HeadwiseError(
            f"method {label!r} {lack}: set its attribute `sense`, or attrs['sense'] of its scores, to "
            f"{MEANING}"
        )
    return str(sense)


def _labelled(values: Any, label: str, task: Task, options: dict[str, Any]) -> xr.DataArray:
    """A plain array of a user's function as scores."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    array = np.asarray(values, dtype=float)
    shape = options["heads"].shape
    if array.shape != shape:
        raise HeadwiseError(
            f"method {label!r} gave scores of shape {array.shape}; the heads of this model are {shape}, "
            "(layers, heads)"
        )
    scored = options["heads"].valid.cpu().numpy() & ~(options.get("silenced") or HeadSet()).to_mask(shape)
    coords = {"layer": np.arange(shape[0]), "head": np.arange(shape[1])}
    attrs = {"method": label, "task": task.name}
    return xr.DataArray(
        np.where(scored, array, np.nan), dims=("layer", "head"), coords=coords, name="score", attrs=attrs
    )


def _iterated(
    subject: "Subject", task: Task, settings: Score, slice_size: float | int, options: dict[str, Any]
) -> xr.DataArray:
    """Ranks from 0 to 1 by the round in which a head was silenced, and by its score within the round."""
    from headwise._passes.answers import JUDGED, unjudged

    heads = subject.heads
    start = options.get("silenced") or HeadSet()
    remaining = HeadSet(heads.all() - start)
    if isinstance(slice_size, int) or slice_size > 1:
        size = int(slice_size)
    else:
        size = count_for(slice_size, heads.total)
    if size < 1:
        raise HeadwiseError(f"iterative={slice_size} is less than one head of {heads.total} at a time")
    order: list[tuple[int, int]] = []
    scores = None
    judged: dict[str, Any] = {}
    while remaining:
        silenced = HeadSet(start | HeadSet(order))
        with nullcontext() if scores is None else unjudged():  # the first round reads the intact model
            scores = _scores(settings.method, subject, task, {**options, "silenced": silenced})
        judged = judged or {name: scores.attrs[name] for name in JUDGED if name in scores.attrs}
        first, sign = (top_heads, -1) if settings.silence == "most" else (bottom_heads, 1)
        heads_of_round = first(scores, n=min(size, len(remaining)))
        values = sign * importance(scores)
        order += sorted(heads_of_round, key=lambda head: (values[head], head))
        remaining = HeadSet(remaining - heads_of_round)
    if scores is None:
        raise HeadwiseError("every head is already silenced; there is nothing to score")
    ranks = np.full(heads.shape, np.nan)
    if settings.silence == "most":
        order = order[::-1]
    for rank, head in enumerate(order):
        ranks[head] = rank / max(1, len(order) - 1)
    attrs = scores.attrs | judged
    attrs |= {"iterative": slice_size, "silence": settings.silence, "sense": "magnitude"}
    coords = {dim: scores[dim] for dim in scores.dims}
    return xr.DataArray(ranks, dims=scores.dims, coords=coords, name="score", attrs=attrs)
