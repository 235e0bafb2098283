"""Multinomial logistic regression on many feature sets at once: all heads, all L2 strengths, all folds as one batched problem.

Every problem minimises mean cross-entropy + λ/2·‖W‖², bias free of penalty, features as they are: scikit-learn's
`LogisticRegression(C=1/(n·λ))`. With two classes there is one weight vector w for the log-odds, as in scikit-learn, and the penalty is
λ/2·‖w‖² (a softmax with two weight vectors ±w/2 would need 2λ for the same).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.probing.parallel import Map, workers
from headwise.probing.solver import Solution, minimise

TILE = {"cpu": 1 << 18, "cuda": 1 << 26}  # scores computed at a time: what fits the cache of one core
FEW, PIECES = 8, 16  # fewer sets than this are divided by examples as well, into at most so many pieces
SMALL = 1 << 24  # products below which several cores are not worth starting
SINGLE = 1e-4  # lengths of the preconditioned gradient that single precision reaches; below, double precision finishes
FEW_CLASSES = 32  # up to which sums by class are quicker as products with indicators
NEVER = 1e-7  # the prior of a class that a fold never sees


@dataclass(frozen=True)
class Fit:
    """Fitted probes.

    Attributes:
        weights: (sets, folds, strengths, outputs, dim); outputs is 1 for two classes (log-odds of class 1), else the classes.
        bias: (sets, folds, strengths, outputs).
        lengths: (sets, folds, strengths) length of the preconditioned gradient at the end.
        evaluations: gradients taken per problem, on average.
    """

    weights: Tensor
    bias: Tensor
    lengths: Tensor
    evaluations: float

    def classes(self, features: Tensor, fold: int = 0, strengths: Sequence[int] | None = None) -> Tensor:
        """Predicted class numbers of examples (sets, examples, dim) under one fold's probes: (sets, strengths, examples).

        Args:
            features: any floating type; converted piece by piece, so that scores of many classes are never held at once.
            fold: whose probes.
            strengths: one number of a strength per set: then (sets, examples).
        """
        sets, _, count, outputs, dim = self.weights.shape
        examples = features.shape[1]
        tile = TILE.get(features.device.type, TILE["cuda"])
        out = torch.empty(sets, count if strengths is None else 1, examples, dtype=torch.long, device=features.device)

        def predict(number: int) -> None:
            rows = slice(None) if strengths is None else slice(strengths[number], strengths[number] + 1)
            w, b = self.weights[number, fold, rows].reshape(-1, dim), self.bias[number, fold, rows].reshape(-1, 1)
            width = max(64, tile // len(w))
            for low in range(0, examples, width):
                scores = torch.addmm(b, w, features[number, low : low + width].float().t()).view(
                    -1, outputs, min(width, examples - low)
                )
                out[number, :, low : low + width] = scores[:, 0] > 0 if outputs == 1 else scores.argmax(1)

        if sets * count * outputs * dim * examples < SMALL:
            for number in range(sets):
                predict(number)
        else:
            with workers(features.device) as spread:
                for _ in spread(predict, range(sets)):
                    pass
        return out if strengths is None else out[:, 0]


def fit(
    features: Tensor,
    labels: Tensor,
    strengths: Sequence[float],
    *,
    classes: int | None = None,
    folds: Sequence[int] | None = None,
    tolerance: float = 1e-3,
    max_rounds: int = 1000,
) -> Fit:
    """Fits one probe per feature set, fold and strength.

    Args:
        features: (sets, examples, dim), any floating type.
        labels: (examples,) class numbers.
        strengths: the λ; all positive.
        classes: number of classes; default: the highest label + 1.
        folds: sizes of consecutive blocks of examples; fold f is fitted on all blocks but the f-th. None: one fit on all examples.
        tolerance: length of the preconditioned gradient at which a problem is done; half its square is about the excess of the mean
            cross-entropy over its minimum (5e-7 nats by default).
        max_rounds: gradients a problem may take in either precision.
    """
    with workers(features.device) as spread:
        problem = Logistic(features, labels, strengths, classes, folds, spread)
        solution = minimise(
            problem.start(), problem.gradient, problem.precondition, tolerance=max(tolerance, SINGLE), max_rounds=max_rounds
        )
        left = (~(solution.lengths <= tolerance)).nonzero()[:, 0]
        if len(left):
            finished = _finish(problem, solution, left, tolerance, max_rounds)
            solution.points[left], solution.lengths[left] = finished.points.float(), finished.lengths.float()
    evaluations = solution.evaluations / len(solution.points)
    return problem.fitted(solution.points, solution.lengths, evaluations)


def _finish(problem: "Logistic", solution: Solution, left: Tensor, tolerance: float, max_rounds: int) -> Solution:
    """The problems `left` in double precision, from where single precision got them."""
    return minimise(
        solution.points[left].double(),
        lambda points, active: problem.gradient(points, left[active]),
        lambda vectors, active: problem.precondition(vectors, left[active]),
        tolerance=tolerance,
        max_rounds=max_rounds,
    )


class Logistic:
    """The batched problem, in coordinates where its first inverse Hessian is cheap.

    Features are centred and turned to their principal axes, with a constant in the last row. At the best constant prediction (class
    priors π) the Hessian is (diag π − ππᵀ) ⊗ Cov + λI, which is there diagonal plus one rank-one term per axis: it is inverted exactly.

    Problem number = (set · folds + fold) · strengths + strength.
    """

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        strengths: Sequence[float],
        classes: int | None = None,
        folds: Sequence[int] | None = None,
        spread: Map = map,
    ) -> None:
        self.map = spread
        self.sets, self.examples, dim = features.shape
        check_problem(features, labels, strengths, folds)
        self.classes = classes or int(labels.max()) + 1
        self.outputs = 1 if self.classes == 2 else self.classes
        sizes = list(folds) if folds else [self.examples]
        edges = [0, *torch.tensor(sizes).cumsum(0).tolist()]
        self.blocks = list(pairwise(edges))
        self.n_folds = len(sizes)
        self.n_strengths = len(strengths)
        self.per_set = self.n_folds * self.n_strengths
        device = features.device
        self.counts = torch.tensor([self.examples - n if folds else n for n in sizes], device=device, dtype=torch.float32)
        self._rotate(features, dim)
        self._moments(labels)
        strength = torch.tensor(strengths, device=device, dtype=torch.float32)
        self.penalty = strength.repeat(self.sets * self.n_folds)[:, None].repeat(1, dim + 1)  # (problems, axes)
        self.penalty[:, -1] = 0
        self._hessian()

    def _rotate(self, features: Tensor, dim: int) -> None:
        device = features.device
        self.x = torch.ones(self.sets, dim + 1, self.examples, device=device)  # principal components, and a constant
        self.axes = torch.empty(self.sets, dim, dim, device=device)
        self.mean = torch.empty(self.sets, 1, dim, device=device)
        self.variances = torch.ones(self.sets, dim + 1, device=device)

        def rotate(number: int) -> None:
            x = features[number].float()
            self.mean[number] = x.mean(0)
            x = x - self.mean[number]
            variances, self.axes[number] = torch.linalg.eigh(torch.mm(x.t(), x) / self.examples)
            self.variances[number, :dim] = variances.clamp_min(0)
            torch.mm(self.axes[number].t(), x.t(), out=self.x[number, :dim])

        for _ in self.map(rotate, range(self.sets)):
            pass

    def _moments(self, labels: Tensor) -> None:
        """Mean of features × label indicator over each fold's examples: the constant part of the gradient, (sets·folds, outputs, axes)."""
        self.labels = labels
        parts = []
        for low, high in self.blocks:
            if self.classes <= FEW_CLASSES:
                indicator = torch.nn.functional.one_hot(labels[low:high], self.classes).to(self.x.dtype)
                sums = torch.matmul(self.x[:, :, low:high], indicator).transpose(1, 2)
            else:
                sums = self.x.new_zeros(self.sets, self.classes, self.x.shape[1])
                sums.index_add_(1, labels[low:high], self.x[:, :, low:high].transpose(1, 2))
            parts.append(sums)
        each = torch.stack(parts, 1)  # (sets, folds, classes, axes)
        whole = each.sum(1, keepdim=True)
        used = (whole - each if self.n_folds > 1 else whole) / self.counts[:, None, None]
        self.moments = used[:, :, -self.outputs :].reshape(self.sets * self.n_folds, self.outputs, -1)

    def _hessian(self) -> None:
        self.prior = self.moments[..., -1].clamp(NEVER, 1 - NEVER).repeat_interleave(self.n_strengths, 0)  # (problems, outputs)
        v = self.variances.repeat_interleave(self.per_set, 0)  # (problems, axes)
        if self.outputs == 1:
            self.inverse = 1 / ((self.prior * (1 - self.prior))[:, :, None] * v[:, None] + self.penalty[:, None])
            return
        self.inverse = 1 / (self.prior[:, :, None] * v[:, None] + self.penalty[:, None])  # (problems, outputs, axes)
        self.rank_one = self.inverse * self.prior[:, :, None]
        # 1 − v·πᵀD⁻¹π = Σ π·λ/(vπ + λ), in a form that does not cancel
        rest = (self.prior[:, :, None] * self.penalty[:, None] * self.inverse).sum(1)
        self.factor = torch.where(self.penalty > 0, v / rest.clamp_min(1e-30), 0.0)  # (problems, axes)

    def start(self) -> Tensor:
        """The best constant predictions: (problems, outputs, axes), zero but for the bias."""
        points = self.x.new_zeros(len(self.penalty), self.outputs, self.x.shape[1])
        logs = self.prior.log()
        points[:, :, -1] = logs - (1 - self.prior).log() if self.outputs == 1 else logs - logs.mean(1, keepdim=True)
        return points

    def precondition(self, vectors: Tensor, active: Tensor) -> Tensor:
        """The first inverse Hessian applied to vectors (active, outputs, axes)."""
        inverse = self.inverse[active].to(vectors.dtype)
        if self.outputs == 1:
            return inverse * vectors
        u = self.rank_one[active].to(vectors.dtype)
        return inverse * vectors + u * (self.factor[active].to(vectors.dtype) * (u * vectors).sum(1))[:, None]

    def gradient(self, points: Tensor, active: Tensor) -> Tensor:
        """Gradients of the active problems at points (active, outputs, axes)."""
        sets, folds = active // self.per_set, active % self.per_set // self.n_strengths
        found, counts = torch.unique_consecutive(sets, return_counts=True)
        ends = counts.cumsum(0).tolist()
        fold_of = folds.tolist()
        jobs = []
        for number, end, count in zip(found.tolist(), ends, counts.tolist(), strict=True):
            rows = slice(end - count, end)
            split = self._split(count) if len(ends) < FEW else [self.blocks_of(0, self.examples)]
            jobs += [(number, rows, points[rows], fold_of[rows], pieces) for pieces in split]
        out = torch.zeros_like(points)
        for (_, rows, *_), part in zip(jobs, self.map(self._part, jobs), strict=True):
            out[rows] += part
        out /= self.counts[folds][:, None, None]
        out -= self.moments[active // self.n_strengths]
        return out + self.penalty[active][:, None] * points

    def _split(self, count: int) -> list[list[tuple[int, int, int]]]:
        """The examples in pieces, to keep all cores busy with few sets; the same pieces on any machine, so that sums round alike."""
        pieces = max(1, min(PIECES, self.examples * count * self.outputs // TILE["cpu"]))
        edges = torch.linspace(0, self.examples, pieces + 1).round().long().tolist()
        return [self.blocks_of(low, high) for low, high in pairwise(edges) if high > low]

    def blocks_of(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """The examples low to high as (block, first, last + 1)."""
        cut = [(b, max(low, first), min(high, last)) for b, (first, last) in enumerate(self.blocks)]
        return [(b, first, last) for b, first, last in cut if last > first]

    def _part(self, job: tuple[int, slice, Tensor, list[int], list[tuple[int, int, int]]]) -> Tensor:
        """Σ features × predicted probability over some examples of one set: (problems of the set, outputs, axes)."""
        number, _, points, fold_of, pieces = job
        out = torch.zeros_like(points)
        tile = TILE.get(points.device.type, TILE["cuda"])
        for block, first, last in pieces:
            if self.n_folds == 1:
                rows = torch.arange(len(points), device=points.device)
            else:  # a fold does not see its own block
                rows = torch.tensor(
                    [i for i, fold in enumerate(fold_of) if fold != block], device=points.device, dtype=torch.long
                )
            width = max(256, tile // max(1, len(rows) * self.outputs))
            group = max(1, tile // (width * self.outputs))
            for some in torch.split(rows, group) if len(rows) else ():
                w = points[some].view(-1, points.shape[-1])  # (some · outputs, axes)
                for low in range(first, last, width):
                    x = self.x[number, :, low : min(low + width, last)].to(points.dtype)  # (axes, examples)
                    p = torch.mm(w, x)
                    if self.outputs == 1:
                        p = p.sigmoid_()
                    else:
                        p = torch.softmax(p.view(-1, self.outputs, p.shape[-1]), 1).view(-1, p.shape[-1])
                    out.index_add_(0, some, torch.mm(p, x.t()).view(-1, *points.shape[1:]))
        return out

    def fitted(self, points: Tensor, lengths: Tensor, evaluations: float) -> Fit:
        """Weights and biases for features as they came."""
        shape = (self.sets, self.n_folds, self.n_strengths, self.outputs)
        flat = points.view(self.sets, -1, points.shape[-1])
        weights = torch.bmm(flat[..., :-1], self.axes.transpose(1, 2))  # (sets, rest, dim)
        bias = flat[..., -1] - torch.bmm(weights, self.mean.transpose(1, 2))[..., 0]
        return Fit(weights.view(*shape, -1), bias.view(shape), lengths.view(shape[:3]), evaluations)


def check_problem(features: Tensor, labels: Tensor, strengths: Sequence[float], folds: Sequence[int] | None) -> None:
    """Refuses what no probe can be fitted to: HeadwiseError says which setting is wrong."""
    if labels.shape != (features.shape[1],):
        raise HeadwiseError(
            f"features hold {features.shape[1]} examples and labels have shape {tuple(labels.shape)}: expected one a row"
        )
    if not strengths or min(strengths) <= 0:
        raise HeadwiseError(
            f"L2 strengths must be positive, got {list(strengths)}: without a penalty separable data has no optimum"
        )
    if folds is not None and (len(folds) < 2 or sum(folds) != features.shape[1]):
        raise HeadwiseError(f"fold sizes {list(folds)} must be at least two and add up to the {features.shape[1]} examples")
    if not torch.isfinite(features.sum(dtype=torch.float32)):
        raise HeadwiseError("features hold NaN or infinite values; record with dtype='float32' if half precision overflowed")
