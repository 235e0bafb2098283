"""`headwise.score`: one call for every estimator."""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, Literal

import numpy as np
import xarray as xr

from headwise.errors import HeadwiseError, did_you_mean
from headwise.heads import Heads, HeadSet
from headwise.passes.subject import Reading, opened
from headwise.scoring.ablation import ablation
from headwise.scoring.attribution import attention_attribution
from headwise.scoring.causal import causal_gating
from headwise.scoring.chance import random_scores
from headwise.scoring.gradient import gate_gradient
from headwise.scoring.integrated import integrated_gradients
from headwise.scoring.l0 import l0
from headwise.scoring.selection import count_for, top_heads
from headwise.scoring.shapley import shapley
from headwise.scoring.subset import subset
from headwise.scoring.taylor import taylor_mean
from headwise.tasks.naming import as_tasks
from headwise.tasks.task import Task

METHODS: dict[str, Callable[..., xr.DataArray]] = {
    "gate-gradient": gate_gradient,
    "ablation": ablation,
    "integrated-gradients": integrated_gradients,
    "attention-attribution": attention_attribution,
    "l0": l0,
    "subset": subset,
    "causal-gating": causal_gating,
    "shapley": shapley,
    "taylor-mean": taylor_mean,
    "random": random_scores,
}


def score(
    model: Any,
    task: Task | Sequence[Task],
    method: str = "gate-gradient",
    *,
    iterative: float | int | None = None,
    silence: Literal["most", "least"] = "most",
    **options: Any,
) -> xr.DataArray:
    """How much each head matters to a task.

    Args:
        model: a multi-task model, a plain transformers model with a head (classifier, tagger, causal or masked language model),
            or a folder that headwise saved.
        task: the task, or several that the model answers.
        method: one of `headwise.scoring.METHODS`.
        iterative: silence a slice, score the rest again, and so on; the slice is a share of all heads (0.1) or a number (5).
        silence: with iterative, whether each slice takes the "most" important heads left (what a lesion study asks), or the
            "least" important (what pruning asks).
        options: of the method, and those every method has: examples, split, batch_size, max_length, seed, silenced, tokenizer,
            heads, quiet (see `headwise.scoring.Reading`).

    Returns:
        (layer, head), or (task, layer, head) for several tasks, with the settings in `.attrs`. Higher is more important. NaN where
        a layer has no such head. Iterative scores are ranks from 0 (least important) to 1, by when a head was silenced.
    """
    if method not in METHODS:
        raise HeadwiseError(f"method {method!r} is unknown; choose one of {', '.join(METHODS)}")
    if options.get("variant") is None:
        options.pop("variant", None)
    known = [name for name in signature(METHODS[method]).parameters if name not in ("model", "task", "reading")]
    for name in options:
        if name not in (*known, *Reading.__annotations__):
            has = f"its own are {', '.join(known)}" if known else "it has none of its own"
            raise HeadwiseError(f"method {method!r} has no option {name!r}{did_you_mean(name, known)}; {has}")
    several = not isinstance(task, Task)
    tasks = as_tasks(task)
    if not tasks:
        raise HeadwiseError("there is no task to score")
    names = [task.name for task in tasks]
    answering = opened(model, tasks, options)
    options["heads"] = options.get("heads") or Heads(answering.encoder)
    found = []
    for one in tasks:
        if iterative is None:
            found.append(METHODS[method](answering, one, **options))
        else:
            found.append(_iterated(METHODS[method], answering, one, iterative, silence, options))
    if not several:
        return found[0]
    # what differs between tasks (task, examples) cannot stand for all of them
    shared = {key: value for key, value in found[0].attrs.items() if all(other.attrs.get(key) == value for other in found)}
    joined = xr.concat(found, dim="task", coords="different", compat="equals", combine_attrs="drop")
    return joined.assign_coords(task=list(names)).assign_attrs(shared)


def _iterated(
    method: Callable[..., xr.DataArray], model: Any, task: Task, slice_size: float | int, silence: str, options: dict[str, Any]
) -> xr.DataArray:
    """Ranks from 0 to 1 by the round in which a head was silenced, and by its score within the round."""
    if silence not in ("most", "least"):
        raise HeadwiseError(f"silence is {silence!r}; choose 'most' or 'least'")
    heads: Heads = options["heads"]
    start = options.get("silenced", HeadSet())
    left = HeadSet(heads.all() - start)
    size = slice_size if isinstance(slice_size, int) else count_for(slice_size, heads.total)
    if size < 1:
        raise HeadwiseError(f"iterative={slice_size} is less than one head of {heads.total} at a time")
    sign = 1 if silence == "most" else -1
    order: list[tuple[int, int]] = []
    scores = None
    while left:
        scores = method(model, task, **{**options, "silenced": HeadSet(start | HeadSet(order))})
        slice_ = top_heads(sign * scores, n=min(size, len(left)))
        values = scores.to_numpy()
        order += sorted(slice_, key=lambda head: (-sign * values[head], head))
        left = HeadSet(left - slice_)
    if scores is None:
        raise HeadwiseError("every head is silenced from the start; there is nothing to score")
    ranks = np.full(heads.shape, np.nan)
    for place, head in enumerate(order if silence == "least" else order[::-1]):
        ranks[head] = place / max(1, len(order) - 1)
    attrs = {**scores.attrs, "iterative": slice_size, "silence": silence}
    return xr.DataArray(ranks, dims=scores.dims, coords={dim: scores[dim] for dim in scores.dims}, name="score", attrs=attrs)
