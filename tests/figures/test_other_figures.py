"""Figures of probing and of task similarity show the numbers they were given."""

import itertools

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from headwise.figures import (
    COLOURS,
    _estimators as estimators,
    _probing as probing,
    _similarity as similarity,
    _stemcells as stemcells,
    _training as training,
)

SCORES = xr.DataArray(
    np.random.default_rng(0).random((2, 3, 4)),
    dims=("task", "layer", "head"),
    coords={"task": ["Depth", "Tense"]},
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
    assert [ax.get_title() for ax in drawn] == [
        f"{task}: {name}" for task in ("Depth", "Tense") for name in names
    ]
    for ax, task in zip(drawn, np.repeat(["Depth", "Tense"], 3), strict=True):
        here = SCORES.sel(task=task)
        assert ax.collections[0].get_clim() == pytest.approx(
            (float(here.min()) - 0.5, float(here.max()) + 0.5)
        )


def test_the_scatter_has_a_mark_a_head_and_says_r() -> None:
    heads = pd.DataFrame(
        {"layer": [0, 0, 1, 1], "syntactic": [0.1, 0.2, 0.4, 0.3], "semantic": [0.3, 0.1, 0.5, 0.6]}
    )
    ax = probing.syntactic_semantic(heads).axes[0]
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), heads[["syntactic", "semantic"]])
    np.testing.assert_array_equal(ax.collections[0].get_array(), heads["layer"])
    assert ax.get_title() == f"r = {np.corrcoef(heads['syntactic'], heads['semantic'])[0, 1]:.2f}"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("syntactic score", "semantic score")


def test_the_sweep_has_its_intervals_and_the_best_layer() -> None:
    bounds = {"low": [0.5, 0.2, np.nan], "high": [0.65, 0.45, np.nan]}
    rows = pd.DataFrame({"task": "Depth", "n": [4, 1, 2], "test": [0.6, 0.3, 0.5], **bounds})
    layers = pd.DataFrame(
        {"task": ["Depth", "Depth"], "embedding": ["last layer", "best layer"], "test": [0.2, 0.4]}
    )
    ax = probing.sweep(rows, layers).axes[0]
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[1, 0.3], [2, 0.5], [4, 0.6]])
    np.testing.assert_allclose(ax.collections[0].get_segments()[0][:, 1], [0.2, 0.45])
    assert ax.get_ylabel() == "test score"
    older = probing.sweep(rows.drop(columns=["low", "high"]).assign(stderr=0.01), layers).axes[0]
    assert not older.collections  # one standard error was no interval
    assert [line.get_ydata()[0] for line in ax.lines if line.get_label() == "best layer"] == [0.4]


def test_similarity_against_dissociation_has_a_mark_a_pair_and_the_line() -> None:
    pairs = pd.DataFrame(
        {
            "task": ["a", "a", "b"],
            "other": ["b", "c", "c"],
            "DSE": [0.1, 0.2, 0.4],
            "dissociation": [0.03, 0.05, 0.04],
        }
    )
    pairs["same_paradigm"] = [True, False, True]
    tests = pd.DataFrame(
        {
            "similarity": ["DSE", "DSE"],
            "kind": ["spearman", "pearson"],
            "correlation": [0.1, 0.37],
            "p": [0.9, 0.21],
        }
    )
    ax = similarity.link_scatter(pairs, tests, ["DSE"], "one-sided").axes[0]
    same, other = (part.get_offsets().tolist() for part in ax.collections)
    assert same == [[0.1, 3.0], [0.4, 4.0]]
    assert other == [[0.2, 5.0]]
    assert ax.get_title().startswith("DSE: r = 0.37")
    assert "one-sided Mantel p = 0.210" in ax.get_title()
    slope, level = np.polyfit(pairs["DSE"], 100 * pairs["dissociation"], 1)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [slope * 0.1 + level, slope * 0.4 + level])
    assert [text.get_text() for text in ax.texts] == ["a–b", "a–c", "b–c"]


def test_names_of_pairs_cover_neither_points_nor_each_other() -> None:
    """Ten pairs, some of them almost in one place, in five panels of two rows."""
    names, random = ["mnli", "qqp", "qnli", "ag_news", "sst2"], np.random.default_rng(0)
    pairs = pd.DataFrame([{"task": a, "other": b} for i, a in enumerate(names) for b in names[i + 1 :]])
    pairs["dissociation"] = [0.0, 0.001, 0.002, *random.uniform(0, 0.2, 7)]
    pairs["same_paradigm"] = [True, False] * 5
    metrics = ["A", "B", "C", "D", "E"]
    for metric in metrics:
        pairs[metric] = [0.8, 0.81, 0.8, *random.uniform(0, 0.8, 7)]
    tests = pd.DataFrame(
        {"similarity": metrics, "kind": "pearson", "correlation": -0.1, "p": [*[0.5] * 4, np.nan]}
    )
    figure = similarity.link_scatter(pairs, tests, metrics)
    figure.draw_without_rendering()
    assert len(figure.axes) == 6
    assert not figure.axes[5].axison
    assert figure.axes[4].get_title().endswith("too few tasks for a p")
    for ax in figure.axes[:5]:
        boxes = [text.get_window_extent() for text in ax.texts]
        assert len(boxes) == 10
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        frame, points = ax.get_window_extent(), np.vstack([part.get_offsets() for part in ax.collections])
        assert not any(box.contains(*place) for box in boxes for place in ax.transData.transform(points))
        assert all(
            frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            for box in boxes
        )


def test_lesion_curves_show_the_named_estimators_in_colour_and_all_others_in_grey() -> None:
    names = ["iat", "l0", "subset", "random"]
    table = pd.DataFrame(
        [
            {
                "estimator": name,
                "order": order,
                "fraction": share,
                "performance": 90 - 10 * share * (number + 1),
            }
            for number, name in enumerate(names)
            for order in ("most", "least")
            for share in (0.5, 0.0)
        ]
    )
    figure = estimators.curves(table, "accuracy", ["subset", "random"])
    for ax in figure.axes:
        assert ax.get_ylabel() == "accuracy (%)"
        lines = {tuple(line.get_ydata()): line for line in ax.lines}
        colours = {name: lines[90, 85 - 5 * number].get_color() for number, name in enumerate(names)}
        assert colours == {"iat": "0.7", "l0": "0.7", "subset": COLOURS[0], "random": COLOURS[7]}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["subset", "random", "2 others"]
    everyone = estimators.curves(table)
    assert [text.get_text() for text in everyone.legends[0].get_texts()] == names
    assert len({line.get_color() for line in everyone.axes[0].lines}) == 4


def test_similarity_matrices_write_their_values() -> None:
    matrix = xr.DataArray(
        [[1.0, 0.25], [0.25, 1.0]], dims=("task", "other"), coords={"task": ["a", "b"], "other": ["a", "b"]}
    )
    ax = similarity.similarity_matrices({"CRA": matrix}).axes[0]
    assert [text.get_text() for text in ax.texts] == ["1.00", "0.25", "0.25", "1.00"]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["a", "b"]
    assert ax.get_title() == "CRA"


def test_what_has_no_spread_or_interval_has_no_bar() -> None:
    """One run has no standard deviation, and an infinite interval none to draw; a bar of length 0 would say that all is known."""
    one = pd.DataFrame(
        {"task": "a", "method": "iat", "shots": [4, 16], "mean": [50.0, 60.0], "sd": [np.nan, 2.0]}
    )
    lengths = [
        np.ptp(part[:, 1])
        for part in training.transfer(one).axes[0].collections[0].get_segments()
        if len(part)
    ]
    assert [length for length in lengths if not np.isnan(length)] == pytest.approx([4.0])
    effects = pd.DataFrame(
        {
            "gates": "l0",
            "effect": ["a", "b"],
            "mean": [0.01, 0.02],
            "low": [-np.inf, 0.01],
            "high": [np.inf, 0.03],
        }
    )
    lengths = [
        np.ptp(part[:, 0])
        for part in stemcells.effects(effects).axes[0].collections[0].get_segments()
        if len(part)
    ]
    assert [length for length in lengths if not np.isnan(length)] == pytest.approx([2.0])
