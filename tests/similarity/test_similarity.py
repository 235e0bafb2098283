"""Each similarity against a hand calculation, identical models, planted differences, and other orders."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import pearsonr, spearmanr

from headwise.errors import HeadwiseError
from headwise.similarity import ahp, cra, dse, head_similarity, transfer_affinity

RNG = np.random.default_rng(0)


def vectors(noise: float = 0.5, sentences: int = 40, dim: int = 8) -> dict[str, np.ndarray]:
    shared = RNG.normal(size=(sentences, dim))
    return {
        name: shared + noise * k * RNG.normal(size=shared.shape) for k, name in enumerate(("a", "b", "c"))
    }


def test_dse_equals_a_hand_calculation() -> None:
    result = dse({"a": np.array([[1.0, 0.0], [1.0, 1.0]]), "b": np.array([[0.0, 2.0], [3.0, 3.0]])})
    assert result.sel(task="a", other="b").item() == pytest.approx((0.0 + 1.0) / 2)


def test_cra_equals_scipy_on_every_pair_of_sentences() -> None:
    v = vectors(sentences=7)
    result = cra(v)
    pairs = [(i, j) for i in range(7) for j in range(i)]
    rdm = {name: [1 - pearsonr(x[i], x[j]).statistic for i, j in pairs] for name, x in v.items()}
    for a in v:
        for b in v:
            assert result.sel(task=a, other=b).item() == pytest.approx(
                spearmanr(rdm[a], rdm[b]).statistic, abs=1e-12
            )


@pytest.mark.parametrize("metric", [dse, cra])
def test_one_for_identical_models_less_the_more_they_differ_and_no_matter_the_order(metric) -> None:  # type: ignore[no-untyped-def]
    v = vectors()
    result = metric(v)
    assert np.allclose(np.diag(result), 1.0)
    assert metric({"a": v["a"], "b": v["a"].copy()}).values == pytest.approx(np.ones((2, 2)))
    assert result.sel(task="a", other="b") > result.sel(task="a", other="c")
    order = RNG.permutation(40)
    assert np.allclose(metric({name: x[order] for name, x in v.items()}), result, atol=1e-12)


def test_vectors_of_other_sentences_or_sizes_are_refused() -> None:
    with pytest.raises(HeadwiseError, match="same sentences"):
        dse({"a": np.ones((3, 2)), "b": np.ones((4, 2))})
    with pytest.raises(HeadwiseError, match="one size"):
        dse({"a": np.ones((3, 2)), "b": np.ones((3, 4))})
    with pytest.raises(HeadwiseError, match="sentence 1 has a constant"):
        cra({"a": np.array([[1.0, 2.0], [3.0, 3.0], [0.0, 1.0]])})


def test_ahp_equals_a_hand_calculation_for_two_sources() -> None:
    # source x wins on 3 of 4 examples: w = 0.75, w/wᵀ = [[1, 3], [1/3, 1]], whose principal eigenvector is (3, 1).
    losses = {"t": {"x": np.array([0.1, 0.1, 0.1, 0.9]), "y": np.array([0.5, 0.5, 0.5, 0.5])}}
    assert transfer_affinity(losses, scale="sum").sel(target="t").values == pytest.approx([0.75, 0.25])
    assert transfer_affinity(losses).sel(target="t").values == pytest.approx([1.0, 1 / 3])


def test_a_source_that_always_wins_is_not_infinitely_better() -> None:
    """Win rates are clipped to 0.001 and 0.999, as in Zamir et al.; a target without itself as a source has no own entry."""
    losses = {"t": {"x": np.zeros(4), "y": np.ones(4)}, "x": {"y": np.ones(4), "t": np.zeros(4)}}
    found = transfer_affinity(losses, scale="sum")
    assert found.sel(source=["x", "y"], target="t").values == pytest.approx([0.999, 0.001])
    assert found.sel(source=["t", "y"], target="x").values == pytest.approx([0.999, 0.001])
    assert np.isnan(found.sel(source=["t"], target="t")).all()
    wider = transfer_affinity(losses, clip=(0.1, 0.9)).sel(target="t")
    assert wider.sel(source=["x", "y"]).values == pytest.approx([1.0, 1 / 9])
    with pytest.raises(HeadwiseError, match="every task as source and target"):
        ahp(losses)


def test_ahp_recovers_a_planted_order() -> None:
    quality = {"a": 0.0, "b": 0.4, "c": 0.8, "d": 1.2}
    losses = {t: {s: quality[s] + RNG.normal(size=500) for s in quality} for t in quality}
    affinity = transfer_affinity(losses)
    for target in quality:
        assert list(
            affinity.sel(target=target).sortby(affinity.sel(target=target), ascending=False).source.values
        ) == list("abcd")
    shuffled = {
        t: {s: losses[t][s][np.random.default_rng(1).permutation(500)] for s in reversed(list(quality))}
        for t in reversed(list(quality))
    }
    again = transfer_affinity(shuffled).sel(source=affinity.source, target=affinity.target)
    assert np.allclose(again, affinity)


def test_ahp_is_one_for_identical_models_and_symmetric() -> None:
    same = RNG.normal(size=50)
    assert ahp({t: dict.fromkeys("abc", same) for t in "abc"}).values == pytest.approx(np.ones((3, 3)))
    losses = {t: {s: RNG.normal(size=50) for s in "abc"} for t in "abc"}
    affinity, symmetric = transfer_affinity(losses), ahp(losses)
    assert symmetric.sel(task="a", other="b").item() == pytest.approx(
        (affinity.sel(source="a", target="b").item() + affinity.sel(source="b", target="a").item()) / 2
    )
    summed = transfer_affinity(losses, scale="sum")
    assert ahp(losses, scale="sum").sel(task="a", other="c").item() == pytest.approx(
        (summed.sel(source="a", target="c").item() + summed.sel(source="c", target="a").item()) / 2
    )
    assert np.allclose(summed.sum("source"), 1)


def test_ahp_says_what_is_wrong_with_the_losses() -> None:
    with pytest.raises(HeadwiseError, match="shapes"):
        transfer_affinity({"t": {"x": np.zeros(3), "y": np.zeros(4)}})
    with pytest.raises(HeadwiseError, match=r"NaN \(source y\)"):
        transfer_affinity({"t": {"x": np.zeros(3), "y": np.full(3, np.nan)}})


def scores(values: np.ndarray, names: str = "abc") -> xr.DataArray:
    return xr.DataArray(values, dims=("task", "layer", "head"), coords={"task": list(names)})


def test_head_similarity_equals_scipy_and_counts_overlap() -> None:
    values = RNG.random((3, 2, 5))
    values[:, 1, 4] = np.nan  # the second layer has four heads
    flat = values.reshape(3, -1)[:, :9]
    result = head_similarity(scores(values))
    assert result.sel(task="a", other="b").item() == pytest.approx(spearmanr(flat[0], flat[1]).statistic)
    top = [set(np.argsort(-row)[:3]) for row in flat]
    overlap = head_similarity(scores(values), "overlap", fraction=0.34)
    assert overlap.sel(task="a", other="c").item() == pytest.approx(len(top[0] & top[2]) / 3)
    assert np.allclose(np.diag(overlap), 1)


def test_head_similarity_averages_seeds_and_ranks_signed_scores_by_size() -> None:
    values = RNG.normal(size=(3, 4, 2, 5))  # (task, seed, layer, head)
    several = xr.DataArray(
        values,
        dims=("task", "seed", "layer", "head"),
        coords={"task": list("abc")},
        attrs={"sense": "signed"},
    )
    flat = values.mean(1).reshape(3, -1)
    for how, expected in (
        ("pearson", pearsonr(flat[0], flat[2]).statistic),
        ("cosine", flat[0] @ flat[2] / np.sqrt((flat[0] @ flat[0]) * (flat[2] @ flat[2]))),
        ("overlap", len(set(np.argsort(-abs(flat[0]))[:3]) & set(np.argsort(-abs(flat[2]))[:3])) / 3),
    ):
        found = head_similarity(several.transpose("head", "seed", "task", "layer"), how)
        assert found.sel(task="a", other="c").item() == pytest.approx(expected), how
    assert head_similarity(several).attrs["heads"] == 10


def test_head_similarity_refuses_what_cannot_be_compared() -> None:
    with pytest.raises(HeadwiseError, match="missing"):
        head_similarity(xr.DataArray(np.zeros((2, 2)), dims=("layer", "head")))
    with pytest.raises(HeadwiseError, match="same score"):
        head_similarity(scores(np.ones((3, 2, 2))))
