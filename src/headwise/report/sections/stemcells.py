"""The stem-cell study, as the study `stem-cells` leaves it."""

from typing import Any

import pandas as pd

from headwise.figures import stemcells as draw
from headwise.report.blocks import NOT_SHOWN, Chart, HeadMaps, Section, Table, between, number, sign

SAID = {1: "higher, over runs", -1: "lower, over runs", 0: NOT_SHOWN}


def read(run: Any, label: str, provenance: dict[str, Any], settings: dict[str, Any]) -> Section:
    """The section of a stem-cell run."""
    tests, effects = run.table("stem-cells"), run.table("effects")
    blocks: list[Any] = []
    for method in tests["gates"]:
        slug = str(method).replace(" ", "-")
        if f"claims-{slug}.nc" in run.files:
            claims = run.array(f"claims-{slug}").mean("run")
            title = f"Share of runs in which a task claims a head ({method})"
            blocks.append(HeadMaps(f"claims-{slug}", title, "share of runs", claims))
        if f"agreement-{slug}.parquet" in run.files:
            title = f"Agreement between tasks and between runs ({method})"
            blocks.append(Table(f"agreement-{slug}", title, run.table(f"agreement-{slug}"), digits=3))
    blocks += [
        Chart(
            "effects",
            "Does training together spoil shared heads?",
            lambda: draw.effects(effects),
            "Points of probe score. Negative: spoiled more than other heads.",
        ),
        Table("stem-cells", "How many heads most tasks claim, against layer-matched random sets", tests, digits=3),
        Table("effects", "The hypothesis, with its interval over runs", effects, digits=4),
    ]
    if "scores.parquet" in run.files:
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
