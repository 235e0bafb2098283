"""`probe(estimator=...)`: any object with fit and predict stands in for the built-in probes."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from test_probes import PLACE, planted_model, sentences

from headwise import probing
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.probing import Probe
from headwise.probing._fits import Labels, choose, fold_order
from headwise.tasks import Task


class Nearest:
    """A class of the user's own, which knows nothing of headwise or scikit-learn: the nearest class mean."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        self.means = np.stack([x[y == label].mean(0) for label in (0, 1)])

    def predict(self, x: np.ndarray) -> np.ndarray:
        return ((x[:, None] - self.means) ** 2).sum(-1).argmin(1)


def parts(seed: int = 0) -> tuple[dict[str, torch.Tensor], np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, 150, 4)).astype(np.float32)
    y = (x[1, :, 0] + 0.5 * rng.normal(size=150) > 0).astype(np.int64)
    return {
        "train": torch.tensor(x[:, :80]),
        "validation": torch.tensor(x[:, 80:110]),
        "test": torch.tensor(x[:, 110:]),
    }, y


def test_it_is_fitted_on_train_scored_on_validation_and_asked_on_test() -> None:
    x, y = parts()
    labels = Labels("classes", "accuracy", 2, y[:80], y[80:110], y[110:])
    found = choose(x.__getitem__, labels, Probe(estimator=LogisticRegression(C=0.5)))
    for number in range(3):
        by_hand = LogisticRegression(C=0.5).fit(x["train"][number].numpy(), y[:80])
        assert found.validation[number] == by_hand.score(x["validation"][number].numpy(), y[80:110])
        np.testing.assert_array_equal(found.predictions[number], by_hand.predict(x["test"][number].numpy()))
    assert np.isnan(found.strengths).all()


def test_with_folds_it_is_scored_on_each_and_fitted_again_on_all() -> None:
    x, y = parts(1)
    target = y + np.linspace(0, 1, 150)
    labels = Labels("number", "pearson", 0, target[:80], target[80:110], target[110:])
    found = choose(x.__getitem__, labels, Probe(estimator=Ridge(2.0), folds=4, seed=3))
    both = torch.cat([x["train"], x["validation"]], 1).numpy()
    order, sizes = fold_order(target[:110], 4, "number", 3)
    for number in range(3):
        scores = []
        for part in np.split(order, np.cumsum(sizes)[:-1]):
            rest = np.setdiff1d(np.arange(110), part)
            said = Ridge(2.0).fit(both[number][rest], target[rest]).predict(both[number][part])
            scores.append(np.corrcoef(said, target[part])[0, 1])
        assert found.validation[number] == pytest.approx(np.mean(scores), abs=1e-6)
        whole = Ridge(2.0).fit(both[number], target[:110])
        np.testing.assert_allclose(
            found.predictions[number], whole.predict(x["test"][number].numpy()), rtol=1e-5
        )


def test_probes_of_a_users_own_find_what_is_planted() -> None:
    model, tokenizer = planted_model()
    rows = {split: sentences(120, seed) for seed, split in enumerate(("train", "validation", "test"))}
    task = Task("planted", data=rows, kind="classes", classes=["0", "1"])
    found = probing.probe(model, task, tokenizer=tokenizer, estimator=Nearest(), controls=(), quiet=True)
    assert found.top(1) == HeadSet([PLACE])
    assert found.scores.values[0][PLACE] > 0.95


@pytest.mark.parametrize("given", [object(), "logistic"])
def test_what_cannot_fit_or_predict_is_refused(given: Any) -> None:
    with pytest.raises(HeadwiseError, match=r"estimator: a \w+ has no fit\(x, y\) and predict\(x\)"):
        probing.probe(None, [], estimator=given)
