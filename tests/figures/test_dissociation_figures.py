"""Figures of a dissociation show the numbers of its tables."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from headwise.figures import _dissociation as draw
from headwise.figures._probing import heatmaps

TASKS = ["qqp", "ag", "sst2"]
MATRIX = pd.DataFrame(
    [[60.0, 95.0, 90.0], [97.0, 70.0, np.nan], [91.0, 92.0, 80.0]],
    index=[f"{t}†" for t in TASKS],
    columns=TASKS,
)


def words(texts) -> list[str]:
    return [text.get_text() for text in texts]


def test_a_lesion_matrix_shows_every_value_and_frames_the_own_lesion() -> None:
    figure = draw.lesion_matrix(MATRIX, "relative performance (%)", "at chance")
    ax, bar = figure.axes
    np.testing.assert_array_equal(ax.collections[0].get_array().filled(np.nan), MATRIX.to_numpy())
    assert words(ax.texts) == ["60.0", "95.0", "90.0", "97.0", "70.0", "91.0", "92.0", "80.0", "at chance"]
    assert ax.texts[-1].get_position() == (2, 1)  # the cell without a value says why
    assert words(ax.get_xticklabels()) == TASKS
    assert words(ax.get_yticklabels()) == [f"{task}†" for task in TASKS]
    assert [patch.get_xy() for patch in ax.patches] == [(i - 0.5, i - 0.5) for i in range(3)]
    assert (ax.get_xlabel(), ax.get_ylabel(), bar.get_ylabel()) == (
        "task",
        "heads silenced",
        "relative performance (%)",
    )


def test_overlap_leaves_the_diagonal_out() -> None:
    table = pd.DataFrame([[100.0, 25.0], [25.0, 100.0]], index=["a", "b"], columns=["a", "b"])
    ax = draw.overlap(table).axes[0]
    assert words(ax.texts) == ["25.0", "25.0"]
    assert np.isnan(np.diag(ax.collections[0].get_array().filled(np.nan))).all()
    assert table.loc["a", "a"] == 100  # the table itself is as it was


PAIRS = pd.DataFrame({
    "A": ["a", "a"], "B": ["b", "c"], "D_A": [12.0, -3.0], "D_B": [8.0, 5.0], "D": [10.0, 1.0], "D_low": [6.0, -2.0], "D_high": [13.0, 4.0],
})  # fmt: skip


@pytest.mark.parametrize("known", [True, False])
def test_pairs_show_d_with_its_interval_and_both_sides(known: bool) -> None:
    table = PAIRS if known else PAIRS.assign(D_low=np.nan, D_high=np.nan)
    ax = draw.pair_scores(table).axes[0]
    assert [bar.get_width() for bar in ax.patches] == [10.0, 1.0]
    lines = {line.get_label(): line for line in ax.lines}
    assert lines["D_A"].get_xdata().tolist() == [12.0, -3.0]
    assert lines["D_B"].get_xdata().tolist() == [8.0, 5.0]
    assert [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == ":"] == [
        10.0
    ]  # where a dissociation is distinct
    spans = [segment[:, 0].tolist() for part in ax.collections for segment in part.get_segments()]
    assert spans == ([[6.0, 13.0], [-2.0, 4.0]] if known else [])
    assert words(ax.get_yticklabels()) == ["a – b", "a – c"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first pair at the top
    assert ax.get_xlabel() == "dissociation (%)"


def boxes(texts):
    shown = [text for text in texts if text.get_text() and text.get_visible()]
    shown[0].figure.draw_without_rendering()
    return [text.get_window_extent() for text in shown]


def test_names_of_pairs_and_numbers_of_heads_do_not_run_together() -> None:
    names = ["subject_number", "object_number", "topic", "sentiment", "paraphrase"]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    numbers = dict.fromkeys(("D_A", "D_B", "D"), 3.0) | {"D_low": 1.0, "D_high": 5.0}
    table = pd.DataFrame([{"A": a, "B": b, **numbers} for a, b in pairs])
    places = boxes(draw.pair_scores(table).axes[0].get_yticklabels())
    assert not any(a.overlaps(b) for i, a in enumerate(places) for b in places[i + 1 :])
    scores = xr.DataArray(
        np.random.default_rng(0).random((5, 6, 12)), dims=("task", "layer", "head"), coords={"task": names}
    )
    for ax in heatmaps(scores, legend="importance").axes[:5]:
        places = boxes(ax.get_xticklabels())
        assert all(b.x0 - a.x1 > 2 for a, b in pairwise(places))  # pixels between two numbers


def test_maps_of_unlike_scales_share_one_legend() -> None:
    scores = xr.DataArray(
        np.arange(12.0).reshape(2, 2, 3) ** 2, dims=("task", "layer", "head"), coords={"task": ["a", "b"]}
    )
    first, second, bar = heatmaps(scores, legend="importance").axes
    for ax, task in ((first, "a"), (second, "b")):
        one = scores.sel(task=task).to_numpy()
        expected = (one - one.min()) / (one.max() - one.min())
        np.testing.assert_allclose(ax.collections[0].get_array(), expected)
    assert "importance" in bar.get_ylabel()


def test_heads_per_layer_are_bars_and_sigma_stands_above() -> None:
    table = pd.DataFrame(
        {"a": [1, 4], "b": [3, 0], "mean": [2.0, 2.0], "sigma": [1.0, 2.0]},
        index=pd.RangeIndex(2, name="layer"),
    )
    ax = draw.heads_per_layer(table).axes[0]
    assert [bar.get_height() for bar in ax.patches] == [1, 4, 3, 0]
    assert ax.lines[0].get_ydata().tolist() == [2.0, 2.0]
    assert ax.lines[0].get_linestyle() == "None"  # layers are not points of a curve
    assert words(ax.texts) == ["σ 1.0", "σ 2.0"]
    assert [text.xy for text in ax.texts] == [(0, 3), (1, 4)]


def test_score_maps_frame_chosen_heads_and_keep_layer_0_at_the_bottom() -> None:
    scores = xr.DataArray(
        np.arange(12.0).reshape(2, 2, 3), dims=("task", "layer", "head"), coords={"task": ["a", "b"]}
    )
    chosen = {"a": [(0, 0), (1, 2)], "b": []}
    figure = heatmaps(scores, chosen=chosen)
    for ax, task in zip(figure.axes, ("a", "b"), strict=False):
        assert ax.get_title() == task
        np.testing.assert_array_equal(ax.collections[0].get_array(), scores.sel(task=task))
        assert ax.get_ylim()[0] < ax.get_ylim()[1]
        assert [patch.get_xy() for patch in ax.patches] == [
            (head - 0.42, layer - 0.42) for layer, head in chosen[task]
        ]


def test_sweep_shows_d_of_every_share() -> None:
    table = pd.DataFrame(
        {
            "fraction": [0.1, 0.3],
            "D": [2.0, 9.0],
            "D_low": [1.0, 7.0],
            "D_high": [3.0, 11.0],
            "D_a": [4.0, 8.0],
        }
    )
    ax = draw.sweep(table).axes[0]
    lines = {line.get_label(): line for line in ax.lines}
    assert lines["D"].get_xydata().tolist() == [[10.0, 2.0], [30.0, 9.0]]
    assert lines["a"].get_ydata().tolist() == [4.0, 8.0]
    band = ax.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (1.0, 11.0)
    assert ax.get_xlabel() == "heads silenced (%)"


def test_nulls_hold_every_resplit_and_the_observed_d() -> None:
    null = np.linspace(-0.1, 0.1, 40)
    figure = draw.nulls({"a, b": (0.07, null, 0.15), "a, c": (0.0, np.array([]), float("nan"))})
    ax, empty = figure.axes
    assert sum(bar.get_height() for bar in ax.patches) == 40
    assert ax.lines[0].get_xdata()[0] == pytest.approx(7)
    assert ax.get_title() == "a, b\np = 0.15"
    assert not empty.patches
    assert empty.get_title() == "a, c\nno p"


def test_a_grid_of_models_and_methods_and_sweeps_of_training() -> None:
    grid = pd.DataFrame({"a–b": [5.0, 7.0], "average": [5.0, 7.0]}, index=["bert", "gpt2"])
    assert words(draw.matrix(grid, "D").axes[0].texts) == ["5.0", "5.0", "7.0", "7.0"]
    table = pd.DataFrame(
        {"model": ["m"] * 4, "method": ["iat", "iat", "multi-task", "multi-task"], "D": [6.0, 8.0, 1.0, 3.0]}
    )
    ax = draw.methods(table).axes[0]
    assert [bar.get_height() for bar in ax.patches] == [7.0, 2.0]
    assert [line.get_ydata().tolist() for line in ax.lines[:2]] == [[6.0, 8.0], [1.0, 3.0]]
    rows = [
        ("m", "iat", 0.3, 81.0, 0.5),
        ("m", "iat", 0.1, 80.0, np.nan),
        ("m", "multi-task", 0.0, 79.0, 0.1),
    ]
    swept = draw.training_sweep(
        pd.DataFrame(rows, columns=["model", "method", "alpha", "average", "sd"]), "alpha"
    ).axes[0]
    assert swept.lines[0].get_xydata().tolist() == [[10.0, 80.0], [30.0, 81.0]]
    assert "α" in swept.get_xlabel()
    assert [line.get_ydata()[0] for line in swept.lines if line.get_linestyle() == ":"] == [79.0]


def test_what_lesions_leave_stands_with_the_map() -> None:
    from headwise.sections import Effect

    scores = xr.DataArray(
        np.arange(12.0).reshape(2, 2, 3), dims=("task", "layer", "head"), coords={"task": ["a", "b"]}
    )
    effects = {name: [Effect("own", 60.0, 50.0, 130.0), Effect("others", 90.0)] for name in "ab"}
    axes = heatmaps(scores, legend="importance", effects=effects, effect="of intact").axes
    bars = axes[2]
    assert [bar.get_width() for bar in bars.patches] == [60.0, 90.0]
    assert [list(line.get_xdata()) for line in bars.lines] == [[50.0, 130.0]]
    effects["b"] = [Effect("own", np.nan), Effect("others", 110.0)]
    assert words(heatmaps(scores, legend="importance", effects=effects).axes[3].texts) == [" undefined"]
    assert [ax.get_xlim() for ax in heatmaps(scores, legend="importance", effects=effects).axes[2:4]] == [
        (0, 130)
    ] * 2
    assert bars.get_xlim() == (0, 130)
    assert words(bars.get_yticklabels()) == ["own", "others"]
    alone = heatmaps(scores[:1], legend="importance", effects=effects, effect="of intact")
    first, second = (ax.get_position() for ax in alone.axes[:2])
    assert first.x1 < second.x0
