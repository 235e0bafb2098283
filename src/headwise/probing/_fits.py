"""Fitting probes to feature sets: train fits, validation (or cross-validation) chooses the L2 strength, test
is only predicted."""

import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
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
    """The labels that probes predict.

    Attributes:
        kind: "classes" or "number".
        metric: one of `tasks.METRICS` that fits the kind; it is reported. It also chooses, but numbers choose
            by Pearson (A.3).
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
        """The same labels in random order within each split: what can be learnt from them is chance
        (control)."""
        rng = np.random.default_rng(seed)
        train, validation, test = map(rng.permutation, (self.train, self.validation, self.test))
        return replace(self, train=train, validation=validation, test=test)


@dataclass(frozen=True)
class Choice:
    """The outcome of feature sets.

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
        return _choose_with_estimator(train, validation, test, labels, settings)
    if settings.folds is None:
        fitted = _fit(train, labels.train, labels, settings, None)
        scores = score_all(_predict(fitted, validation, 0), labels.validation, labels)  # (sets, strengths)
        best = _best(scores)
        predictions = _predict_best(fitted, test, best)
    else:
        x, y = torch.cat([train, validation], 1), np.concatenate([labels.train, labels.validation])
        scores = fold_scores(x, y, labels, settings)
        best = _best(scores)
        predictions = np.empty((len(x), test.shape[1]), labels.test.dtype)
        for number in np.unique(best):  # fitted again on both splits, each set at its own strength
            sets = np.flatnonzero(best == number)
            fitted = _fit(x[sets], y, labels, settings, None, [settings.strengths[number]])
            predictions[sets] = _predict_best(fitted, test[sets], np.zeros(len(sets), np.int64))
    best_scores = scores[np.arange(len(scores)), best]
    return Choice(best_scores, np.asarray(settings.strengths)[best], predictions)


def _choose_with_estimator(
    train: Tensor, validation: Tensor, test: Tensor, labels: Labels, settings: Probe
) -> Choice:
    """The same with the user's estimator, which is copied for every fit; it has no strengths to choose
    from."""
    features = torch.cat([train, validation], 1).float().cpu().numpy()
    y = np.concatenate([labels.train, labels.validation])
    rows = np.arange(len(y))
    if settings.folds is None:
        folds = [rows[train.shape[1] :]]
    else:
        order, sizes = fold_order(y, settings.folds, labels.kind, settings.seed)
        folds = [order[low:high] for low, high in pairwise(accumulate(sizes, initial=0))]

    def fitted(x: NDArray[Any], y: NDArray[Any]) -> Any:
        estimator = deepcopy(settings.estimator)
        estimator.fit(x, y)
        return estimator

    scores, predictions = [], np.empty((len(features), test.shape[1]), labels.test.dtype)
    for number, (x, test_x) in enumerate(zip(features, test.float().cpu().numpy(), strict=True)):
        by_fold = []
        for held_out in folds:
            fitting = np.setdiff1d(rows, held_out)
            estimator = fitted(x[fitting], y[fitting])
            answers = np.asarray(estimator.predict(x[held_out]))
            by_fold.append(metrics.score(labels.chooser, labels.kind, answers, y[held_out]))
        scores.append(np.mean(by_fold))
        if settings.folds is not None:
            estimator = fitted(x, y)  # on both splits
        predictions[number] = estimator.predict(test_x)
    return Choice(np.array(scores), np.full(len(features), np.nan), predictions)


def fold_scores(
    x: Tensor, y: NDArray[np.float64] | NDArray[np.int64], labels: Labels, settings: Probe
) -> NDArray[np.float64]:
    """Cross-validation: the metric that chooses, of every set and strength, mean over the held-out folds:
    (sets, strengths)."""
    assert settings.folds is not None
    order, sizes = fold_order(y, settings.folds, labels.kind, settings.seed)
    with workers(x.device):
        x, y = x[:, order], y[order]
        fitted = _fit(x, y, labels, settings, sizes)
        by_fold = []
        for fold, (low, high) in enumerate(pairwise(accumulate(sizes, initial=0))):
            by_fold.append(score_all(_predict(fitted, x[:, low:high], fold), y[low:high], labels))
    return np.mean(by_fold, axis=0)


def fold_order(
    labels: NDArray[np.generic], folds: int, kind: str, seed: int
) -> tuple[NDArray[np.int64], list[int]]:
    """Examples in the order of their folds, and the folds' sizes; every class is spread evenly over the
    folds."""
    if not 2 <= folds <= len(labels):
        raise HeadwiseError(
            f"folds={folds}: expected 2 to {len(labels)}, the number of training and validation examples "
            "together"
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    if KINDS[kind].one_class:
        order = order[np.argsort(labels[order], kind="stable")]
    rows = [np.sort(order[fold::folds]) for fold in range(folds)]
    return np.concatenate(rows), [*map(len, rows)]


def score_all(predictions: Tensor, labels: NDArray[np.generic], task: Labels) -> NDArray[np.float64]:
    """The metric that chooses, of predictions (sets, strengths, examples): (sets, strengths)."""
    if task.chooser == "accuracy":
        right = predictions == torch.from_numpy(labels).to(predictions.device)
        accuracies: NDArray[np.float64] = right.double().mean(-1).cpu().numpy()
        return accuracies
    rows = predictions.flatten(0, 1).cpu().numpy()
    scores = [metrics.score(task.chooser, task.kind, row, labels) for row in rows]
    return np.reshape(scores, predictions.shape[:2])


def _fit(
    x: Tensor,
    y: NDArray[np.generic],
    labels: Labels,
    settings: Probe,
    folds: Sequence[int] | None,
    strengths: Sequence[float] | None = None,
) -> Fit | RidgeFit:
    strengths = strengths or settings.strengths
    target = torch.from_numpy(np.asarray(y)).to(x.device)
    if KINDS[labels.kind].numbers:
        return _checked(fit_ridge(x, target, strengths, folds=folds), strengths)
    fitted = fit(x, target, strengths, classes=labels.classes, folds=folds, tolerance=settings.tolerance)
    unfinished = int((~(fitted.lengths <= settings.tolerance)).sum())
    if unfinished:
        warnings.warn(
            f"{unfinished} of {fitted.lengths.numel()} probes did not reach the tolerance "
            f"{settings.tolerance}",
            stacklevel=3,
        )
    return _checked(fitted, strengths)


def _checked(fitted: Probed, strengths: Sequence[float]) -> Probed:
    """Fitted probes, if their weights are numbers.

    Raises:
        HeadwiseError: names the first that has others.
    """
    wrong = ~fitted.weights.isfinite().flatten(3).all(-1)  # (sets, folds, strengths)
    if wrong.any():
        number, _, strength = wrong.nonzero()[0].tolist()
        raise HeadwiseError(
            f"{int(wrong.sum())} of {wrong.numel()} probes have weights that are NaN or infinite, first that "
            f"of feature set {number} at L2 strength {strengths[strength]:g}: scale the features, or give "
            "larger strengths"
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
