"""Closed-form ridge against scikit-learn."""

import numpy as np
import torch
from sklearn.linear_model import Ridge

from headwise.probing._ridge import fit_ridge


def data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 200, 7, generator=generator) * torch.logspace(-2, 1, 7) + 5
    y = x[1] @ torch.randn(7, generator=generator) + torch.randn(200, generator=generator) + 100
    return x, y


def test_equals_scikit_learn_on_every_set_fold_and_strength() -> None:
    x, y = data()
    sizes, strengths = [50, 70, 80], [1e-5, 1e-2, 1.0]
    found = fit_ridge(x, y, strengths, folds=sizes)
    start = 0
    for fold, size in enumerate(sizes):
        kept = np.r_[0:start, start + size : 200]
        for i, strength in enumerate(strengths):
            for number in range(3):
                model = Ridge(alpha=len(kept) * strength).fit(
                    x[number, kept].double().numpy(), y[kept].double().numpy()
                )
                np.testing.assert_allclose(
                    found.weights[number, fold, i].numpy(), model.coef_, rtol=2e-3, atol=2e-4
                )
                np.testing.assert_allclose(
                    found.predictions(x[:, :20], fold)[number, i].numpy(),
                    model.predict(x[number, :20].numpy()),
                    rtol=1e-4,
                )
        start += size


def test_one_fit_on_all_examples() -> None:
    x, y = data(1)
    found = fit_ridge(x.half(), y, [0.1])
    model = Ridge(alpha=200 * 0.1).fit(x[1].half().double().numpy(), y.double().numpy())
    np.testing.assert_allclose(
        found.predictions(x.half().float())[1, 0].numpy(),
        model.predict(x[1].half().double().numpy()),
        rtol=1e-4,
    )
