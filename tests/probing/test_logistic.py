"""The batched probes against scikit-learn, one problem at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.linear_model import LogisticRegression

from headwise.errors import HeadwiseError
from headwise.probing._logistic import Fit, fit
from headwise.probing._solver import minimise


def planted(
    classes: int, sets: int = 2, examples: int = 600, dim: int = 8, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Feature sets with means far from zero and unequal scales, some of which tell the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (examples,), generator=generator)
    centres = torch.randn(sets, classes, dim, generator=generator) * torch.linspace(0, 1, sets)[:, None, None]
    noise = torch.randn(sets, examples, dim, generator=generator)
    return (centres[:, labels] + noise) * torch.logspace(-1.5, 0.5, dim) + 3.0, labels


def oracle(x: torch.Tensor, y: torch.Tensor, strength: float) -> LogisticRegression:
    model = LogisticRegression(C=1 / (len(y) * strength), tol=1e-9, max_iter=1000, solver="newton-cholesky")
    return model.fit(x.double().numpy(), y.numpy())


def assert_equal_to(model: LogisticRegression, found: Fit, place: tuple[int, int, int], rtol: float) -> None:
    weights, bias = found.weights[place].numpy(), found.bias[place].numpy()
    expected = model.intercept_ - (
        model.intercept_.mean() if len(bias) > 1 else 0
    )  # a softmax' biases are free up to a constant
    scale = np.abs(model.coef_).max() + 1e-3
    np.testing.assert_allclose(weights / scale, model.coef_ / scale, atol=rtol)
    np.testing.assert_allclose(bias - (bias.mean() if len(bias) > 1 else 0), expected, atol=5 * rtol * scale)


@pytest.mark.parametrize("classes", [2, 6, 20])
def test_coefficients_equal_scikit_learn(classes: int) -> None:
    x, y = planted(classes)
    strengths = [1e-4, 1e-2, 1e-1]
    found = fit(x, y, strengths, tolerance=1e-6)
    assert found.lengths.max() <= 1e-6
    for number in range(len(x)):
        for i, strength in enumerate(strengths):
            assert_equal_to(oracle(x[number], y, strength), found, (number, 0, i), 1e-3)


def test_a_thousand_classes_equal_scikit_learn() -> None:
    x, y = planted(1000, sets=1, examples=1500, dim=6)
    y = torch.cat([torch.arange(1000), y[1000:]])  # every class occurs
    found = fit(x, y, [1e-2], tolerance=1e-6)
    model = LogisticRegression(C=1 / (len(y) * 1e-2), tol=1e-7, max_iter=2000).fit(
        x[0].double().numpy(), y.numpy()
    )
    assert_equal_to(model, found, (0, 0, 0), 1e-2)
    ours = (found.classes(x)[0, 0] == y).float().mean()
    assert abs(ours - model.score(x[0].numpy(), y.numpy())) < 0.003


@pytest.mark.parametrize("classes", [2, 6, 20])
def test_default_tolerance_gives_scikit_learns_accuracy(classes: int) -> None:
    x, y = planted(classes, examples=3000, sets=3)
    train, test = x[:, :1500], x[:, 1500:]
    found = fit(train, y[:1500], [1e-5, 1e-3, 1e-1])
    ours = (found.classes(test) == y[1500:]).float().mean(-1)
    for number in range(3):
        for i, strength in enumerate([1e-5, 1e-3, 1e-1]):
            theirs = oracle(train[number], y[:1500], strength).score(test[number].numpy(), y[1500:].numpy())
            assert abs(ours[number, i] - theirs) <= 0.003


@pytest.mark.parametrize("classes", [2, 3])
def test_folds_equal_fits_on_the_other_examples(classes: int) -> None:
    x, y = planted(classes, examples=301)
    sizes = [60, 60, 60, 60, 61]
    found = fit(x, y, [1e-3, 1e-1], folds=sizes, tolerance=1e-6)
    start = 0
    for fold, size in enumerate(sizes):
        kept = torch.ones(301, dtype=torch.bool)
        kept[start : start + size] = False
        alone = fit(x[:, kept], y[kept], [1e-3, 1e-1], tolerance=1e-6)
        torch.testing.assert_close(found.weights[:, fold], alone.weights[:, 0], rtol=1e-3, atol=2e-3)
        start += size


def test_separable_data_converges_in_single_and_double_precision() -> None:
    x = torch.randn(1, 400, 4, generator=torch.Generator().manual_seed(1))
    y = (x[0, :, 0] > 0).long()
    for tolerance in (1e-3, 1e-7):
        found = fit(x * 1e-2, y, [1e-9, 1e-5], tolerance=tolerance)
        assert found.lengths.max() <= tolerance
    assert (found.classes(x * 1e-2)[0, 0] == y).float().mean() > 0.99


def test_threads_and_company_do_not_change_the_result() -> None:
    x, y = planted(3, sets=5)
    alone = fit(x[3:4], y, [1e-3], tolerance=1e-5)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        together = fit(x, y, [1e-3], tolerance=1e-5)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(alone.weights[0], together.weights[3], rtol=1e-3, atol=1e-4)


def test_a_class_that_a_fold_never_sees_and_constant_features() -> None:
    x, y = planted(3, sets=1, examples=90)
    y[:30], y[30:] = 2, y[30:] % 2  # class 2 only in the first fold
    x[..., 0] = 1.0
    found = fit(x, y, [1e-2], folds=[30, 60])
    assert torch.isfinite(found.weights).all()
    assert (found.classes(x, fold=0)[0, 0] != 2).all()


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), dim=st.integers(1, 6))
def test_solver_finds_the_minimum_of_quadratics(seed: int, dim: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(4, dim, dim, generator=generator, dtype=torch.float64)
    matrix = root @ root.mT + torch.eye(dim) * 0.1
    target = torch.randn(4, dim, generator=generator, dtype=torch.float64)
    found = minimise(
        torch.zeros_like(target),
        lambda points, active: torch.einsum("pij,pj->pi", matrix[active], points - target[active]),
        lambda vectors, active: vectors,
        tolerance=1e-8,
    )
    torch.testing.assert_close(found.points, target, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("strengths", "folds", "message"),
    [
        ([0.0], None, "must be positive"),
        ([], None, "must be positive"),
        ([1.0], [10, 10], "add up"),
        ([1.0], [600], "at least two"),
    ],
)
def test_wrong_settings_are_named(strengths: list[float], folds: list[int] | None, message: str) -> None:
    x, y = planted(2)
    with pytest.raises(HeadwiseError, match=message):
        fit(x, y, strengths, folds=folds)


def test_infinite_features_are_refused() -> None:
    x, y = planted(2)
    x[0, 3, 2] = float("inf")
    with pytest.raises(HeadwiseError, match="infinite"):
        fit(x, y, [1.0])
