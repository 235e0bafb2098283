"""Multinomial logistic regression on many feature sets at once: all heads, all L2 strengths, all folds as one
batched problem.

Every problem minimises mean cross-entropy + λ/2·‖W‖², bias free of penalty, features as they are:
scikit-learn's `LogisticRegression(C=1/(n·λ))`. With two classes there is one weight vector w for the
log-odds, as in scikit-learn, and the penalty is λ/2·‖w‖² (a softmax with two weight vectors ±w/2 would need
2λ for the same).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import torch
from torch import Tensor

from headwise.probing._parallel import Map, workers
from headwise.probing._problem import check_finite, check_problem, check_squares
from headwise.probing._solver import Solution, minimise

TILE = {"cpu": 1 << 18, "cuda": 1 << 26}  # scores computed at a time: what fits the cache of one core
FEW, PIECES = 8, 16  # fewer sets than this are divided by examples as well, into at most this many pieces
SMALL = 1 << 24  # products below which several cores are not worth starting
# lengths of the preconditioned gradient that single precision reaches; below, double precision finishes
SINGLE = 1e-4
FEW_CLASSES = 32  # up to which sums by class are quicker as products with indicators
NEVER = 1e-7  # the prior of a class that a fold never sees


@dataclass(frozen=True)
class Fit:
    """Fitted probes.

    Attributes:
        weights: (sets, folds, strengths, outputs, dim); outputs is 1 for two classes (log-odds of class 1),
            else the classes.
        bias: (sets, folds, strengths, outputs).
        lengths: (sets, folds, strengths) length of the preconditioned gradient at the end.
        evaluations: gradients taken per problem, on average.
    """

    weights: Tensor
    bias: Tensor
    lengths: Tensor
    evaluations: float

    def classes(self, features: Tensor, fold: int = 0, strengths: Sequence[int] | None = None) -> Tensor:
        """Predicted class numbers of examples (sets, examples, dim) under one fold's probes: (sets,
        strengths, examples).

        Args:
            features: any floating type; converted piece by piece, so that scores of many classes are never
                held at once.
            fold: whose probes.
            strengths: one number of a strength per set: then (sets, examples).
        """
        sets, _, count, outputs, dim = self.weights.shape
        examples = features.shape[1]
        tile = TILE.get(features.device.type, TILE["cuda"])
        shown = count if strengths is None else 1
        out = torch.empty(sets, shown, examples, dtype=torch.long, device=features.device)

        def predict(number: int) -> None:
            rows = slice(None)
            if strengths is not None:
                rows = slice(strengths[number], strengths[number] + 1)
            w = self.weights[number, fold, rows].reshape(-1, dim)
            b = self.bias[number, fold, rows].reshape(-1, 1)
            width = max(64, tile // len(w))
            for low in range(0, examples, width):
                x = features[number, low : low + width].float()  # (examples, dim)
                scores = torch.addmm(b, w, x.t()).view(-1, outputs, len(x))
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
        folds: sizes of consecutive blocks of examples; fold f is fitted on all blocks but the f-th. None: one
            fit on all examples.
        tolerance: length of the preconditioned gradient at which a problem is done; half its square is about
            the excess of the mean cross-entropy over its minimum (5e-7 nats by default).
        max_rounds: gradients a problem may take in either precision.
    """
    with workers(features.device) as spread:
        problem = Logistic(features, labels, strengths, classes, folds, spread)
        solution = minimise(
            problem.start(),
            problem.gradient,
            problem.precondition,
            tolerance=max(tolerance, SINGLE),
            max_rounds=max_rounds,
        )
        unfinished = (~(solution.lengths <= tolerance)).nonzero()[:, 0]
        if len(unfinished):
            precise = _finish(problem, solution, unfinished, tolerance, max_rounds)
            solution.points[unfinished] = precise.points.float()
            solution.lengths[unfinished] = precise.lengths.float()
        return problem.fitted(solution.points, solution.lengths, solution.evaluations / len(solution.points))


def _finish(
    problem: "Logistic", solution: Solution, unfinished: Tensor, tolerance: float, max_rounds: int
) -> Solution:
    """The problems `unfinished` in double precision, from where single precision got them."""
    return minimise(
        solution.points[unfinished].double(),
        lambda points, active: problem.gradient(points, unfinished[active]),
        lambda vectors, active: problem.precondition(vectors, unfinished[active]),
        tolerance=tolerance,
        max_rounds=max_rounds,
    )


class Logistic:
    """The batched problem, in coordinates where its first inverse Hessian is cheap.

    Features are centred and turned to their principal axes, with a constant in the last row. At the best
    constant prediction (class priors π) the Hessian is (diag π − ππᵀ) ⊗ Cov + λI, which is there diagonal
    plus one rank-one term per axis: it is inverted exactly.

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
        fitted_on = [self.examples - size for size in sizes] if folds else sizes
        self.counts = torch.tensor(fitted_on, device=device, dtype=torch.float32)
        self._rotate(features, dim)
        self._moments(labels)
        strength = torch.tensor(strengths, device=device, dtype=torch.float32)
        # (problems, axes)
        self.penalty = strength.repeat(self.sets * self.n_folds)[:, None].repeat(1, dim + 1)
        self.penalty[:, -1] = 0
        self._hessian()

    def _rotate(self, features: Tensor, dim: int) -> None:
        device = features.device
        # principal components, and a constant
        self.x = torch.empty(self.sets, dim + 1, self.examples, device=device)
        self.axes = torch.empty(self.sets, dim, dim, device=device)
        self.mean = torch.empty(self.sets, 1, dim, device=device)
        self.variances = torch.ones(self.sets, dim + 1, device=device)

        def rotate(number: int) -> None:
            x = features[number].float()
            self.mean[number] = check_finite(x.mean(0))
            x = x - self.mean[number]
            covariance = check_squares(torch.mm(x.t(), x), x) / self.examples
            variances, self.axes[number] = torch.linalg.eigh(covariance)
            self.variances[number, :dim] = variances.clamp_min(0)
            torch.mm(self.axes[number].t(), x.t(), out=self.x[number, :dim])
            self.x[number, dim] = 1

        for _ in self.map(rotate, range(self.sets)):
            pass

    def _moments(self, labels: Tensor) -> None:
        """Mean of features × label indicator over each fold's examples: the constant part of the gradient,
        (sets·folds, outputs, axes)."""
        indicator = None
        if self.classes <= FEW_CLASSES:
            indicator = torch.nn.functional.one_hot(labels, self.classes)[:, -self.outputs :].to(self.x.dtype)

        def block_sums(number: int) -> Tensor:
            """(folds, outputs, axes) of one set."""
            x = self.x[number]
            if indicator is not None:
                sums = [torch.mm(x[:, low:high], indicator[low:high]).t() for low, high in self.blocks]
                return torch.stack(sums)
            by_class = x.new_zeros(len(self.blocks), self.outputs, len(x))
            for block, (low, high) in enumerate(self.blocks):
                by_class[block].index_add_(0, labels[low:high], x[:, low:high].t())
            return by_class

        in_block = torch.stack(list(self.map(block_sums, range(self.sets))))  # (sets, folds, outputs, axes)
        sums = in_block.sum(1, keepdim=True)
        if self.n_folds > 1:
            sums = sums - in_block
        moments = sums / self.counts[:, None, None]
        self.moments = moments.reshape(self.sets * self.n_folds, self.outputs, -1)

    def _hessian(self) -> None:
        # (problems, outputs)
        self.prior = self.moments[..., -1].clamp(NEVER, 1 - NEVER).repeat_interleave(self.n_strengths, 0)
        v = self.variances.repeat_interleave(self.per_set, 0)  # (problems, axes)
        spread = self.prior * (1 - self.prior) if self.outputs == 1 else self.prior
        self.inverse = 1 / (
            spread[:, :, None] * v[:, None] + self.penalty[:, None]
        )  # (problems, outputs, axes)
        if self.outputs == 1:
            return
        self.rank_one = self.inverse * self.prior[:, :, None]
        # 1 − v·πᵀD⁻¹π = Σ π·λ/(vπ + λ), in a form that does not cancel
        denominator = (self.prior[:, :, None] * self.penalty[:, None] * self.inverse).sum(1)
        self.factor = torch.where(self.penalty > 0, v / denominator.clamp_min(1e-30), 0.0)  # (problems, axes)

    def start(self) -> Tensor:
        """The best constant predictions: (problems, outputs, axes), zero but for the bias."""
        points = self.x.new_zeros(len(self.penalty), self.outputs, self.x.shape[1])
        logs = self.prior.log()
        points[:, :, -1] = logs - (
            (1 - self.prior).log() if self.outputs == 1 else logs.mean(1, keepdim=True)
        )
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
        numbers, counts = torch.unique_consecutive(sets, return_counts=True)
        ends = counts.cumsum(0).tolist()
        fold_of = folds.tolist()
        jobs = []
        for number, end, count in zip(numbers.tolist(), ends, counts.tolist(), strict=True):
            rows = slice(end - count, end)
            edges = self._edges(count) if len(ends) < FEW else [0, self.examples]
            jobs += [(number, rows, points[rows], fold_of[rows], *piece) for piece in pairwise(edges)]
        out = torch.zeros_like(points)
        for (_, rows, *_), sums in zip(jobs, self.map(self._piece_sums, jobs), strict=True):
            out[rows] += sums
        out /= self.counts[folds][:, None, None]
        out -= self.moments[active // self.n_strengths]
        return out + self.penalty[active][:, None] * points

    def _edges(self, count: int) -> list[int]:
        """The examples in pieces, to keep all cores busy with few sets; the same pieces on any machine, so
        that sums round alike."""
        pieces = max(1, min(PIECES, self.examples, self.examples * count * self.outputs // TILE["cpu"]))
        edges: list[int] = torch.linspace(0, self.examples, pieces + 1).round().long().tolist()
        return edges

    def _piece_sums(self, job: tuple[int, slice, Tensor, list[int], int, int]) -> Tensor:
        """Σ features × predicted probability over the examples first to last of one set: (problems of the
        set, outputs, axes)."""
        number, _, points, fold_of, first, last = job
        flat = points.view(-1, points.shape[-1])  # (problems · outputs, axes)
        out = torch.zeros_like(flat)
        tile = TILE.get(points.device.type, TILE["cuda"])
        width = max(256, tile // len(flat))
        group = max(1, tile // (width * self.outputs))
        for low in range(first, last, width):
            high = min(low + width, last)
            x = self.x[number, :, low:high].to(points.dtype)  # (axes, examples)
            for start in range(0, len(points), group):
                rows = slice(start * self.outputs, (start + group) * self.outputs)
                p = torch.mm(flat[rows], x)
                if self.outputs == 1:
                    p = p.sigmoid_()
                else:
                    p = torch.softmax(p.view(-1, self.outputs, high - low), 1).view(-1, high - low)
                self._hide(p, fold_of[start : start + group], low, high)
                out[rows].addmm_(p, x.t())
        return out.view_as(points)

    def _hide(self, p: Tensor, fold_of: list[int], low: int, high: int) -> None:
        """No fold sees its own block: sets its probabilities there to zero. One large product with zeros in
        it is quicker than one product per block."""
        if self.n_folds == 1:
            return
        end = 0
        for fold, rows in groupby(fold_of):
            start, end = end, end + len(list(rows))
            first, last = self.blocks[fold]
            if first < high and last > low:
                p[start * self.outputs : end * self.outputs, max(first - low, 0) : last - low] = 0

    def fitted(self, points: Tensor, lengths: Tensor, evaluations: float) -> Fit:
        """Weights and biases for features as they came."""
        shape = (self.sets, self.n_folds, self.n_strengths, self.outputs)
        flat = points.view(self.sets, -1, points.shape[-1])
        weights = torch.bmm(flat[..., :-1], self.axes.transpose(1, 2))  # (sets, outputs of all problems, dim)
        bias = flat[..., -1] - torch.bmm(weights, self.mean.transpose(1, 2))[..., 0]
        return Fit(weights.view(*shape, -1), bias.view(shape), lengths.view(shape[:3]), evaluations)
