"""`shapley`: each head's fair share of what all heads together do for the task."""

from typing import Any, Literal

import numpy as np
import xarray as xr

from headwise._passes.lesioned import evaluate
from headwise._passes.subject import prepare
from headwise.heads import HeadSet
from headwise.scoring._ablation import metric_values
from headwise.scoring._result import as_scores
from headwise.scoring._settings import Reading
from headwise.settings import operation, option
from headwise.tasks import Task


class Shapley(Reading):
    """Settings of `shapley`."""

    examples: int | None = option(
        100, "At most this many examples of the split, drawn at random; None: all.", ge=1
    )
    permutations: int = option(
        10, "Random orders of the heads, each forwards and backwards: two passes per head and order.", ge=1
    )
    measure: Literal["loss", "metric"] = option("loss", "Value function: minus the mean loss, or the metric.")


@operation(Shapley)
def shapley(model: Any, task: Task, settings: Shapley) -> xr.DataArray:
    """Monte-Carlo Shapley values (Castro et al. 2009; Held and Yang 2023 for heads): heads are silenced one
    after another.

    φ_h = E over orders of v(the heads still there, h among them) − v(the same without h). Every order is also
    run backwards, which evens out first and last places. For each order the values sum to v(all heads) −
    v(none), so their sum here does too.

    Returns:
        (layer, head); positive where the head helps. A coordinate `error` has the standard error over orders.
    """
    permutations, measure = settings.permutations, settings.measure
    subject = prepare(model, task, settings)
    heads = [head for head in subject.heads.all() if bool(subject.scored[head])]
    rng = np.random.default_rng(subject.seed)
    shares = np.zeros((permutations, *subject.heads.shape))
    for draw in range(permutations):
        order = [heads[i] for i in rng.permutation(len(heads))]
        for sequence in (order, order[::-1]):
            sets = [HeadSet(sequence[:n]) for n in range(len(sequence) + 1)]  # from the whole model to none
            outcome = evaluate(subject, sets, f"Shapley values, {task.name}, {draw + 1} of {permutations}")
            if measure == "loss":
                value = -outcome.losses.mean(axis=1, dtype=float)
            else:
                value = metric_values(subject, outcome.predictions)
            subject.answers.fill(outcome.predictions[0], outcome.losses[0])
            for number, head in enumerate(sequence):
                shares[(draw, *head)] += (value[number] - value[number + 1]) / 2
    scores = as_scores(
        shares.mean(axis=0), subject, "shapley", "signed", permutations=permutations, measure=measure
    )
    error = np.full(subject.heads.shape, np.nan)
    if permutations > 1:
        error = shares.std(axis=0, ddof=1) / np.sqrt(permutations)
    error = np.where(subject.scored.cpu().numpy(), error, np.nan)
    return scores.assign_coords(error=(("layer", "head"), error))
