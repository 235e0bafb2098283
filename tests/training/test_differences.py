"""Differences between methods in a training study, paired by seed, against scipy's paired t."""

import numpy as np
import pandas as pd
from scipy import stats

from headwise.studies._training_tables import differences_of


def rows(seeds: int) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    found = []
    for seed in range(seeds):
        shared = draw.normal(0.8, 0.05)
        for method, gain in (("multi-task", 0.0), ("iat", 0.01)):
            for task in ("a", "b"):
                score = shared + gain + draw.normal(0, 0.01)
                found.append(
                    {
                        "model": "m",
                        "sampling": "annealed",
                        "split": "validation",
                        "method": method,
                        "seed": seed,
                        "task": task,
                    }
                )
                found[-1]["score"] = score
    return pd.DataFrame(found)


def test_mean_and_interval_are_those_of_the_paired_t() -> None:
    scores = rows(8).sample(frac=1, random_state=0)  # whatever the order
    table = differences_of(scores).set_index("task")
    wide = 100 * scores.pivot(index="seed", columns=["method", "task"], values="score")
    pairs = {task: (wide["iat", task], wide["multi-task", task]) for task in ("a", "b")}
    pairs["average"] = wide["iat"].mean(axis=1), wide["multi-task"].mean(axis=1)
    for task, (one, other) in pairs.items():
        interval = stats.ttest_rel(one, other).confidence_interval(0.95)
        np.testing.assert_allclose(
            table.loc[task, ["difference", "low", "high"]].astype(float), [(one - other).mean(), *interval]
        )
    assert (table["seeds"] == 8).all()


def test_seeds_that_one_method_lacks_are_left_out_and_one_seed_has_no_interval() -> None:
    scores = rows(3)
    some = scores[~((scores["method"] == "iat") & (scores["seed"] > 0))]
    table = differences_of(some)
    assert (table["seeds"] == 1).all()
    assert table["low"].isna().all()
    assert differences_of(scores[scores["method"] == "iat"]).empty  # nothing to compare with
