"""Figures of a dissociation study: from its tables and arrays, never from a model."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise._base.sentences import between
from headwise.figures._style import COLOURS, colour_bar, grouped_bars, legend_above, named_cells, panels, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THRESHOLD = 10.0  # percent: where a double dissociation counts as distinct


def matrix(
    table: pd.DataFrame, what: str, limits: tuple[float | None, float | None] = (None, None)
) -> "Figure":
    """A table with its values written into coloured cells; `what` they are stands beside the colour bar."""
    figure, axes = panels(size=(2.2 + 0.7 * table.shape[1], 1.4 + 0.45 * table.shape[0]))
    image = named_cells(axes[0, 0], table, list(table.index), list(table.columns), limits=limits)
    colour_bar(figure, image, axes[0, 0], what)
    return figure


def lesion_matrix(
    table: pd.DataFrame, what: str, missing: str, limits: tuple[float | None, float | None] = (None, None)
) -> "Figure":
    """Tasks (columns) under lesions (rows), in percent; each task's own lesion is framed, and cells without a
    value say why: `missing`."""
    from matplotlib.patches import Rectangle

    figure = matrix(table, what, limits=limits)
    ax: Axes = figure.axes[0]
    for row, column in np.argwhere(table.isna().to_numpy()):
        ax.text(column, row, missing, ha="center", va="center", fontsize=6)
    for i in range(min(table.shape)):
        ax.add_patch(
            Rectangle(
                (i - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=COLOURS[3], linewidth=1.6, clip_on=False
            )
        )
    ax.set_xlabel("task")
    ax.set_ylabel("heads silenced")
    return figure


def overlap(table: pd.DataFrame) -> "Figure":
    """Shared heads of every pair of sets, in percent (Table 11)."""
    values = table.to_numpy(dtype=float, copy=True)
    np.fill_diagonal(values, np.nan)
    return matrix(pd.DataFrame(values, table.index, table.columns), "heads shared (%)", limits=(0, 100))


def pair_scores(table: pd.DataFrame, level: float = 0.95) -> "Figure":
    """D of every pair with its interval, D_A and D_B beside it, and the threshold of a distinct dissociation
    (Fig. 2 for one model).

    Pairs stand one below the other, the first at the top, so that their names never meet.
    """
    figure, axes = panels(size=(5.2, 0.9 + 0.34 * len(table)))
    ax: Axes = axes[0, 0]
    positions = np.arange(len(table))
    middle = table["D"].to_numpy(dtype=float)
    reach = np.abs(np.stack([middle - table["D_low"], table["D_high"] - middle]).astype(float))
    bars = ax.barh(positions, middle, 0.6, color=COLOURS[5], label="D")
    for bar, (_, row) in zip(bars, table.iterrows(), strict=True):
        span = between(row.D_low, row.D_high, 2, level)
        say(bar, f"{row.A} – {row.B}: D {row.D:.2f} %{span}, D_A {row.D_A:.2f}, D_B {row.D_B:.2f}")
    bounded = np.isfinite(reach).all(axis=0)
    if bounded.any():
        ax.errorbar(
            middle[bounded],
            positions[bounded],
            xerr=reach[:, bounded],
            fmt="none",
            ecolor=COLOURS[7],
            capsize=3,
            linewidth=1,
        )
    ax.plot(table["D_A"], positions - 0.15, "o", color=COLOURS[0], label="D_A", markersize=4)
    ax.plot(table["D_B"], positions + 0.15, "s", color=COLOURS[3], label="D_B", markersize=4)
    ax.axvline(0, color=COLOURS[7], linewidth=0.8)
    ax.axvline(THRESHOLD, color=COLOURS[7], linewidth=0.8, linestyle=":")
    ax.set_yticks(positions, [f"{a} – {b}" for a, b in zip(table["A"], table["B"], strict=True)])
    ax.invert_yaxis()
    ax.set_xlabel("dissociation (%)")
    return legend_above(figure, 3)


def heads_per_layer(table: pd.DataFrame) -> "Figure":
    """Chosen heads in each layer, one bar a task, their mean as a dash and σ between tasks above (Fig. 4)."""
    names = [name for name in table.columns if name not in ("mean", "sigma")]
    figure = grouped_bars(table[names], "heads chosen", slanted=False)
    ax: Axes = figure.axes[0]
    ax.plot(range(len(table)), table["mean"], "_", color=COLOURS[7], markersize=22, label="mean")
    top = table[names].to_numpy().max(axis=1)
    for x, (height, sigma) in enumerate(zip(top, table["sigma"], strict=True)):
        ax.annotate(f"σ {sigma:.1f}", (x, height), ha="center", va="bottom", fontsize=6)
    ax.set_xlabel("layer")
    return legend_above(figure)


def sweep(table: pd.DataFrame) -> "Figure":
    """D by fraction of heads silenced, with its interval, and D of each task."""
    figure, axes = panels(size=(4.2, 3.0))
    ax: Axes = axes[0, 0]
    share = 100 * table["fraction"].to_numpy(dtype=float)
    for number, name in enumerate(
        column for column in table.columns if column not in ("fraction", "D", "D_low", "D_high", "note")
    ):
        ax.plot(
            share, table[name], ".--", color=COLOURS[number % 7], linewidth=0.8, label=name.removeprefix("D_")
        )
    ax.plot(share, table["D"], "o-", color=COLOURS[7], label="D")
    ax.fill_between(share, table["D_low"], table["D_high"], color=COLOURS[7], alpha=0.15, linewidth=0)
    ax.axhline(0, color=COLOURS[7], linewidth=0.8)
    ax.set_xlabel("heads silenced (%)")
    ax.set_ylabel("dissociation (%)")
    figure.legend(loc="outside right upper", frameon=False, fontsize=7)
    return figure


def nulls(tests: Mapping[str, tuple[float, NDArray[np.float64], float]]) -> "Figure":
    """The null of each test of D as a histogram, with the observed D and p.

    Args:
        tests: by name, (D, the null's values, p), as fractions.
    """
    columns = min(len(tests), 5)
    figure, axes = panels(-(-len(tests) // columns), columns, size=(2.6, 2.2))
    for ax in axes.flat[len(tests) :]:
        ax.set_visible(False)
    for ax, (name, (observed, null, p)) in zip(axes.flat, tests.items(), strict=False):
        verdict = "no p" if np.isnan(p) else f"p = {p:.3g}"
        if len(null):
            ax.hist(100 * null, bins=20, color=COLOURS[5])
            ax.axvline(100 * observed, color=COLOURS[3])
        ax.set_title(f"{name}\n{verdict}", fontsize=8)
        ax.set_xlabel("D of re-splits (%)")
        ax.set_yticks([])
    return figure


def methods(table: pd.DataFrame) -> "Figure":
    """D of every model under every training method, seeds one by one and their mean (Fig. 8)."""
    wide = table.pivot_table(index="model", columns="method", values="D", sort=False)
    figure = grouped_bars(wide, "dissociation (%)", slanted=False)
    ax: Axes = figure.axes[0]
    models, methods_shown = list(map(str, wide.index)), list(map(str, wide.columns))
    for (model, method), seeds in table.groupby(["model", "method"], sort=False):
        offset = methods_shown.index(str(method)) - (len(methods_shown) - 1) / 2
        x = models.index(str(model)) + offset * 0.8 / len(methods_shown)
        ax.plot(np.full(len(seeds), x), seeds["D"], ".", color=COLOURS[7], markersize=4)
    ax.axhline(0, color=COLOURS[7], linewidth=0.8)
    return legend_above(figure)


def training_sweep(table: pd.DataFrame, setting: str) -> "Figure":
    """Average performance of important-head training over one of its settings, plain training as a line
    (Figs. 9 and 10).

    Args:
        table: one row per model, method, alpha and delta: `average` and `sd` in percent.
        setting: "alpha" or "delta".
    """
    figure, axes = panels(size=(4.2, 3.0))
    ax: Axes = axes[0, 0]
    for number, (model, runs) in enumerate(table.groupby("model", sort=False)):
        learnt = runs[runs["method"] == "iat"].sort_values(setting)
        ax.errorbar(
            100 * learnt[setting],
            learnt["average"],
            learnt["sd"],
            fmt="o-",
            color=COLOURS[number % 7],
            capsize=3,
            label=str(model),
        )
        for plain in runs.loc[runs["method"] == "multi-task", "average"]:
            ax.axhline(plain, color=COLOURS[number % 7], linestyle=":", linewidth=1)
    ax.set_xlabel(
        {"alpha": "α: heads each task updates (%)", "delta": "δ: last part of training (%)"}[setting]
    )
    ax.set_ylabel("average performance (%)")
    return legend_above(figure, 3)
