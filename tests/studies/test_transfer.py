"""The transfer tables and the comparison of methods over source models; its level: tests/statistics."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from headwise.errors import HeadwiseError
from headwise.studies._transfer import compare_transfers, difference, summary


def scores(
    effect: float, sources: int = 6, seeds: int = 12, spread: float = 0.0, rng: int = 0
) -> pd.DataFrame:
    """Two methods whose scores share a source effect and a seed effect; the second is better by `effect`, differing by source."""
    random = np.random.default_rng(rng)
    rows = []
    shared = random.normal(0, 0.1, (sources, seeds))
    for method, gain in (("plain", 0.0), ("iat", effect)):
        for source in range(sources):
            bonus = gain + random.normal(0, spread)
            for seed in range(seeds):
                score = 0.6 + shared[source, seed] + bonus + random.normal(0, 0.01)
                rows.append(
                    {
                        "method": method,
                        "source": source,
                        "task": "t",
                        "shots": 4,
                        "seed": seed,
                        "score": score,
                    }
                )
    return pd.DataFrame(rows)


def test_summary_is_mean_and_sd_in_percent() -> None:
    table = pd.DataFrame(
        [
            {"method": "m", "source": s, "task": "t", "shots": 4, "seed": s, "score": v}
            for s, v in enumerate((0.5, 0.7))
        ]
    )
    row = summary(table).iloc[0]
    assert (row["mean"], row["sd"], row["runs"], row["sources"]) == (
        pytest.approx(60),
        pytest.approx(100 * np.sqrt(0.02)),
        2,
        2,
    )


def test_a_planted_gain_is_found_and_measured() -> None:
    row = compare_transfers(scores(0.05), "plain").iloc[0]
    assert row["difference"] == pytest.approx(5, abs=1)
    assert row["low"] < 5 < row["high"]
    assert row["p"] == pytest.approx(2 / 64)  # all six sources gain: the smallest p that six sign flips allow
    assert row["q"] == pytest.approx(row["p"])
    assert (row["unit"], row["sources"], row["seeds"], row["note"]) == ("source model", 6, 12, "")


def test_pairing_makes_the_interval_narrower_than_the_spread_of_scores() -> None:
    row = compare_transfers(scores(0.0), "plain").iloc[0]
    assert row["high"] - row["low"] < 2.0  # the scores themselves vary by ten points


def test_few_sources_give_differences_and_an_interval_but_no_p() -> None:
    row = compare_transfers(scores(0.05, sources=3), "plain").iloc[0]
    assert np.isnan(row["p"])
    assert np.isnan(row["q"])
    assert row["difference"] == pytest.approx(5, abs=1)
    assert row["low"] < 5 < row["high"]
    assert row["note"] == "no p: 3 source models of each method, 6 are needed"
    one = compare_transfers(scores(0.05, sources=1), "plain").iloc[0]
    assert np.isnan(one[["p", "low", "high"]].astype(float)).all()
    assert one["note"].startswith("no p: 1 source model of")


def test_seeds_of_few_models_do_not_pass_for_models() -> None:
    """More few-shot seeds of the same sources, which differ, do not make the interval narrow."""
    few, many = (
        compare_transfers(scores(0.0, sources=3, seeds=n, spread=0.03, rng=1), "plain").iloc[0]
        for n in (10, 300)
    )
    assert many["high"] - many["low"] > 0.5 * (few["high"] - few["low"])


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
def test_p_is_the_larger_of_sign_flips_and_t(alternative) -> None:  # type: ignore[no-untyped-def]
    """Against all 256 flips one by one, and scipy's t-test; gains and losses, small and large ones."""
    rng, larger = np.random.default_rng(0), set()
    for mean in np.linspace(-1, 1, 20):
        gains = rng.normal(mean, 1.0, 8)
        sums = np.array([np.dot(signs, gains) for signs in product((1, -1), repeat=8)])
        flips = (
            np.mean(np.abs(sums) >= abs(gains.sum()) - 1e-9)
            if alternative == "two-sided"
            else np.mean(sums >= gains.sum() - 1e-9)
        )
        t = scipy.stats.ttest_1samp(gains, 0, alternative=alternative).pvalue
        found = difference(gains[:, None], alternative)
        assert found["p"] == pytest.approx(max(flips, t))
        assert found["difference"] == pytest.approx(100 * gains.mean())
        larger.add((bool(t > flips), bool(gains.mean() > 0)))
    assert {(True, True), (True, False)} <= larger


def test_missing_runs_and_methods_are_named() -> None:
    table = scores(0.0)
    with pytest.raises(HeadwiseError, match="no scores of the baseline 'mtl'; there are: plain, iat"):
        compare_transfers(table, "mtl")
    with pytest.raises(HeadwiseError, match="iat lacks some seeds"):
        compare_transfers(table.drop(index=table.index[-1]), "plain")
    with pytest.raises(HeadwiseError, match="5 sources with 12 seeds"):
        compare_transfers(table[(table["method"] == "plain") | (table["source"] < 5)], "plain")
