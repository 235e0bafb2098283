"""Many smooth convex problems minimised together: batched L-BFGS, every problem to its own convergence."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Gradient = Callable[[Tensor, Tensor], Tensor]
"""(points (active, ...), numbers of the active problems (active,)) -> gradients (active, ...)"""

STALLED = 40  # rounds without halving the gradient after which a problem is given up at this precision
# a step is accepted if the slope at its end has not turned upwards by more than this share of the slope at
# its start
SLOPE = 0.5


@dataclass(frozen=True)
class Solution:
    """Where every problem ended.

    Attributes:
        points: (problems, ...) the minimisers.
        lengths: (problems,) length of the preconditioned gradient there, √(gᵀP⁻¹g).
        rounds: rounds until the last problem was done.
        evaluations: gradients taken, over all problems.
    """

    points: Tensor
    lengths: Tensor
    rounds: int
    evaluations: int


def minimise(
    start: Tensor,
    gradient: Gradient,
    precondition: Gradient,
    *,
    tolerance: float,
    history: int = 8,
    max_rounds: int = 1000,
) -> Solution:
    """Minimises many independent smooth convex functions by L-BFGS, one gradient of every active problem a
    round.

    A problem leaves the batch when √(gᵀP⁻¹g) ≤ tolerance, where P is the preconditioner (the first inverse
    Hessian is P⁻¹). Half the square of that length is the excess of its value over the minimum, as far as P
    is its Hessian, so the tolerance means the same whatever the units of the features.

    Only gradients are used. A step is accepted if the slope at its end is not steeply upward, else it is
    shortened by the secant rule: on a convex function the zero of the slope is the minimum along the line,
    and slopes keep their digits where differences of nearly equal values lose them.

    Args:
        start: (problems, ...) first points; its dtype and device are used throughout.
        gradient: gradients of chosen problems at given points.
        precondition: P⁻¹ of chosen problems applied to vectors.
        tolerance: the length of the preconditioned gradient to reach.
        history: correction pairs kept per problem.
        max_rounds: problems that are not done by then are returned as they are; `Solution.lengths` tells.
    """
    points = start.clone()
    lengths = start.new_full((len(start),), float("nan"))
    active = torch.arange(len(start), device=start.device)
    x, g = start.clone(), gradient(start, active)
    # steps, changes of gradient, 1/(s·y) or 0 where the step was refused
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    scale, step = g.new_ones(len(x)), g.new_ones(len(x))
    direction = torch.zeros_like(x)
    fresh = torch.ones(len(x), dtype=torch.bool, device=x.device)  # which problems want a new direction
    best = g.new_full((len(x),), float("inf"))
    patience = torch.zeros(len(x), dtype=torch.int32, device=x.device)
    rounds = evaluations = 0
    while True:
        length = _dot(g, precondition(g, active)).clamp_min(0).sqrt()
        better = length < 0.5 * best
        best, patience = torch.where(better, length, best), torch.where(better, 0, patience + 1)
        stays = (length > tolerance) & (patience < STALLED) & (rounds < max_rounds)
        if not stays.all():
            points[active[~stays]], lengths[active[~stays]] = x[~stays], length[~stays]
            active, x, g, scale, step, direction = (t[stays] for t in (active, x, g, scale, step, direction))
            fresh, best, patience = fresh[stays], best[stays], patience[stays]
            pairs = [(s[stays], y[stays], r[stays]) for s, y, r in pairs]
        if not len(active):
            return Solution(points, lengths, rounds, evaluations)
        newton = -_two_loops(g, pairs, scale, lambda v, a=active: precondition(v, a))  # type: ignore[misc]
        direction = torch.where(_wide(fresh, x), newton, direction)
        slope = _dot(direction, g)
        s = _wide(step, x) * direction
        ahead = gradient(x + s, active)
        rounds, evaluations = rounds + 1, evaluations + len(active)
        end_slope = _dot(direction, ahead)
        accepted = end_slope <= SLOPE * slope.abs()
        y = ahead - g
        curvature = _dot(s, y)
        usable = accepted & (curvature > 0)
        pairs = [*pairs[-history + 1 :], (s, y, torch.where(usable, 1 / curvature, 0.0))]
        scale = torch.where(
            usable, curvature / _dot(y, precondition(y, active)).clamp_min(torch.finfo(g.dtype).tiny), scale
        )
        x, g = torch.where(_wide(accepted, x), x + s, x), torch.where(_wide(accepted, x), ahead, g)
        step = torch.where(accepted, 1.0, step * slope / (slope - end_slope))
        fresh = accepted


def _two_loops(
    g: Tensor,
    pairs: list[tuple[Tensor, Tensor, Tensor]],
    scale: Tensor,
    precondition: Callable[[Tensor], Tensor],
) -> Tensor:
    """The inverse Hessian that the pairs and the preconditioner imply, applied to g."""
    v, alphas = g.clone(), []
    for s, y, r in reversed(pairs):
        alpha = r * _dot(s, v)
        alphas.append(alpha)
        v -= _wide(alpha, v) * y
    v = precondition(v) * _wide(scale, v)
    for (s, y, r), alpha in zip(pairs, reversed(alphas), strict=True):
        v += _wide(alpha - r * _dot(y, v), v) * s
    return v


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner products (problems,)."""
    return (a * b).flatten(1).sum(1)


def _wide(a: Tensor, like: Tensor) -> Tensor:
    """(problems,) shaped to multiply `like` (problems, ...)."""
    return a.view(-1, *[1] * (like.ndim - 1))
