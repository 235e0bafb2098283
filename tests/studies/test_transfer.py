"""The nested paired bootstrap and the transfer tables."""

import numpy as np
import pandas as pd
import pytest

from headwise.errors import HeadwiseError
from headwise.studies.transfer import compare, nested_bootstrap, summary


def scores(effect: float, sources: int = 4, seeds: int = 12, spread: float = 0.0, rng: int = 0) -> pd.DataFrame:
    """Two methods whose scores share a source effect and a seed effect; the second is better by `effect`, differing by source."""
    random = np.random.default_rng(rng)
    rows = []
    shared = random.normal(0, 0.1, (sources, seeds))
    for method, gain in (("plain", 0.0), ("iat", effect)):
        for source in range(sources):
            bonus = gain + random.normal(0, spread)
            for seed in range(seeds):
                score = 0.6 + shared[source, seed] + bonus + random.normal(0, 0.01)
                rows.append({"method": method, "source": source, "task": "t", "shots": 4, "seed": seed, "score": score})
    return pd.DataFrame(rows)


def test_summary_is_mean_and_sd_in_percent() -> None:
    table = pd.DataFrame(
        [{"method": "m", "source": s, "task": "t", "shots": 4, "seed": s, "score": v} for s, v in enumerate((0.5, 0.7))]
    )
    row = summary(table).iloc[0]
    assert (row["mean"], row["sd"], row["runs"], row["sources"]) == (pytest.approx(60), pytest.approx(100 * np.sqrt(0.02)), 2, 2)


def test_a_planted_gain_is_found_and_measured() -> None:
    row = compare(scores(0.05), "plain").iloc[0]
    assert row["difference"] == pytest.approx(5, abs=1)
    assert row["low"] < 5 < row["high"] + 1
    assert row["p"] < 0.01
    assert row["q"] == pytest.approx(row["p"])


def test_pairing_makes_the_interval_narrower_than_the_spread_of_scores() -> None:
    row = compare(scores(0.0), "plain").iloc[0]
    assert row["high"] - row["low"] < 2.0  # the scores themselves vary by ten points


def test_seeds_of_few_models_do_not_pass_for_models() -> None:
    """Under the null with real differences between source models, seeds alone would reject nearly always; nesting does not."""
    naive = nested = 0
    studies = 60
    for study in range(studies):
        table = scores(0.0, sources=6, seeds=10, spread=0.03, rng=study)
        nested += compare(table, "plain", draws=499)["p"].item() < 0.05
        pivot = table.pivot(index=["source", "seed"], columns="method", values="score")
        flat = (pivot["iat"] - pivot["plain"]).to_numpy()[None]
        means = nested_bootstrap(flat, 499, 0)
        naive += 2 * min((means <= 0).mean(), (means >= 0).mean()) < 0.05
    assert naive / studies > 0.4
    assert nested / studies < 0.25  # six clusters: a bootstrap is somewhat liberal, but no longer blind


def test_fewer_than_three_sources_give_no_p_value() -> None:
    row = compare(scores(0.05, sources=2), "plain").iloc[0]
    assert np.isnan(row["p"])
    assert np.isnan(row["q"])
    assert row["difference"] == pytest.approx(5, abs=1)


def test_missing_runs_and_methods_are_named() -> None:
    table = scores(0.0)
    with pytest.raises(HeadwiseError, match="no scores of the baseline 'mtl'; there are: plain, iat"):
        compare(table, "mtl")
    with pytest.raises(HeadwiseError, match="iat lacks some seeds"):
        compare(table.drop(index=table.index[-1]), "plain")
    with pytest.raises(HeadwiseError, match="3 sources with 12 seeds"):
        compare(table[(table["method"] == "plain") | (table["source"] < 3)], "plain")
