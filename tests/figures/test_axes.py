"""What every figure says beside its numbers: titles, axes, legends, and what the page says under the mouse."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from headwise.figures import (
    _dissociation as dissociation,
    _estimators as estimators,
    _language as language,
    _probing as probing,
    _roles as roles,
    _similarity as similarity,
    _stemcells as stemcells,
    _style as style,
    _training as training,
)

Axis = tuple[str, str, str]  # title, x axis, y axis
MAP = xr.DataArray([[[0.1, 0.2], [0.3, 0.4]]], dims=("task", "layer", "head"), coords={"task": ["a"]})
TWO = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], index=["a", "b"], columns=["a", "b"])
PAIRS = pd.DataFrame(
    {
        "task": ["a", "a", "b"],
        "other": ["b", "c", "c"],
        "DSE": [0.1, 0.2, 0.4],
        "dissociation": [0.03, 0.05, 0.04],
    }
)
TESTS = pd.DataFrame({"similarity": ["DSE"], "kind": ["pearson"], "correlation": [0.37], "p": [0.21]})
CURVES = pd.DataFrame(
    [
        {"estimator": name, "order": order, "fraction": share, "performance": 90 - 10 * share}
        for name in ("iat", "random")
        for order in ("most", "least")
        for share in (0.0, 0.5)
    ]
)
STRENGTHS = pd.DataFrame({"split": "test", "strength": [0.0, 2.0], "effect": [0.0, 1.0], "kl": [0.0, 0.1]})
STRENGTHS = STRENGTHS.assign(
    **{f"{name}_{end}": STRENGTHS[name] for name in ("effect", "kl") for end in ("low", "high")}
)
LABELS = pd.DataFrame(
    {"task": "dep", "label": ["x", "y"], "layer": [0, 1], "recall": [0.5, 0.75], "f1": 0.1, "gold": [10, 9]}
)
LAYERS = pd.DataFrame(
    {"task": "pos", "layer": [0, 1], "change": [0.01, -0.02], "low": [0.0, -0.03], "high": [0.02, -0.01]}
)
EFFECTS = pd.DataFrame({"gates": ["l0"], "effect": ["a"], "mean": [0.01], "low": [-0.01], "high": [0.03]})
LESIONS = pd.DataFrame(
    {
        "model": "m",
        "weights": "trained",
        "silenced": ["none", "random"],
        "accuracy": [77.0, 71.0],
        "low": 70.0,
        "high": 80.0,
    }
)
DRAWS = pd.DataFrame({"model": "m", "weights": "trained", "accuracy": [70.0, 72.0]})
HISTORY = pd.DataFrame(
    {"step": [1, 2, 1], "task": "a", "loss": [0.5, 0.25, 9.0], "method": "iat", "seed": [0, 0, 1]}
)
SHOTS = pd.DataFrame({"task": "a", "method": "iat", "shots": [4, 16], "mean": [50.0, 60.0], "sd": [1.0, 2.0]})
SWEEP = pd.DataFrame({"fraction": [0.1], "D": [2.0], "D_low": [1.0], "D_high": [3.0], "D_a": [4.0]})
PAIR = pd.DataFrame(
    {"A": ["a"], "B": ["b"], "D": [5.0], "D_low": [1.0], "D_high": [9.0], "D_A": [4.0], "D_B": [6.0]}
)
CHOSEN = pd.DataFrame({"a": [1, 2], "mean": [1.0, 2.0], "sigma": [0.0, 0.0]})
TRAINED = pd.DataFrame(
    {
        "model": "m",
        "method": ["iat", "multi-task"],
        "alpha": [0.1, 0.0],
        "delta": [0.3, 0.0],
        "average": [80.0, 79.0],
        "sd": 0.5,
        "D": [6.0, 5.0],
    }
)
CLAIMS = xr.DataArray(
    np.ones((1, 2, 2, 2)), dims=("run", "task", "layer", "head"), coords={"task": ["a", "b"]}
)
AGREEMENT = pd.DataFrame({"first": ["a"], "second": ["a"], "overlap": [0.5], "pearson": [-0.25]})

FIGURES: dict[str, tuple[Callable[[], Any], list[Axis], list[str]]] = {
    "matrix": (lambda: dissociation.matrix(TWO, "D (%)"), [("", "", ""), ("", "", "D (%)")], []),
    "lesions": (
        lambda: dissociation.lesion_matrix(TWO, "left (%)", "none"),
        [("", "task", "heads silenced"), ("", "", "left (%)")],
        [],
    ),
    "overlap": (lambda: dissociation.overlap(TWO), [("", "", ""), ("", "", "heads shared (%)")], []),
    "pairs": (lambda: dissociation.pair_scores(PAIR), [("", "dissociation (%)", "")], ["D_A", "D_B", "D"]),
    "layers": (lambda: dissociation.heads_per_layer(CHOSEN), [("", "layer", "heads chosen")], ["mean", "a"]),
    "sweep": (
        lambda: dissociation.sweep(SWEEP),
        [("", "heads silenced (%)", "dissociation (%)")],
        ["a", "D"],
    ),
    "nulls": (
        lambda: dissociation.nulls({"a, b": (0.07, np.linspace(-0.1, 0.1, 40), 0.15)}),
        [("a, b\np = 0.15", "D of re-splits (%)", "")],
        [],
    ),
    "methods": (lambda: dissociation.methods(TRAINED), [("", "", "dissociation (%)")], ["iat", "multi-task"]),
    "alpha": (
        lambda: dissociation.training_sweep(TRAINED, "alpha"),
        [("", "α: heads each task updates (%)", "average performance (%)")],
        ["m"],
    ),
    "delta": (
        lambda: dissociation.training_sweep(TRAINED, "delta"),
        [("", "δ: last part of training (%)", "average performance (%)")],
        ["m"],
    ),
    "curves": (
        lambda: estimators.curves(CURVES, "accuracy"),
        [
            (f"{order} important heads silenced", "heads silenced (%)", "accuracy (%)")
            for order in ("most", "least")
        ],
        ["iat", "random"],
    ),
    "cost": (
        lambda: estimators.cost(
            pd.DataFrame({"estimator": ["iat", "random"], "seconds": [1.0, np.nan], "drop": [5.0, 1.0]})
        ),
        [("", "seconds", "mean drop (points)")],
        [],
    ),
    "strengths": (
        lambda: language.strengths(STRENGTHS, 2.0, "effect"),
        [("", "strength", "effect"), ("", "strength", "KL from the intact model\n(nats per token)")],
        ["chosen", "test"],
    ),
    "differences": (
        lambda: language.differences(
            pd.DataFrame({"difference": [0.1], "low": [0.0], "high": [0.2]}, index=["x"])
        ),
        [("", "changed − intact", "")],
        [],
    ),
    "roles": (lambda: roles.copying(LESIONS, DRAWS), [("m", "repeated tokens predicted (%)", "")], []),
    "link": (
        lambda: similarity.link_scatter(PAIRS, TESTS, ["DSE"], "one-sided"),
        [("DSE: r = 0.37, one-sided Mantel p = 0.210", "task similarity", "average dissociation D (%)")],
        [],
    ),
    "claims": (
        lambda: stemcells.stem_cell_map(CLAIMS, CLAIMS.isel(run=0, task=0, drop=True) > 2),
        [("tasks that claim a head", "head", "layer"), ("", "", "")],
        [],
    ),
    "agreement": (
        lambda: stemcells.task_overlap(AGREEMENT, "pearson"),
        [("pearson of claims", "diagonal: the same task in another run", ""), ("", "", "")],
        [],
    ),
    "best layers": (lambda: stemcells.best_layers(LABELS, 2), [("dep (recall, %)", "layer", "")], []),
    "label changes": (
        lambda: stemcells.label_changes(LABELS, LABELS),
        [("dep: multi − single", "points", "")],
        [],
    ),
    "layer changes": (
        lambda: stemcells.layer_changes(LAYERS),
        [("trained together − trained alone", "layer", "change of probe score, points")],
        [],
    ),
    "effects": (
        lambda: stemcells.effects(EFFECTS),
        [("", "points, mean and 95 % interval over runs and heads", "")],
        [],
    ),
    "scores": (
        lambda: training.scores(pd.DataFrame({"task": ["a", "b"], "method": "iat", "score": [0.5, 0.6]})),
        [("", "", "score (%)")],
        ["iat"],
    ),
    "losses": (lambda: training.losses(HISTORY), [("", "step", "training loss")], ["a, iat"]),
    "shots": (lambda: training.transfer(SHOTS), [("", "training examples", "score (%)")], ["a, iat"]),
    "probes": (lambda: probing.heatmaps(MAP), [("a", "head", "layer")], []),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_panel_says_what_it_shows(name: str) -> None:
    draw, expected, legend = FIGURES[name]
    figure = draw()
    said = [(ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes]
    assert said[: len(expected)] == expected
    assert sorted(text.get_text() for one in figure.legends for text in one.get_texts()) == sorted(legend)


def test_losses_are_of_the_first_seed_and_smoothed() -> None:
    steps = np.arange(200)
    history = pd.DataFrame({"step": steps, "task": "a", "loss": steps % 7 + 1.0, "method": "iat", "seed": 3})
    other = history.assign(seed=4, loss=99.0)
    (line,) = training.losses(pd.concat([other, history])).axes[0].lines
    window = 200 // 50
    slow = [np.mean(history["loss"][max(0, i - window + 1) : i + 1]) for i in range(200)]
    np.testing.assert_allclose(line.get_ydata(), slow)
    np.testing.assert_array_equal(line.get_xdata(), steps)
    assert line.axes.get_ylim()[0] == 0


def test_every_point_of_scores_stands_at_its_task() -> None:
    table = pd.DataFrame(
        {"task": ["a", "b", "a", "b"], "method": ["x", "x", "y", "y"], "score": [0.1, 0.2, 0.3, 0.4]}
    )
    ax = training.scores(table).axes[0]
    assert [line.get_ydata().tolist() for line in ax.lines] == [
        pytest.approx([10, 20]),
        pytest.approx([30, 40]),
    ]
    assert all(np.abs(line.get_xdata() - [0, 1]).max() < 0.2 for line in ax.lines)
    left, right = (line.get_xdata()[0] for line in ax.lines)
    assert left < 0 < right
    assert [text.get_text() for text in ax.get_xticklabels()] == ["a", "b"]


def test_shots_have_a_tick_each_and_powers_keep_their_distance() -> None:
    ax = training.transfer(SHOTS).axes[0]
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["4", "16"]
    assert ax.get_xticks().tolist() == [4.0, 16.0]
    assert ax.get_xticks(minor=True).size == 0


def test_lesions_of_roles_stand_in_their_rows_with_intervals_and_draws() -> None:
    both = pd.concat([LESIONS, LESIONS.assign(weights="random", accuracy=[1.0, 2.0], low=np.nan)])
    ax = roles.copying(both, DRAWS).axes[0]
    marks = {
        (float(line.get_xdata()[0]), line.get_fillstyle()): float(line.get_ydata()[0])
        for line in ax.lines
        if line.get_marker() == "o"
    }
    assert set(marks) == {(77.0, "full"), (71.0, "full"), (1.0, "none"), (2.0, "none")}
    assert all(abs(y - row) < 0.3 for (x, _), y in marks.items() for row in [int(x in (71.0, 2.0))])
    assert marks[77.0, "full"] < marks[1.0, "none"]  # trained above random
    spans = [
        line.get_xdata() for line in ax.lines if len(line.get_xdata()) == 2 and line.get_marker() == "None"
    ]
    assert [list(span) for span in spans] == [[70.0, 80.0]] * 2  # none without bounds
    (grey, _) = [line for line in ax.lines if line.get_marker() == "."]
    assert grey.get_xdata().tolist() == [70.0, 72.0]
    assert np.all(np.abs(grey.get_ydata() - 1) < 0.3)  # in the row of random heads
    assert [text.get_text() for text in ax.get_yticklabels()] == ["none", "random"]
    assert ax.get_ylim() == (1.5, -0.5)
    low, high = ax.get_xlim()
    assert low < 0
    assert high > 100


def test_bars_without_bounds_are_not_drawn() -> None:
    np.testing.assert_allclose(language._bars([1.0, 2.0], [0.5, np.nan], [3.0, np.nan]), [[0.5, 0], [2, 0]])
    np.testing.assert_allclose(language._bars(1.0, 1.5, 0.5), [[0], [0]])  # bounds that do not hold the value


def test_label_changes_leave_out_labels_of_one_stage_and_average_runs() -> None:
    twice = pd.concat([LABELS, LABELS.assign(recall=LABELS["recall"] + 0.2)])
    more = pd.concat([twice, LABELS.assign(label="only", gold=99)])
    ax = stemcells.label_changes(more, LABELS.assign(recall=[0.5, 0.95]), names=("before", "after")).axes[0]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["x", "y"]
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], [-10, 10], atol=1e-9)
    assert ax.patches[0].get_facecolor() != ax.patches[1].get_facecolor()
    assert ax.get_title() == "dep: after − before"


def test_rows_are_equally_high_in_panels_of_different_lengths() -> None:
    tables = pd.concat([LABELS, LABELS.head(1).assign(task="pos")])
    for figure in (stemcells.best_layers(tables, 2), stemcells.label_changes(tables, tables)):
        spans = [abs(ax.get_ylim()[1] - ax.get_ylim()[0]) for ax in figure.axes]
        assert spans[0] == pytest.approx(spans[1])
        assert all(low < 0 <= high for low, high in (ax.get_ylim() for ax in figure.axes))
        tops = [ax.get_ylim()[1] - len(ax.get_yticks()) for ax in figure.axes]
        assert tops[0] == pytest.approx(tops[1])  # the first row of each at the same height


def test_best_layers_mark_grows_with_the_score_and_writes_it() -> None:
    ax = stemcells.best_layers(LABELS, 2).axes[0]
    first, second = ax.collections[0].get_sizes()
    assert first < second
    assert [text.get_text() for text in ax.texts] == ["50", "75"]
    assert ax.get_xlim()[0] < 0
    assert ax.get_xlim()[1] > 1


def test_maps_without_limits_take_their_own_range_and_signed_ones_are_centred() -> None:
    _, axes = style.panels(1, 3)
    values = np.array([[1.0, -3.0], [np.nan, 2.0]])
    assert style.heads_heatmap(axes[0, 0], values).get_clim() == (-3.0, 2.0)
    assert style.heads_heatmap(axes[0, 1], values, signed=True).get_clim() == (-3.0, 3.0)
    assert style.heads_heatmap(axes[0, 2], np.full((2, 2), np.nan)).get_clim() == (0.0, 1.0)


def test_large_maps_number_every_nth_layer_and_head() -> None:
    _, axes = style.panels(1, 2)
    style.heads_heatmap(axes[0, 0], np.zeros((24, 16)), layer_labels=[f"L{i}" for i in range(24)])
    assert axes[0, 0].get_xticks().tolist() == list(range(0, 16, 2))
    assert axes[0, 0].get_yticks().tolist() == list(range(0, 24, 3))
    assert [text.get_text() for text in axes[0, 0].get_yticklabels()] == [f"L{i}" for i in range(0, 24, 3)]
    style.heads_heatmap(axes[0, 1], np.zeros((8, 8)))
    assert axes[0, 1].get_xticks().tolist() == list(range(8))


def test_the_size_of_a_figure_is_that_of_its_panels() -> None:
    figure, axes = style.panels(2, 3, size=(2.0, 1.5))
    assert tuple(figure.get_size_inches()) == (6.0, 3.0)
    assert axes.shape == (2, 3)


def test_written_values_are_light_on_dark() -> None:
    _, axes = style.panels()
    style.named_cells(axes[0, 0], [[0.0, 1.0], [np.nan, 0.25]], ["r", "s"], ["x", "y"], digits=2)
    shown = {text.get_text(): text.get_color() for text in axes[0, 0].texts}
    assert set(shown) == {"0.00", "1.00", "0.25"}
    assert shown["0.00"] == "white"
    assert shown["1.00"] == style.DARK
    assert [text.get_position() for text in axes[0, 0].texts] == [(0, 0), (1, 0), (1, 1)]
    assert axes[0, 0].get_ylim()[0] > axes[0, 0].get_ylim()[1]


def test_grouped_bars_stand_where_the_docstring_says_and_speak() -> None:
    table = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0], "z": [5.0, 6.0]}, index=["a", "b"])
    ax = style.grouped_bars(table, "what").axes[0]
    bars = sorted(ax.patches, key=lambda bar: bar.get_height())
    expected = [
        (row + (k - 1) * 0.8 / 3, value)
        for k, row, value in [(0, 0, 1), (0, 1, 2), (1, 0, 3), (1, 1, 4), (2, 0, 5), (2, 1, 6)]
    ]
    found = [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in bars]
    np.testing.assert_allclose(found, expected)
    assert all(bar.get_width() == pytest.approx(0.8 / 3) for bar in bars)
    assert bars[3].get_gid().endswith("b, y: 4")
    assert [text.get_text() for text in ax.get_xticklabels()] == ["a", "b"]


def test_what_the_mouse_is_told() -> None:
    bar = dissociation.pair_scores(PAIR).axes[0].patches[0]
    assert bar.get_gid() == "said:a – b: D 5.00 % (95 % interval 1.00 to 9.00), D_A 4.00, D_B 6.00"
    lines = estimators.curves(CURVES).axes[1].lines
    assert [line.get_gid() for line in lines] == [
        "said:iat, least important heads",
        "said:random, least important heads",
    ]
    dots = roles.copying(LESIONS, DRAWS).axes[0].lines
    assert any((line.get_gid() or "").endswith("m, trained weights, silenced: none: 77.0 %") for line in dots)
