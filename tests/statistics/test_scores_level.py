"""Agreement of head scores over seeds, and standard errors of Shapley values and of probes."""

import numpy as np
import xarray as xr
from level import DRAWS, LEAST_COVERED, covered
from scipy import stats

from headwise.scoring import compare_scores


def test_the_coverage_of_agreement_over_seeds() -> None:
    """Two estimators of 32 heads in layers that resemble one another, eight seeds; the truth is their mean agreement over many seeds."""
    rng = np.random.default_rng(0)
    studies, seeds = DRAWS, 8
    layer, head = rng.normal(size=(8, 1)), rng.normal(size=(8, 4))  # what this model's layers and heads are, in every seed
    own = rng.normal(size=(2, studies * seeds, 8, 4))
    shared = layer + head + 0.5 * rng.normal(size=(studies * seeds, 8, 4))
    both = shared + 0.7 * own
    rows = []
    for study in range(studies):
        part = slice(study * seeds, (study + 1) * seeds)
        arrays = {
            name: xr.DataArray(values[part], dims=("seed", "layer", "head"), attrs={"sense": "magnitude"})
            for name, values in zip("ab", both, strict=True)
        }
        rows.append(compare_scores(arrays).iloc[0])
    for name in ("spearman", "overlap"):
        values = np.array([row[name] for row in rows])
        low, high = (np.array([row[f"{name}_{side}"] for row in rows]) for side in ("low", "high"))
        assert covered(low, high, values.mean()) >= LEAST_COVERED
        chance = rows[0]["chance"] if name == "overlap" else 0.0
        assert (low > chance).mean() >= 0.8  # agreement above chance is seen
    assert stats.sem(values) < 0.01  # the mean over all studies is a truth to measure by
