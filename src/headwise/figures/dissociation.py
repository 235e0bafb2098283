"""Figures of a dissociation study: from its tables and arrays, never from a model."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from headwise.figures.style import COLOURS, SEQUENTIAL, heads_heatmap, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THRESHOLD = 10.0  # percent: where a double dissociation counts as distinct


def lesion_matrix(table: pd.DataFrame, what: str) -> "Figure":
    """Tasks (columns) under lesions (rows), in percent; each task's own lesion is framed."""
    from matplotlib.patches import Rectangle

    figure, axes = panels(size=(2.2 + 0.7 * table.shape[1], 1.4 + 0.45 * table.shape[0]))
    ax: Axes = axes[0, 0]
    image = ax.imshow(table.to_numpy(dtype=float), cmap=SEQUENTIAL, aspect="auto")
    _label_cells(ax, table, image)
    for i in range(min(table.shape)):
        ax.add_patch(Rectangle((i - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=COLOURS[3], linewidth=1.6))
    ax.set_xlabel("task")
    ax.set_ylabel("heads silenced")
    figure.colorbar(image, ax=ax, label=what)
    return figure


def overlap(table: pd.DataFrame) -> "Figure":
    """Shared heads of every pair of sets, in percent (Table 11)."""
    figure, axes = panels(size=(2.2 + 0.7 * table.shape[1], 1.4 + 0.45 * table.shape[0]))
    ax: Axes = axes[0, 0]
    values = table.to_numpy(dtype=float, copy=True)
    np.fill_diagonal(values, np.nan)
    image = ax.imshow(values, cmap=SEQUENTIAL, aspect="auto", vmin=0, vmax=100)
    _label_cells(ax, pd.DataFrame(values, table.index, table.columns), image)
    figure.colorbar(image, ax=ax, label="heads shared (%)")
    return figure


def pair_scores(table: pd.DataFrame) -> "Figure":
    """D of every pair with its interval, D_A and D_B beside it, and the threshold of a distinct dissociation (Fig. 2 for one model)."""
    figure, axes = panels(size=(max(3.4, 1.5 + 0.7 * len(table)), 3.2))
    ax: Axes = axes[0, 0]
    place = np.arange(len(table))
    middle = table["D"].to_numpy(dtype=float)
    span = np.abs(np.stack([middle - table["D_low"], table["D_high"] - middle]).astype(float))
    ax.bar(place, middle, 0.6, color=COLOURS[5], label="D")
    if np.isfinite(span).all():
        ax.errorbar(place, middle, span, fmt="none", ecolor=COLOURS[7], capsize=3, linewidth=1)
    ax.plot(place - 0.15, table["D_A"], "o", color=COLOURS[0], label="$D_A$", markersize=4)
    ax.plot(place + 0.15, table["D_B"], "s", color=COLOURS[3], label="$D_B$", markersize=4)
    ax.axhline(0, color=COLOURS[7], linewidth=0.8)
    ax.axhline(THRESHOLD, color=COLOURS[7], linewidth=0.8, linestyle=":")
    ax.set_xticks(place, [f"{a}\n{b}" for a, b in zip(table["A"], table["B"], strict=True)], fontsize=7)
    ax.set_ylabel("dissociation (%)")
    figure.legend(loc="outside upper center", frameon=False, ncols=3)
    return figure


def heads_per_layer(table: pd.DataFrame) -> "Figure":
    """Chosen heads in each layer, one bar a task, their mean as a line and σ between tasks above (Fig. 4)."""
    names = [name for name in table.columns if name not in ("mean", "sigma")]
    figure, axes = panels(size=(max(3.4, 1.5 + 0.55 * len(table)), 3.0))
    ax: Axes = axes[0, 0]
    place, width = np.arange(len(table)), 0.8 / len(names)
    for number, name in enumerate(names):
        offset = (number - (len(names) - 1) / 2) * width
        ax.bar(place + offset, table[name], width, color=COLOURS[number % len(COLOURS)], label=name)
    ax.plot(place, table["mean"], color=COLOURS[7], marker=".", linewidth=1, label="mean")
    top = table[names].to_numpy().max(axis=1)
    for x, (height, sigma) in enumerate(zip(top, table["sigma"], strict=True)):
        ax.annotate(f"σ {sigma:.1f}", (x, height), ha="center", va="bottom", fontsize=6)
    ax.set_xticks(place, [str(layer) for layer in table.index])
    ax.set_xlabel("layer")
    ax.set_ylabel("heads chosen")
    figure.legend(loc="outside upper center", frameon=False, ncols=6, fontsize=7)
    return figure


def score_maps(scores: xr.DataArray, chosen: Mapping[str, NDArray[np.bool_]]) -> "Figure":
    """Each task's scores as a map of heads; chosen heads are framed. Colours are each task's own, since losses differ in scale."""
    names = [str(name) for name in scores["task"].to_numpy()]
    figure, axes = panels(1, len(names), size=(3.0, 2.6))
    for ax, name in zip(axes[0], names, strict=True):
        image = heads_heatmap(ax, scores.sel(task=name).to_numpy(), title=name, marked=chosen.get(name))
        figure.colorbar(image, ax=ax)
    return figure


def sweep(table: pd.DataFrame) -> "Figure":
    """D over the share of heads silenced, with its interval, and D of each task."""
    figure, axes = panels(size=(4.2, 3.0))
    ax: Axes = axes[0, 0]
    share = 100 * table["fraction"].to_numpy(dtype=float)
    for number, name in enumerate(column for column in table.columns if column not in ("fraction", "D", "D_low", "D_high")):
        ax.plot(share, table[name], ".--", color=COLOURS[number % 7], linewidth=0.8, label=name.removeprefix("D_"))
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
        if len(null):
            ax.hist(100 * null, bins=20, color=COLOURS[5])
            ax.axvline(100 * observed, color=COLOURS[3])
        ax.set_title(f"{name}\np = {p:.3g}", fontsize=8)
        ax.set_xlabel("D of re-splits (%)")
        ax.set_yticks([])
    return figure


def model_grid(table: pd.DataFrame) -> "Figure":
    """D in percent of every model (rows) on every pair of tasks (columns): Fig. 2."""
    figure, axes = panels(size=(2.0 + 0.75 * table.shape[1], 1.2 + 0.45 * table.shape[0]))
    ax: Axes = axes[0, 0]
    image = ax.imshow(table.to_numpy(dtype=float), cmap=SEQUENTIAL, aspect="auto")
    _label_cells(ax, table, image)
    figure.colorbar(image, ax=ax, label="dissociation (%)")
    return figure


def methods(table: pd.DataFrame) -> "Figure":
    """D of every model under every training method, seeds one by one and their mean (Fig. 8)."""
    models, ways = (list(dict.fromkeys(table[name])) for name in ("model", "method"))
    figure, axes = panels(size=(max(3.4, 1.2 + 1.1 * len(models)), 3.0))
    ax: Axes = axes[0, 0]
    width = 0.8 / len(ways)
    for number, way in enumerate(ways):
        for place, model in enumerate(models):
            values = table.loc[(table["model"] == model) & (table["method"] == way), "D"].to_numpy(dtype=float)
            x = place + (number - (len(ways) - 1) / 2) * width
            ax.bar(
                x, values.mean() if len(values) else np.nan, width, color=COLOURS[number % 7], label=way if place == 0 else None
            )
            ax.plot(np.full(len(values), x), values, ".", color=COLOURS[7], markersize=4)
    ax.axhline(0, color=COLOURS[7], linewidth=0.8)
    ax.set_xticks(range(len(models)), models)
    ax.set_ylabel("dissociation (%)")
    figure.legend(loc="outside upper center", frameon=False, ncols=4)
    return figure


def training_sweep(table: pd.DataFrame, setting: str) -> "Figure":
    """Average performance of important-head training over one of its settings, plain training as a line (Figs. 9 and 10).

    Args:
        table: one row per model, method, alpha and delta: `average` and `sd` in percent.
        setting: "alpha" or "delta".
    """
    figure, axes = panels(size=(4.2, 3.0))
    ax: Axes = axes[0, 0]
    for number, (model, some) in enumerate(table.groupby("model", sort=False)):
        learnt = some[some["method"] == "iat"].sort_values(setting)
        spread = learnt["sd"].fillna(0)
        ax.errorbar(
            100 * learnt[setting], learnt["average"], spread, fmt="o-", color=COLOURS[number % 7], capsize=3, label=str(model)
        )
        for plain in some.loc[some["method"] == "multi-task", "average"]:
            ax.axhline(plain, color=COLOURS[number % 7], linestyle=":", linewidth=1)
    ax.set_xlabel({"alpha": "α: heads each task updates (%)", "delta": "δ: last share of the steps (%)"}[setting])
    ax.set_ylabel("average performance (%)")
    figure.legend(loc="outside upper center", frameon=False, ncols=3)
    return figure


def _label_cells(ax: "Axes", table: pd.DataFrame, image: Any) -> None:
    """Writes each value into its cell, dark on light and light on dark, and names rows and columns."""
    values = table.to_numpy(dtype=float)
    ax.set_xticks(range(table.shape[1]), [str(name) for name in table.columns], rotation=30, ha="right")
    ax.set_yticks(range(table.shape[0]), [str(name) for name in table.index])
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            dark = image.norm(value) < 0.55
            ax.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=8, color="white" if dark else "black")
