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
from headwise._passes.decision import asked
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.models import as_trained, order_notes
from headwise.scoring._files import keep_scores
from headwise.scoring._scores import HeadScores
from headwise.scoring._selection import bottom_heads, count_for, top_heads
from headwise.scoring._settings import Reading, Score, check_options, estimator
from headwise.settings import operation
from headwise.store import kept
from headwise.tasks import Task, as_tasks

if TYPE_CHECKING:
    from headwise.heads import Heads


@operation(Score)
def score(model: Any, task: Task | Sequence[Task], settings: Score) -> HeadScores:
    """How much each head matters to a task.

    Options of the method may stand beside the others: `score(model, task, method="shapley", permutations=20)`.

    Args:
        model: a multi-task model, a plain transformers model with a head (classifier, tagger, causal or masked language model),
            or a folder that headwise saved.
        task: the task, or several that the model answers.

    Returns:
        (layer, head), or (task, layer, head) for several tasks, with the settings in `.attrs`. `attrs["performance"]` has every metric of the
        intact model on the examples that were read, by task; a model that is at chance on them is warned of. `attrs["sense"]` is "magnitude"
        where higher is more important, or "signed" where 0 is no effect and heads below it are in the task's way. NaN where a layer has
        no such head. Iterative scores are ranks from 0 (least important) to 1, by when a head was silenced. `.section()` describes them.
    """
    check_options(settings.method, settings.own)
    several = not isinstance(task, Task)
    tasks = as_tasks(task)
    if not tasks:
        raise HeadwiseError("there is no task to score")
    found = HeadScores(_kept(model, tasks, several, settings))
    for note in found.attrs.get("at_chance", {}).values():
        warnings.warn(note, stacklevel=3)
    return found


def _kept(model: Any, tasks: list[Task], several: bool, settings: Score) -> xr.DataArray:
    """Scores as they are kept in `out`, or computed."""
    if settings.out is None:
        return estimate(model, tasks, several, settings)
    if settings.out.suffix == ".nc":
        raise HeadwiseError(
            f"out is {settings.out}: give the name of a folder; the scores are saved in it as scores.nc"
        )
    decided = asked("score", model, tasks, settings, settings.split, together=several)
    found, notes = kept(
        settings.out,
        decided,
        lambda entry: keep_scores(estimate(model, tasks, several, settings), entry.folder, **entry.seals()),
    )
    if "performance" not in found.attrs:
        notes = [
            *notes,
            f"{settings.out} does not say how good the intact model is: scores were kept without that before",
        ]
    return found.assign_attrs(notes=notes) if notes else found


def estimate(model: Any, tasks: list[Task], several: bool, settings: Score) -> xr.DataArray:
    """Scores that are not there yet; nobody is warned of a model at chance."""
    from headwise._passes.answers import JUDGED
    from headwise._passes.subject import opened
    from headwise.heads import Heads
    from headwise.models import reading_length

    names = [task.name for task in tasks]
    answering = opened(model, tasks, settings)
    heads = settings.heads or Heads(answering.encoder)
    given = {name: value for name, value in settings.given().items() if name in Reading.model_fields}
    options = {**given, **settings.own, "heads": heads, "tokenizer": None, "trust_remote_code": False}
    found = []
    for one in tasks:
        if settings.iterative is None:
            found.append(_one(settings.method, answering, one, options))
        else:
            found.append(_iterated(answering, one, settings, settings.iterative, options))
    read = as_trained(answering, tasks)
    facts = [_judged(answering, task, options, scores) for task, scores in zip(read, found, strict=True)]
    by_task = {
        name: {task: value for one in facts for task, value in one.get(name, {}).items()} for name in JUDGED
    }
    name, revision = identity(answering.encoder.config)
    judged = {
        **{name: values for name, values in by_task.items() if values},
        **order_notes(answering, tasks),
        "model": name,
        "revision": revision,
        "metrics": {task.name: task.metric for task in read},
        "max_length": {name: reading_length(answering, name, settings.max_length) for name in names},
        "synthetic": [task.name for task in read if task.synthetic],
    }
    if not several:
        return found[0].assign_attrs(judged)
    # what differs between tasks (task, examples) cannot stand for all of them
    shared = {
        key: value
        for key, value in found[0].attrs.items()
        if all(other.attrs.get(key) == value for other in found)
    }
    joined = xr.concat(found, dim="task", coords="different", compat="equals", combine_attrs="drop")
    return joined.assign_coords(task=list(names)).assign_attrs({**shared, **judged})


def _judged(model: Any, task: Task, options: dict[str, Any], scores: xr.DataArray) -> dict[str, Any]:
    """How good the intact model is on the examples that were scored, as scores say it, or asked for those of a user's function."""
    known = scores.attrs.get("performance")
    if isinstance(known, Mapping) and task.name in known:
        return scores.attrs
    from headwise._passes.subject import open_subject

    reading = {name: value for name, value in options.items() if name in Reading.model_fields}
    if "examples" in scores.attrs:  # estimators differ in how many they read by default
        reading["examples"] = scores.attrs["examples"]
    return open_subject(model, task, **reading).judged


def _one(method: str | Callable[..., Any], model: Any, task: Task, options: dict[str, Any]) -> xr.DataArray:
    """Scores by one of `ESTIMATORS`, or by a user's function, which is given those settings that it takes."""
    function = estimator(method)
    if hasattr(function, "settings"):
        return function(model, task, **options)
    parameters = signature(function).parameters
    takes_all = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
    values = function(
        model, task, **{name: value for name, value in options.items() if takes_all or name in parameters}
    )
    label = getattr(function, "__name__", type(function).__name__)
    scores = values if isinstance(values, xr.DataArray) else _labelled(values, label, task, options)
    return scores.assign_attrs(sense=_sense(scores, function, label))


def _sense(scores: xr.DataArray, function: Callable[..., Any], label: str) -> str:
    """What scores of a user's function mean, as they or the function say it; where none is below 0 both senses are one."""
    sense = scores.attrs.get("sense", getattr(function, "sense", None))
    if sense is None and not bool((scores < 0).any()):
        return "magnitude"
    if sense not in SENSES:
        said = "does not say what scores below 0 mean" if sense is None else f"has the sense {sense!r}"
        raise HeadwiseError(
            f"method {label!r} {said}: set its attribute `sense`, or attrs['sense'] of its scores, to {MEANING}"
        )
    return str(sense)


def _labelled(values: Any, label: str, task: Task, options: dict[str, Any]) -> xr.DataArray:
    """A plain array of a user's function as scores."""
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=float)
    shape = options["heads"].shape
    if array.shape != shape:
        raise HeadwiseError(
            f"method {label!r} gave scores of shape {array.shape}; the heads of this model are {shape}, (layers, heads)"
        )
    scored = options["heads"].valid.cpu().numpy() & ~(options.get("silenced") or HeadSet()).to_mask(shape)
    coords = {"layer": np.arange(shape[0]), "head": np.arange(shape[1])}
    attrs = {"method": label, "task": task.name}
    return xr.DataArray(
        np.where(scored, array, np.nan), dims=("layer", "head"), coords=coords, name="score", attrs=attrs
    )


def _iterated(
    model: Any, task: Task, settings: Score, slice_size: float | int, options: dict[str, Any]
) -> xr.DataArray:
    """Ranks from 0 to 1 by the round in which a head was silenced, and by its score within the round."""
    silence = settings.silence
    from headwise._passes.answers import JUDGED, unjudged

    heads: Heads = options["heads"]
    start = options.get("silenced") or HeadSet()
    left = HeadSet(heads.all() - start)
    size = (
        int(slice_size)
        if isinstance(slice_size, int) or slice_size > 1
        else count_for(slice_size, heads.total)
    )
    if size < 1:
        raise HeadwiseError(f"iterative={slice_size} is less than one head of {heads.total} at a time")
    order: list[tuple[int, int]] = []
    scores = None
    judged: dict[str, Any] = {}
    while left:
        with nullcontext() if scores is None else unjudged():  # the first round reads the intact model
            scores = _one(
                settings.method, model, task, {**options, "silenced": HeadSet(start | HeadSet(order))}
            )
        judged = judged or {name: scores.attrs[name] for name in JUDGED if name in scores.attrs}
        first, sign = (top_heads, -1) if silence == "most" else (bottom_heads, 1)
        slice_ = first(scores, n=min(size, len(left)))
        values = sign * importance(scores)
        order += sorted(slice_, key=lambda head: (values[head], head))
        left = HeadSet(left - slice_)
    if scores is None:
        raise HeadwiseError("every head is already silenced; there is nothing to score")
    ranks = np.full(heads.shape, np.nan)
    for place, head in enumerate(order if silence == "least" else order[::-1]):
        ranks[head] = place / max(1, len(order) - 1)
    attrs = {**scores.attrs, **judged, "iterative": slice_size, "silence": silence, "sense": "magnitude"}
    return xr.DataArray(
        ranks, dims=scores.dims, coords={dim: scores[dim] for dim in scores.dims}, name="score", attrs=attrs
    )
