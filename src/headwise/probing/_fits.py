"""Fitting probes to feature sets: train fits, validation (or cross-validation) chooses the L2 strength, test is only predicted."""

import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.probing._logistic import Fit, fit
from headwise.probing._parallel import workers
from headwise.probing._problem import check_features
from headwise.probing._ridge import RidgeFit, fit_ridge
from headwise.probing._settings import Probe
from headwise.tasks import KINDS, metrics

MEMORY = 1 << 30  # bytes that the feature sets fitted at a time may take
SPLIT_NAMES = ("train", "validation", "test")
Probed = TypeVar("Probed", Fit, RidgeFit)


@dataclass(frozen=True)
class Labels:
    """What the probes are asked.

    Attributes:
        kind: "classes" or "number".
        metric: one of `tasks.METRICS` that fits the kind; it is reported. It also chooses, but numbers choose by Pearson (A.3).
        classes: number of classes; 0 for numbers.
        train, validation, test: labels of the splits.
    """

    kind: str
    metric: str
    classes: int
    train: NDArray[np.float64] | NDArray[np.int64]
    validation: NDArray[np.float64] | NDArray[np.int64]
    test: NDArray[np.float64] | NDArray[np.int64]

    @property
    def chooser(self) -> str:
        """The metric that chooses on validation."""
        return "pearson" if KINDS[self.kind].numbers else self.metric

    def shuffled(self, seed: int) -> "Labels":
        """The same labels in random order within each split: what can be learnt from them is chance (control)."""
        rng = np.random.default_rng(seed)
        return Labels(
            self.kind,
            self.metric,
            self.classes,
            *(rng.permutation(x) for x in (self.train, self.validation, self.test)),
        )


@dataclass(frozen=True)
class Choice:
    """What became of some feature sets.

    Attributes:
        validation: (sets,) the metric that chose, under the chosen strength.
        strengths: (sets,) the chosen λ.
        predictions: (sets, test examples) class numbers or numbers, under the chosen strength.
    """

    validation: NDArray[np.float64]
    strengths: NDArray[np.float64]
    predictions: NDArray[Any]


def per_chunk(examples: int, dim: int, labels: Labels, settings: Probe) -> int:
    """How many feature sets of this size fit into memory."""
    problems = len(settings.strengths) * (settings.folds or 1)
    outputs = labels.classes if labels.classes > 2 else 1
    features, solver = 3 * 4 * examples * dim, 4 * problems * outputs * (dim + 1) * 30
    return max(1, int(MEMORY // (features + solver)))


def choose(features: Callable[[str], Tensor], labels: Labels, settings: Probe) -> Choice:
    """Fits every set at every strength, chooses its strength, and predicts the test examples with it.

    Args:
        features: gives the features (sets, examples, dim) of "train", "validation" and "test".
        labels: of the three.
        settings: strengths and folds, or an estimator of the user's own.
    """
    train, validation, test = (
        check_features(features(name).to(settings.device or "cpu")) for name in SPLIT_NAMES
    )
    if settings.estimator is not None:
        return _choose_own(train, validation, test, labels, settings)
    if settings.folds is None:
        fitted = _fit(train, labels.train, labels, settings, None)
        scores = score_all(_predict(fitted, validation, 0), labels.validation, labels)  # (sets, strengths)
        best = _best(scores)
        return Choice(
            _pick(scores, best), np.asarray(settings.strengths)[best], _predict_best(fitted, test, best)
        )
    x, y = torch.cat([train, validation], 1), np.concatenate([labels.train, labels.validation])
    scores = fold_scores(x, y, labels, settings)
    best = _best(scores)
    out = np.empty((len(x), test.shape[1]), labels.test.dtype)
    for number in np.unique(best):  # fitted again on all of it, each set at its own strength
        chosen = np.flatnonzero(best == number)
        again = _fit(x[chosen], y, labels, settings, None, [settings.strengths[number]])
        out[chosen] = _predict_best(again, test[chosen], np.zeros(len(chosen), np.int64))
    return Choice(_pick(scores, best), np.asarray(settings.strengths)[best], out)


def _choose_own(train: Tensor, validation: Tensor, test: Tensor, labels: Labels, settings: Probe) -> Choice:
    """The same with the user's estimator, which is copied for every fit; it has no strengths to choose from."""
    both, y = (
        torch.cat([train, validation], 1).float().cpu().numpy(),
        np.concatenate([labels.train, labels.validation]),
    )
    rows = np.arange(len(y))
    if settings.folds is None:
        held_out = [rows[train.shape[1] :]]
    else:
        order, sizes = fold_order(y, settings.folds, labels.kind, settings.seed)
        held_out = [order[low:high] for low, high in pairwise(accumulate(sizes, initial=0))]
    scores, predictions = [], np.empty((len(both), test.shape[1]), labels.test.dtype)
    for number, (x, asked) in enumerate(zip(both, test.float().cpu().numpy(), strict=True)):
        found = []
        for part in held_out:
            rest = np.setdiff1d(rows, part)
            fitted = _fit_own(settings.estimator, x[rest], y[rest])
            found.append(
                metrics.score(labels.chooser, labels.kind, np.asarray(fitted.predict(x[part])), y[part])
            )
        scores.append(np.mean(found))
        last = fitted if settings.folds is None else _fit_own(settings.estimator, x, y)  # on all of it
        predictions[number] = last.predict(asked)
    return Choice(np.array(scores), np.full(len(both), np.nan), predictions)


def _fit_own(estimator: Any, x: NDArray[Any], y: NDArray[Any]) -> Any:
    own = deepcopy(estimator)
    own.fit(x, y)
    return own


def fold_scores(
    x: Tensor, y: NDArray[np.float64] | NDArray[np.int64], labels: Labels, settings: Probe
) -> NDArray[np.float64]:
    """Cross-validation: the metric that chooses, of every set and strength, mean over the held-out folds: (sets, strengths)."""
    assert settings.folds is not None
    order, sizes = fold_order(y, settings.folds, labels.kind, settings.seed)
    with workers(x.device):
        x, y = x[:, order], y[order]
        fitted = _fit(x, y, labels, settings, sizes)
        edges = pairwise(accumulate(sizes, initial=0))
        parts = [
            score_all(_predict(fitted, x[:, low:high], fold), y[low:high], labels)
            for fold, (low, high) in enumerate(edges)
        ]
    return np.mean(parts, axis=0)


def fold_order(
    labels: NDArray[np.generic], folds: int, kind: str, seed: int
) -> tuple[NDArray[np.int64], list[int]]:
    """Examples in the order of their folds, and the folds' sizes; every class is spread evenly over the folds."""
    if not 2 <= folds <= len(labels):
        raise HeadwiseError(
            f"folds={folds}: expected 2 to {len(labels)}, the number of training and validation examples together"
        )
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    dealt = shuffled[np.argsort(labels[shuffled], kind="stable")] if KINDS[kind].one_class else shuffled
    parts = [np.sort(dealt[fold::folds]) for fold in range(folds)]
    return np.concatenate(parts), [len(part) for part in parts]


def score_all(predictions: Tensor, labels: NDArray[np.generic], task: Labels) -> NDArray[np.float64]:
    """The metric that chooses, of predictions (sets, strengths, examples): (sets, strengths)."""
    if task.chooser == "accuracy":
        found: NDArray[np.float64] = (
            (predictions == torch.from_numpy(labels).to(predictions.device)).double().mean(-1).cpu().numpy()
        )
        return found
    table = predictions.cpu().numpy()
    return np.array([[metrics.score(task.chooser, task.kind, row, labels) for row in rows] for rows in table])


def _fit(
    x: Tensor,
    y: NDArray[np.generic],
    labels: Labels,
    settings: Probe,
    folds: Sequence[int] | None,
    strengths: Sequence[float] | None = None,
) -> Fit | RidgeFit:
    chosen = strengths or settings.strengths
    target = torch.from_numpy(np.asarray(y)).to(x.device)
    if KINDS[labels.kind].numbers:
        return _checked(fit_ridge(x, target, chosen, folds=folds), chosen)
    found = fit(x, target, chosen, classes=labels.classes, folds=folds, tolerance=settings.tolerance)
    left = int((~(found.lengths <= settings.tolerance)).sum())
    if left:
        warnings.warn(
            f"{left} of {found.lengths.numel()} probes did not reach the tolerance {settings.tolerance}",
            stacklevel=3,
        )
    return _checked(found, chosen)


def _checked(fitted: Probed, strengths: Sequence[float]) -> Probed:
    """Fitted probes, if their weights are numbers.

    Raises:
        HeadwiseError: names the first that has others.
    """
    wrong = ~fitted.weights.isfinite().flatten(3).all(-1)  # (sets, folds, strengths)
    if wrong.any():
        number, _, strength = (int(place) for place in wrong.nonzero()[0])
        raise HeadwiseError(
            f"{int(wrong.sum())} of {wrong.numel()} probes have weights that are NaN or infinite, first that of feature set {number} at L2 "
            f"strength {strengths[strength]:g}: scale the features, or give larger strengths"
        )
    return fitted


def _predict(fitted: Fit | RidgeFit, x: Tensor, fold: int) -> Tensor:
    """(sets, strengths, examples)."""
    return fitted.classes(x, fold) if isinstance(fitted, Fit) else fitted.predictions(x.float(), fold)


def _predict_best(fitted: Fit | RidgeFit, x: Tensor, best: NDArray[np.int64]) -> NDArray[Any]:
    """(sets, examples) under each set's own strength."""
    if isinstance(fitted, Fit):
        return fitted.classes(x, strengths=best.tolist()).cpu().numpy()
    return fitted.predictions(x.float())[torch.arange(len(best)), torch.from_numpy(best)].cpu().numpy()


def _best(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """The best strength of each set; of equals the last, which by default is the strongest."""
    return scores.shape[1] - 1 - np.argmax(scores[:, ::-1], axis=1)


def _pick(scores: NDArray[np.float64], best: NDArray[np.int64]) -> NDArray[np.float64]:
    return scores[np.arange(len(scores)), best]
