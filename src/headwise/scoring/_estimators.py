"""`headwise.score`: one call for every estimator."""

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from headwise._base.lazy import ByName
from headwise._base.opener import identity
from headwise._passes.decision import asked
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.models._memory import LENGTH, as_trained, length_of
from headwise.scoring._files import keep
from headwise.scoring._selection import count_for, top_heads
from headwise.scoring._settings import WHERE, Reading, Score, check_options, estimator
from headwise.settings import operation
from headwise.store._entry import kept
from headwise.tasks._kinds import KINDS
from headwise.tasks._metrics import every
from headwise.tasks._names import as_tasks
from headwise.tasks._task import Task

if TYPE_CHECKING:
    from headwise.heads import Heads


ESTIMATORS: ByName[Callable[..., xr.DataArray]] = ByName(WHERE, estimator)


@operation(Score)
def score(model: Any, task: Task | Sequence[Task], settings: Score) -> xr.DataArray:
    """How much each head matters to a task.

    Options of the method may stand beside the others: `score(model, task, method="shapley", permutations=20)`.

    Args:
        model: a multi-task model, a plain transformers model with a head (classifier, tagger, causal or masked language model),
            or a folder that headwise saved.
        task: the task, or several that the model answers.

    Returns:
        (layer, head), or (task, layer, head) for several tasks, with the settings in `.attrs`. Higher is more important. NaN where
        a layer has no such head. Iterative scores are ranks from 0 (least important) to 1, by when a head was silenced.
    """
    check_options(settings.method, settings.own)
    several = not isinstance(task, Task)
    tasks = as_tasks(task)
    if not tasks:
        raise HeadwiseError("there is no task to score")
    if settings.out is None:
        return _score(model, tasks, several, settings)
    if settings.out.suffix == ".nc":
        raise HeadwiseError(f"out is {settings.out}: give the name of a folder; the scores are saved in it as scores.nc")
    decided = asked("score", model, tasks, settings, settings.split, together=several)
    found, notes = kept(
        settings.out, decided, lambda entry: keep(_score(model, tasks, several, settings), entry.folder, **entry.seals())
    )
    return found.assign_attrs(notes=notes) if notes else found


def _score(model: Any, tasks: list[Task], several: bool, settings: Score) -> xr.DataArray:
    """Scores that are not there yet."""
    from headwise._passes.subject import opened
    from headwise.heads import Heads

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
    performance: dict[str, dict[str, float]] = {}
    for task, scores in zip(read, found, strict=True):
        if KINDS[task.kind].reads == "tokens":
            performance |= scores.attrs.get("performance") or {task.name: _performance(answering, task, options, scores)}
    name, revision = identity(answering.encoder.config)
    judged = {
        **({"performance": performance} if performance else {}),
        "model": name,
        "revision": revision,
        "metrics": {task.name: task.metric for task in read},
        "max_length": {name: length_of(answering, name, settings.max_length) or LENGTH for name in names},
    }
    if not several:
        return found[0].assign_attrs(judged)
    # what differs between tasks (task, examples) cannot stand for all of them
    shared = {key: value for key, value in found[0].attrs.items() if all(other.attrs.get(key) == value for other in found)}
    joined = xr.concat(found, dim="task", coords="different", compat="equals", combine_attrs="drop")
    return joined.assign_coords(task=list(names)).assign_attrs({**shared, **judged})


def _performance(model: Any, task: Task, options: dict[str, Any], scores: xr.DataArray) -> dict[str, float]:
    """Every metric of a language-model task on the examples that were scored: accuracy alone says little of such a model."""
    from headwise._passes.lesioned import evaluate
    from headwise._passes.subject import open_subject

    read = {name: value for name, value in options.items() if name in Reading.model_fields}
    if "examples" in scores.attrs:  # estimators differ in how many they read by default
        read["examples"] = scores.attrs["examples"]
    subject = open_subject(model, task, **read)
    return every(task.kind, evaluate(subject, [HeadSet()]).predictions[0])


def _one(method: str | Callable[..., Any], model: Any, task: Task, options: dict[str, Any]) -> xr.DataArray:
    """Scores by one of `ESTIMATORS`, or by a user's function, which is given those settings that it takes."""
    function = estimator(method)
    if hasattr(function, "settings"):
        return function(model, task, **options)
    parameters = signature(function).parameters
    takes_all = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
    values = function(model, task, **{name: value for name, value in options.items() if takes_all or name in parameters})
    if isinstance(values, xr.DataArray):
        return values
    label = getattr(function, "__name__", type(function).__name__)
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=float)
    shape = options["heads"].shape
    if array.shape != shape:
        raise HeadwiseError(
            f"method {label!r} gave scores of shape {array.shape}; the heads of this model are {shape}, (layers, heads)"
        )
    scored = options["heads"].valid.cpu().numpy() & ~(options.get("silenced") or HeadSet()).to_mask(shape)
    coords = {"layer": np.arange(shape[0]), "head": np.arange(shape[1])}
    attrs = {"method": label, "task": task.name}
    return xr.DataArray(np.where(scored, array, np.nan), dims=("layer", "head"), coords=coords, name="score", attrs=attrs)


def _iterated(model: Any, task: Task, settings: Score, slice_size: float | int, options: dict[str, Any]) -> xr.DataArray:
    """Ranks from 0 to 1 by the round in which a head was silenced, and by its score within the round."""
    silence = settings.silence
    heads: Heads = options["heads"]
    start = options.get("silenced") or HeadSet()
    left = HeadSet(heads.all() - start)
    size = int(slice_size) if isinstance(slice_size, int) or slice_size > 1 else count_for(slice_size, heads.total)
    if size < 1:
        raise HeadwiseError(f"iterative={slice_size} is less than one head of {heads.total} at a time")
    sign = 1 if silence == "most" else -1
    order: list[tuple[int, int]] = []
    scores = None
    while left:
        scores = _one(settings.method, model, task, {**options, "silenced": HeadSet(start | HeadSet(order))})
        slice_ = top_heads(sign * scores, n=min(size, len(left)))
        values = scores.to_numpy()
        order += sorted(slice_, key=lambda head: (-sign * values[head], head))
        left = HeadSet(left - slice_)
    if scores is None:
        raise HeadwiseError("every head is already silenced; there is nothing to score")
    ranks = np.full(heads.shape, np.nan)
    for place, head in enumerate(order if silence == "least" else order[::-1]):
        ranks[head] = place / max(1, len(order) - 1)
    attrs = {**scores.attrs, "iterative": slice_size, "silence": silence}
    attrs.pop("performance", None)  # that of the last round, with most heads silenced
    return xr.DataArray(ranks, dims=scores.dims, coords={dim: scores[dim] for dim in scores.dims}, name="score", attrs=attrs)
