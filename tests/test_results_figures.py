"""The figures of docs/results show what stands in the CSV files beside the pages."""

import importlib.util
import itertools
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

RESULTS = Path(__file__).parents[1] / "docs" / "results"
IMAGES = RESULTS.parent / "images"

spec = importlib.util.spec_from_file_location("results_figures", RESULTS / "figures.py")
assert spec is not None
assert spec.loader is not None
figures = importlib.util.module_from_spec(spec)
path = list(sys.path)
spec.loader.exec_module(figures)
sys.path[:] = path


def csv(name: str) -> pd.DataFrame:
    """Read by another way than the one that draws."""
    return pd.read_csv(RESULTS / name, comment="#")


def drawn(ax: Any, label: str) -> list[list[float]]:
    """x and y of the marks or the line with this label."""
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return [np.asarray(values, dtype=float).tolist() for values in line.get_data()]


def test_every_image_of_the_pages_is_there_and_says_what_is_seen() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in RESULTS.glob("*.md"))
    shown = re.findall(r"!\[(.*?)\]\((.*?)\)", pages)
    assert shown
    for said, file in shown:
        assert (RESULTS / file).is_file(), file
        assert len(said) > 40, file
    for draw in figures.FIGURES:
        name = f"{draw.__name__.replace('_', '-')}.png"
        assert f"../images/{name}" in {file for _, file in shown}, name
        assert (IMAGES / name).stat().st_size < 60_000, name


def test_the_grids_of_lesions_hold_every_accuracy_that_is_kept() -> None:
    axes = figures.specialization_lesions().axes
    table = pd.concat(
        [
            csv("specialization/lesions.csv").query("method == 'multi-task'"),
            csv("specialization/e5-lesions.csv"),
        ]
    )
    for ax, (model, some) in zip(axes, table.groupby("model", sort=False), strict=False):
        assert ax.get_title() == model
        intact, *lesions = some[["mnli", "qqp", "qnli", "ag_news", "sst2"]].to_numpy()
        assert [text.get_text() for text in ax.texts] == [
            f"{100 * a / b:.0f}" for row in lesions for a, b in zip(row, intact, strict=True)
        ]
    assert len(axes) == 3 + 1  # and the colour bar


def test_the_lines_of_layers_hold_every_count() -> None:
    axes = figures.specialization_layers().axes
    both, e5, frozen = (csv(f"specialization/{name}layers-mean.csv") for name in ("", "e5-", "frozen-"))
    e5 = e5.assign(model="e5-small")
    trained = pd.concat([both.query("method == 'multi-task'"), e5])
    frozen = pd.concat([both.query("method == 'frozen'"), frozen])
    panels = [(model, some) for model, some in trained.groupby("model", sort=False)]
    panels += [(f"{model}, frozen", some) for model, some in frozen.groupby("model", sort=False)]
    assert [ax.get_title() for ax in axes] == [title for title, _ in panels]
    assert len(panels) == 6
    for ax, (_, some) in zip(axes, panels, strict=True):
        tasks = [part for _, part in some.groupby("task", sort=False)]
        for line, part in zip(ax.lines, tasks, strict=False):
            assert np.asarray(line.get_data()).tolist() == [part["layer"].tolist(), part["heads"].tolist()]
        assert len(ax.lines) == len(tasks) + 1
        assert ax.lines[-1].get_ydata()[0] == pytest.approx(some["heads"].sum() / 5 / some["layer"].nunique())
        assert ax.get_ylim()[1] > some["heads"].max()


def test_pairs_have_a_bar_and_a_dot_for_every_seed() -> None:
    axes = figures.pairs().axes
    order = [text.get_text() for text in axes[0].get_yticklabels()]
    for ax, model, prefix in zip(
        axes, ("mpnet-base", "MiniLM-L6", "e5-small"), ("mpnet-", "", "e5-"), strict=True
    ):
        assert ax.get_title() == model
        table, seeds = (csv(f"pairs/{prefix}{name}.csv").set_index("pair") for name in ("pairs", "seeds"))
        names = [pair for pair in order if pair in table.index]
        assert sorted(names) == sorted(table.index)
        assert [bar.get_width() for bar in ax.patches] == table.loc[names, "D"].tolist()
        assert [round(bar.get_y() + bar.get_height() / 2) for bar in ax.patches] == [
            order.index(pair) for pair in names
        ]
        *dots, published, _ = ax.lines
        np.testing.assert_array_equal(np.column_stack([line.get_xdata() for line in dots]), seeds.loc[names])
        np.testing.assert_array_equal(published.get_xdata(), table.loc[names, "published"])
        assert {order[round(text.get_position()[1])] for text in ax.texts} == set(order) - set(names)
        assert ax.get_xlim()[0] < seeds.min(axis=None) < seeds.max(axis=None) < ax.get_xlim()[1]


def test_important_head_training_has_three_marks_for_every_seed() -> None:
    (ax,) = figures.specialization_iat().axes
    table = csv("specialization/iat-seeds.csv").iloc[:5]
    for name in ("multi-task, first run", "multi-task, second run", "important heads, second run"):
        x, y = drawn(ax, name)
        assert x == table[name].tolist()
        assert np.round(y).tolist() == [0, 1, 2, 3, 4]
    assert [text.get_text() for text in ax.get_yticklabels()] == [f"seed {seed}" for seed in table["seed"]]


def test_the_forest_has_every_average_with_its_interval() -> None:
    (ax,) = figures.important_heads().axes
    first = csv("important-heads/differences.csv").query("task == 'average'")
    table = pd.concat(
        [csv("important-heads/mpnet-averages.csv"), first, csv("important-heads/ten-averages.csv")]
    )
    inside = table[table["difference"] > ax.get_xlim()[0]]
    bars = [segment[:, 0].tolist() for part in ax.collections for segment in part.get_segments()]
    assert np.asarray(bars) == pytest.approx(inside[["low", "high"]].to_numpy())
    beyond = [
        f"{row.difference:.1f} [{row.low:.1f}, {row.high:.1f}]"
        for row in table.drop_duplicates("method").itertuples()
        if row.difference < -2.6
    ]
    assert [text.get_text().strip().replace("−", "-") for text in ax.texts] == beyond
    assert drawn(ax, "published, BERT-base, development sets")[0] == [0.77, 0.07, -0.41, 0.70]
    assert drawn(ax, "published, BERT-base, test sets")[0] == [-0.2, 0.3, 0.6]


def test_variants_have_their_intervals_and_a_dot_for_every_seed() -> None:
    axes = figures.important_heads_variants().axes
    averages, seeds = (
        csv("important-heads/variants-averages.csv").query("group != 'adapter'"),
        csv("important-heads/variants-seeds.csv"),
    )
    by_task = csv("important-heads/variants-differences.csv").query("group != 'adapter' and task == 'qqp'")
    for ax, task, table in zip(axes, ("average", "qqp"), (averages, by_task), strict=True):
        bars = [segment[:, 0].tolist() for part in ax.collections for segment in part.get_segments()]
        assert np.asarray(bars) == pytest.approx(table[["low", "high"]].to_numpy())
        each = seeds[seeds["task"] == task]
        dots = [line.get_xdata() for line in ax.lines if line.get_marker() == "." and len(line.get_xdata())]
        assert np.asarray(dots) == pytest.approx(
            each[list(table["method"])].sub(each["multi-task"], axis=0).to_numpy().T
        )
    names = [text.get_text() for text in axes[0].get_yticklabels()]
    assert [name.startswith("α") for name in names] == (averages["group"] == "setting").tolist()


def test_probing_has_a_mark_for_every_score() -> None:
    axes = figures.probing().axes
    for ax, (model, some) in zip(axes, csv("probing/heads.csv").groupby("model", sort=False), strict=True):
        assert ax.get_title() == model
        columns = [
            "majority",
            "mean of all heads",
            "mean with random weights",
            "last layer",
            "best layer",
            "top heads",
        ]
        assert [list(line.get_xdata()) for line in ax.lines] == [some[name].tolist() for name in columns]
        bars = np.array([segment[:, 0] for segment in ax.collections[1].get_segments()])
        assert np.diff(bars)[:, 0] / 2 == pytest.approx(some["standard error of top"].to_numpy())


def test_similarities_have_a_point_a_pair_and_their_p_is_one_sided() -> None:
    table, link = (
        csv("similarity/pairs.csv"),
        csv("similarity/link.csv").query("kind == 'pearson'").set_index("similarity"),
    )
    metrics = list(table.columns[4:])
    axes = figures.similarity_link().axes
    tasks = list(dict.fromkeys([*table["task"], *table["other"]]))
    upper = np.triu_indices(len(tasks), 1)

    def square(column: str) -> Any:
        values = np.zeros((len(tasks), len(tasks)))
        for task, other, value in table[["task", "other", column]].itertuples(index=False):
            values[tasks.index(task), tasks.index(other)] = values[tasks.index(other), tasks.index(task)] = (
                value
            )
        return values

    for ax, metric in zip(axes, metrics, strict=False):
        points = np.vstack([np.asarray(part.get_offsets()) for part in ax.collections])
        want = table[[metric, "dissociation"]].to_numpy() * [1, 100]
        assert np.sort(points, axis=0) == pytest.approx(np.sort(want, axis=0))
        assert [text.get_text() for text in ax.texts] == [
            f"{a}–{b}" for a, b in zip(table["task"], table["other"], strict=True)
        ]
        d, values = square("dissociation")[upper], square(metric)
        r = [
            np.corrcoef(values[np.ix_(order, order)][upper], d)[0, 1]
            for order in itertools.permutations(range(len(tasks)))
        ]
        assert link.loc[metric, "correlation"] == pytest.approx(r[0], abs=2e-3)
        assert link.loc[metric, "p"] == pytest.approx(np.mean(np.array(r) <= r[0] + 1e-9), abs=0.02)
        assert (
            ax.get_title()
            == f"{metric}: r = {link.loc[metric, 'correlation']:.2f}, one-sided Mantel p = {link.loc[metric, 'p']:.3f}"
        )


@pytest.mark.parametrize("task", ["sst2", "qnli"])
def test_curves_of_estimators_start_at_the_intact_accuracy(task: str) -> None:
    axes = getattr(figures, f"estimators_{task}")().axes
    table = csv(f"estimators/{task}-curves.csv")
    intact = {"sst2": 86.927, "qnli": 82.9}[task]  # the pages: 86.9 and 82.9 %
    for ax, order in zip(axes, ("most", "least"), strict=True):
        some = table[table["order"] == order]
        want = sorted(part["performance"].tolist() for _, part in some.groupby("estimator"))
        assert sorted(list(line.get_ydata()[1:]) for line in ax.lines) == want
        assert [line.get_ydata()[0] for line in ax.lines] == pytest.approx([intact] * 12, abs=1e-3)
        drops = csv(f"estimators/{task}-{order}.csv").set_index("estimator")["drop"]
        for name, part in some.groupby("estimator"):
            lost = np.array([0, *(intact - part["performance"])])
            assert np.trapezoid(lost, [0, *part["fraction"]]) / 0.5 == pytest.approx(drops[name], abs=2e-3)


@pytest.mark.parametrize(("before", "after", "layers"), [("", "", 6), ("mpnet-", "_mpnet", 12)])
def test_stem_cells_and_their_layers(before: str, after: str, layers: int) -> None:
    claims = csv(f"stemcells/{before}claims.csv")
    claims = claims[claims["gates"] == "subset"] if "gates" in claims else claims
    (ax, *_) = getattr(figures, f"stem_cells{after}")().axes
    counts = np.asarray(ax.images[0].get_array() if ax.images else ax.collections[0].get_array()).reshape(
        layers, 12
    )
    named = [tuple(map(int, head.split("."))) for heads in claims["heads"] for head in heads.split()]
    assert counts.sum() == pytest.approx(len(named) / claims["run"].nunique())
    assert counts[1, 4] == pytest.approx(named.count((1, 4)) / claims["run"].nunique())
    table = csv(f"stemcells/{before}layer-changes.csv")
    (ax,) = getattr(figures, f"stem_cell_layers{after}")().axes
    lines = [line for line in ax.get_lines() if len(line.get_xdata()) == layers]
    shown = sorted(float(y) for line in lines if line.get_linestyle() == "-" for y in line.get_ydata())
    assert shown == pytest.approx(sorted(table["change"]))


def test_transfer_shows_every_difference_and_the_papers() -> None:
    table, published = csv("transfer/differences.csv"), csv("transfer/imdb.csv")
    axes = figures.transfer_differences().axes
    assert [ax.get_title() for ax in axes] == ["SICK", "IMDB", "SNLI"]
    hollow = [line for line in axes[1].get_lines() if line.get_markerfacecolor() == "none"]
    assert sorted(y for line in hollow for y in line.get_ydata()) == pytest.approx(
        sorted(published["published difference"])
    )
    for ax in axes:
        lines = [
            line
            for line in ax.get_lines()
            if line.get_marker() in ("o", "s") and line.get_markerfacecolor() != "none"
        ]
        want = table.loc[table["task"] == ax.get_title().lower(), "difference"]
        assert sorted(y for line in lines for y in line.get_ydata()) == pytest.approx(sorted(want))


def test_lesions_of_roles_have_a_dot_for_every_row_and_draw() -> None:
    axes = figures.roles().axes
    lesions, draws = csv("roles/lesions.csv"), csv("roles/draws.csv")
    assert [ax.get_title() for ax in axes] == list(lesions["model"].unique())
    for ax, (model, some) in zip(axes, lesions.groupby("model", sort=False), strict=True):
        lines = [(line.get_marker(), np.atleast_1d(line.get_xdata()).tolist()) for line in ax.lines]
        assert [x[0] for mark, x in lines if mark == "o"] == some["accuracy"].tolist()
        bounded = some.dropna(subset="low")
        assert [x for mark, x in lines if mark == "None"] == bounded[["low", "high"]].to_numpy().tolist()
        own = draws[draws["model"] == model]
        assert [value for mark, x in lines if mark == "." for value in x] == own["accuracy"].tolist()
        styles = [line.get_fillstyle() for line in ax.lines if line.get_marker() == "o"]
        assert styles == ["full" if weights == "trained" else "none" for weights in some["weights"]]
        assert [label.get_text() for label in ax.get_yticklabels()] == list(some["silenced"].unique())
