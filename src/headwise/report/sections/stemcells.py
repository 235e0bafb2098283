"""The stem-cell study, as the study `stem-cells` leaves it."""

from typing import Any

import pandas as pd

from headwise.figures import COLOURS, panels
from headwise.figures.style import heads_heatmap
from headwise.report.blocks import NOT_SHOWN, Chart, HeadMaps, Section, Table, between, number, sign, text

SAID = {1: "higher, over runs", -1: "lower, over runs", 0: NOT_SHOWN}


def read(run: Any, label: str, provenance: dict[str, Any], settings: dict[str, Any]) -> Section:
    """The section of a stem-cell run."""
    tests, effects = run.table("stem-cells"), run.table("effects")
    blocks: list[Any] = []
    for method in tests["gates"]:
        slug = str(method).replace(" ", "-")
        if run.has_array(f"claims-{slug}"):
            claims = run.array(f"claims-{slug}").mean("run")
            blocks.append(
                HeadMaps(
                    f"claims-{slug}",
                    f"Share of runs in which a task claims a head ({method})",
                    "share of runs",
                    claims,
                    lambda claims=claims: _maps(claims),  # type: ignore[misc]
                )
            )
        if run.has(f"agreement-{slug}"):
            blocks.append(
                Table(
                    f"agreement-{slug}",
                    f"Agreement between tasks and between runs ({method})",
                    run.table(f"agreement-{slug}"),
                    digits=3,
                )
            )
    blocks += [
        effect_chart(effects),
        Table("stem-cells", "How many heads most tasks claim, against layer-matched random sets", tests, digits=3),
        Table("effects", "The hypothesis, with its interval over runs", effects, digits=4),
    ]
    if run.has("scores"):
        blocks.append(Table("stemcell-scores", "Test scores of every training", run.table("scores"), digits=4))
    return Section(
        title=f"Stem cells: {label}",
        findings=findings(tests, effects),
        blocks=blocks,
        methods="Every task learns gates for the same number of heads; stem-cell heads are those that at least four of five tasks claim in "
        "most runs. The effect is the change of probe score from single- to multi-task training on stem-cell heads minus that on heads "
        "one task alone claims, heads being chosen on other runs than those measured.",
        settings=settings,
        provenance=provenance,
    )


def findings(tests: pd.DataFrame, effects: pd.DataFrame) -> list[str]:
    """How many stem cells, and whether training together spoils them."""
    said = []
    for row in tests.to_dict("records"):
        more = "more than" if row["p"] < 0.05 else "not shown to be more than"
        said.append(
            f"By {row['gates']}, {row['found']} heads are claimed by most tasks, {more} the {number(row['expected'])} that chance would give "
            f"(p = {row['p']:.3g})."
        )
    for row in effects.to_dict("records"):
        points = {key: 100 * row[key] for key in ("mean", "low", "high")}
        said.append(
            f"{row['gates']}, {row['effect']}: {number(points['mean'], 2, sign=True)} points of probe score"
            f"{between(points['low'], points['high'], 2)}: {SAID[sign(points['low'], points['high'])]}."
        )
    return said


def effect_chart(effects: pd.DataFrame) -> Chart:
    """Every effect with its interval."""
    names = [f"{g}: {e}" for g, e in zip(effects["gates"], effects["effect"], strict=True)]
    mean, low, high = (100 * effects[key].astype(float) for key in ("mean", "low", "high"))
    data = {
        "type": "scatter",
        "mode": "markers",
        "x": mean.tolist(),
        "y": [text(n) for n in names],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": (high - mean).fillna(0).tolist(),
            "arrayminus": (mean - low).fillna(0).tolist(),
        },
        "marker": {"color": COLOURS[0], "size": 10},
    }

    def draw() -> Any:
        figure, axes = panels(size=(6.0, 1.2 + 0.4 * len(names)))
        span = [(mean - low).fillna(0), (high - mean).fillna(0)]
        axes[0, 0].errorbar(mean, range(len(names)), xerr=span, fmt="o", color=COLOURS[0], capsize=3)
        axes[0, 0].set_yticks(range(len(names)), names)
        axes[0, 0].axvline(0, color="0.5", linewidth=0.8)
        axes[0, 0].set_xlabel("change of probe score (points)")
        return figure

    layout = {"xaxis": {"title": {"text": "change of probe score (points)"}}, "height": 160 + 40 * len(names)}
    return Chart(
        "effects", "Does training together spoil shared heads?", [data], layout, draw, "Negative: spoiled more than other heads."
    )


def _maps(claims: Any) -> Any:
    tasks = [str(task) for task in claims["task"].values]
    figure, axes = panels(1, len(tasks), size=(2.6, 2.4))
    for ax, task in zip(axes[0], tasks, strict=True):
        heads_heatmap(ax, claims.sel(task=task).values, title=task, limits=(0, 1))
    return figure
