"""Are a task's heads its own? Its set against sets of the same layers, drawn from the other tasks' heads,
that harm the others as much."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headwise._base.inference import MIN_ARRANGEMENTS
from headwise.lesions._statistics import TestOfD

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
LEAST_SETS = MIN_ARRANGEMENTS - 1  # compared with, for p to reach 0.05


def matched_masks(sets: Bools, scores: ArrayLike, task: int, draws: int, seed: int) -> Bools:
    """Random sets with as many heads in every layer as a task's own, from random heads to the best heads of
    another task.

    For each draw another task and a share are drawn; heads count as that task ranks them with the probability
    of the share, and come in random order after these. So the sets run from harmless to as harmful to the
    others as sets of these layers can be. Heads that this task alone chose are taken last, where a layer has
    too few others.

    Args:
        sets: (tasks, layers, heads), the heads each task chose.
        scores: (tasks, layers, heads), importance, the higher the more; NaN for heads that do not exist.
        task: whose set is tested.
        draws: how many sets.
        seed: the same seed gives the same sets.

    Returns:
        (draws, layers, heads).
    """
    rng = np.random.default_rng(seed)
    values = np.asarray(scores, dtype=float)
    other_tasks = np.delete(np.arange(len(sets)), task)
    donors, shares = rng.choice(other_tasks, size=draws), rng.random(draws)
    # below 1; NaN sorts last
    ranks = np.argsort(np.argsort(-values, axis=-1, kind="stable"), axis=-1) / values.shape[-1]
    ranked, chance = rng.random((2, draws, *values.shape[1:]))
    order = np.where(ranked < shares[:, None, None], ranks[donors], 1 + chance)  # (draws, layers, heads)
    order = order + 2 * (sets[task] & ~sets[other_tasks].any(0))
    order = np.where(np.isnan(values).all(0), np.inf, order)
    turns = np.argsort(np.argsort(order, axis=-1, kind="stable"), axis=-1)
    return np.asarray(turns < sets[task].sum(-1)[:, None])


def matched_test(under_own: ArrayLike, matched: ArrayLike, task: int) -> TestOfD:
    """The test of one task: does its set harm it more than sets do that harm the other tasks at least as much
    as its set does?

    H0: what a set of heads does to this task goes by how much it does to the others and by the layers it lies
    in, whoever chose it. Sets are matched by the harm measured, the mean fall of the other tasks' relative
    performance, and not by scores, which may rank heads better for one task than for another. p = (1 +
    #{matched sets that harm the task as much}) ÷ (1 + matched sets); harm to a task rises with harm to the
    others, so that sets that harm these more make p too large rather than too small.

    Args:
        under_own: (tasks,), relative performance of every task under the task's own lesion.
        matched: (draws, tasks), under sets of `matched_masks`.
        task: which task's set it is.

    Returns:
        d: the mean relative performance of the task under the matched sets minus that under its own; null:
        the same for each of the matched sets in its place.
    """
    mine, drawn = np.asarray(under_own, dtype=float), np.asarray(matched, dtype=float)
    nothing = np.array([])
    if np.isnan(mine).any() or np.isnan(drawn).any():
        return TestOfD(float("nan"), float("nan"), nothing, note="relative performance is undefined")
    other_tasks = np.delete(np.arange(len(mine)), task)
    as_harmful = drawn[:, other_tasks].mean(1) <= mine[other_tasks].mean() + 1e-12
    values = drawn[as_harmful, task]
    d = float(values.mean() - mine[task]) if len(values) else float("nan")
    if len(values) < LEAST_SETS:
        few = (
            f"{len(values)} of {len(drawn)} sets of other heads harm the other tasks as much as its own do; "
            f"{LEAST_SETS} are needed"
        )
        return TestOfD(d, float("nan"), nothing, note=few)
    as_low = int((values <= mine[task] + 1e-12).sum())
    return TestOfD(d, (1 + as_low) / (1 + len(values)), values.mean() - values)
