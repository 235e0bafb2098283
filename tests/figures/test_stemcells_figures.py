"""Figures of the stem-cell study show the numbers they were given."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from headwise.figures import _stemcells as draw, panels, save_figure

TASKS = ["pos", "ner", "dep"]
CLAIMS = xr.DataArray(
    np.random.default_rng(0).random((2, 3, 4, 5)) < 0.3,
    dims=("run", "task", "layer", "head"),
    coords={"run": [0, 1], "task": TASKS},
)


def test_stem_cell_map_frames_stem_cells() -> None:
    stem = CLAIMS.isel(run=0, task=0, drop=True)
    ax = draw.stem_cell_map(CLAIMS, stem).axes[0]
    assert len(ax.patches) == int(stem.sum())
    np.testing.assert_allclose(ax.collections[0].get_array(), CLAIMS.sum("task").mean("run"))


def test_overlap_is_symmetric_with_runs_on_the_diagonal() -> None:
    pairs = [("pos", "pos", 0.9), ("pos", "dep", 0.4), ("dep", "dep", 0.8)]
    ax = draw.task_overlap(pd.DataFrame(pairs, columns=["first", "second", "overlap"])).axes[0]
    np.testing.assert_allclose(ax.collections[0].get_array(), [[0.9, 0.4], [0.4, 0.8]])
    assert [text.get_text() for text in ax.texts] == ["0.90", "0.40", "0.40", "0.80"]


def labels(shift: float) -> pd.DataFrame:
    rows = [
        {
            "task": "dep",
            "label": f"r{i}",
            "layer": i % 4,
            "recall": 0.5 + shift * i,
            "f1": 0.1,
            "gold": 10 - i,
        }
        for i in range(6)
    ]
    return pd.DataFrame(rows)


def test_changes_are_in_points_of_the_commonest_labels() -> None:
    ax = draw.label_changes(labels(0.0), labels(-0.01), most=3).axes[0]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["r0", "r1", "r2"]
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], [0, -1, -2], atol=1e-9)


def test_best_layers_stand_at_their_layer() -> None:
    ax = draw.best_layers(labels(0.05), layers=4, most=4).axes[0]
    np.testing.assert_array_equal(ax.collections[0].get_offsets()[:, 0], [0, 1, 2, 3])


def test_effects_with_an_infinite_interval_are_drawn() -> None:
    table = pd.DataFrame(
        {
            "gates": ["subset", "l0"],
            "effect": ["a", "b"],
            "mean": [-0.1, 0.0],
            "low": [-0.2, -np.inf],
            "high": [0, np.inf],
        }
    )
    ax = draw.effects(table).axes[0]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["subset: a", "l0: b"]


def test_text_in_pdfs_stays_text(tmp_path: Path) -> None:
    figure, axes = panels()
    axes[0, 0].set_title("heads")
    (file,) = save_figure(figure, tmp_path / "one.pdf")
    assert b"/Type3" not in file.read_bytes()  # letters drawn as pictures: journals refuse them


def test_changes_of_layers_are_drawn_where_they_are() -> None:
    table = pd.DataFrame(
        [
            {
                "task": task,
                "layer": layer,
                "change": -0.01 * layer * k,
                "low": -0.01 * layer * k - 0.02,
                "high": np.inf,
            }
            for k, task in enumerate(("pos", "ner"), 1)
            for layer in range(3)
        ]
    )
    ax = draw.layer_changes(table).axes[0]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["pos", "ner"]
    lines = [line for line in ax.get_lines() if len(line.get_xdata()) == 3 and line.get_linestyle() == "-"]
    assert [line.get_ydata().tolist() for line in lines] == [
        pytest.approx([0, -1, -2]),
        pytest.approx([0, -2, -4]),
    ]
    assert all(np.abs(line.get_xdata() - [0, 1, 2]).max() < 0.2 for line in lines)
