"""Figures of probing and of task similarity show the numbers they were given."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from headwise.figures import _probing as probing, _similarity as similarity, _stemcells as stemcells, _training as training

SCORES = xr.DataArray(
    np.random.default_rng(0).random((2, 3, 4)), dims=("task", "layer", "head"), coords={"task": ["Depth", "Tense"]}
)


@pytest.mark.parametrize("sort", [False, True])
def test_heat_maps_show_every_head_or_each_layer_best_first(sort: bool) -> None:
    figure = probing.heatmaps(SCORES, sort=sort, shared=True)
    for ax, task in zip(figure.axes, ("Depth", "Tense"), strict=False):
        expected = SCORES.sel(task=task).to_numpy()
        expected = np.sort(expected, axis=1)[:, ::-1] if sort else expected
        np.testing.assert_array_equal(ax.collections[0].get_array(), expected)
        assert ax.get_title() == task
        assert ax.collections[0].get_clim() == (SCORES.min(), SCORES.max())
        assert (ax.get_xlabel() == "heads, best first") == sort


def test_before_and_after_share_a_range_for_each_task() -> None:
    figure = probing.before_and_after(SCORES, {"last layer": SCORES + 0.5, "top heads": SCORES - 0.5})
    drawn = [ax for ax in figure.axes if ax.get_title()]
    names = ("before", "last layer", "top heads")
    assert [ax.get_title() for ax in drawn] == [f"{task}: {name}" for task in ("Depth", "Tense") for name in names]
    for ax, task in zip(drawn, np.repeat(["Depth", "Tense"], 3), strict=True):
        here = SCORES.sel(task=task)
        assert ax.collections[0].get_clim() == pytest.approx((float(here.min()) - 0.5, float(here.max()) + 0.5))


def test_the_scatter_has_a_mark_a_head_and_says_r() -> None:
    heads = pd.DataFrame({"layer": [0, 0, 1, 1], "syntactic": [0.1, 0.2, 0.4, 0.3], "semantic": [0.3, 0.1, 0.5, 0.6]})
    ax = probing.syntactic_semantic(heads).axes[0]
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), heads[["syntactic", "semantic"]])
    np.testing.assert_array_equal(ax.collections[0].get_array(), heads["layer"])
    assert ax.get_title() == f"r = {np.corrcoef(heads['syntactic'], heads['semantic'])[0, 1]:.2f}"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("syntactic score", "semantic score")


def test_the_sweep_has_one_standard_error_and_the_best_layer() -> None:
    rows = pd.DataFrame({"task": "Depth", "n": [4, 1, 2], "test": [0.6, 0.3, 0.5], "stderr": [0.01, 0.02, 0.03]})
    layers = pd.DataFrame({"task": ["Depth", "Depth"], "embedding": ["last layer", "best layer"], "test": [0.2, 0.4]})
    ax = probing.sweep(rows, layers).axes[0]
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[1, 0.3], [2, 0.5], [4, 0.6]])
    np.testing.assert_allclose(ax.collections[0].get_segments()[0][:, 1], [0.3 - 0.02, 0.3 + 0.02])
    assert ax.get_ylabel() == "test ± 1 standard error"
    assert [line.get_ydata()[0] for line in ax.lines if line.get_label() == "best layer"] == [0.4]


def test_similarity_against_dissociation_has_a_mark_a_pair_and_the_line() -> None:
    pairs = pd.DataFrame(
        {"task": ["a", "a", "b"], "other": ["b", "c", "c"], "DSE": [0.1, 0.2, 0.4], "dissociation": [3.0, 5.0, 4.0]}
    )
    pairs["same_paradigm"] = [True, False, True]
    tests = pd.DataFrame(
        {"similarity": ["DSE", "DSE"], "kind": ["spearman", "pearson"], "correlation": [0.1, 0.37], "p": [0.9, 0.21]}
    )
    ax = similarity.link_scatter(pairs, tests, ["DSE"]).axes[0]
    same, other = (part.get_offsets().tolist() for part in ax.collections)
    assert same == [[0.1, 3.0], [0.4, 4.0]]
    assert other == [[0.2, 5.0]]
    assert ax.get_title().startswith("DSE: r = 0.37")
    assert "0.210" in ax.get_title()
    slope, level = np.polyfit(pairs["DSE"], pairs["dissociation"], 1)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [slope * 0.1 + level, slope * 0.4 + level])
    assert [text.get_text() for text in ax.texts] == ["a–b", "a–c", "b–c"]


def test_similarity_matrices_write_their_values() -> None:
    matrix = xr.DataArray([[1.0, 0.25], [0.25, 1.0]], dims=("task", "other"), coords={"task": ["a", "b"], "other": ["a", "b"]})
    ax = similarity.similarity_matrices({"CRA": matrix}).axes[0]
    assert [text.get_text() for text in ax.texts] == ["1.00", "0.25", "0.25", "1.00"]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["a", "b"]
    assert ax.get_title() == "CRA"


def test_what_has_no_spread_or_interval_has_no_bar() -> None:
    """One run has no standard deviation, and an infinite interval none to draw; a bar of length 0 would say that all is known."""
    one = pd.DataFrame({"task": "a", "method": "iat", "shots": [4, 16], "mean": [50.0, 60.0], "sd": [np.nan, 2.0]})
    lengths = [np.ptp(part[:, 1]) for part in training.transfer(one).axes[0].collections[0].get_segments() if len(part)]
    assert [length for length in lengths if not np.isnan(length)] == pytest.approx([4.0])
    effects = pd.DataFrame(
        {"gates": "l0", "effect": ["a", "b"], "mean": [0.01, 0.02], "low": [-np.inf, 0.01], "high": [np.inf, 0.03]}
    )
    lengths = [np.ptp(part[:, 0]) for part in stemcells.effects(effects).axes[0].collections[0].get_segments() if len(part)]
    assert [length for length in lengths if not np.isnan(length)] == pytest.approx([2.0])
