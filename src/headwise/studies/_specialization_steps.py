"""The steps of a specialization study: lesions of one trained model, and the tables over all of them."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from headwise import engine
from headwise.lesions import Dissociate, Dissociation
from headwise.store import load
from headwise.tasks import TaskSource

SCORING = "scoring"  # the coordinate of dissociations where heads were scored in several ways


@engine.step(name="dissociation")
def dissociation(
    out: engine.Out, *, trained: engine.Result, model: str, tasks: TaskSource, lesions: Dissociate
) -> None:
    """Scores, lesions and dissociation of one trained model, kept as `headwise.dissociate` keeps them."""
    from headwise.lesions import dissociate

    opened, _ = tasks.find_trained()
    settings = lesions.with_changes(seed=out.seed, out=out.folder)
    dissociate(trained.model(model), opened, **settings.given())


@engine.step(name="specialization-tables", version=2)
def tables(
    out: engine.Out,
    *,
    tasks: TaskSource,
    trained: list[Any],
    trained_places: tuple[dict[str, Any], ...],
    lesioned: list[Any],
    lesioned_places: tuple[dict[str, Any], ...],
) -> None:
    """Everything side by side: one row per result and seed, and means over seeds; `..._places` are the
    coordinates of the results."""
    from headwise.studies import _specialization_tables as t

    out.table(
        "training", t.averages(t.stacked([result.table("scores") for result in trained], trained_places))
    )
    if not lesioned:
        return
    results = [load(result.folder) for result in lesioned]
    long_tables: dict[str, pd.DataFrame] = {}
    for name, rows in LONG.items():
        long_tables[name] = t.stacked([rows(result) for result in results], lesioned_places)
    pairs = []
    for result in results:
        weak = {name for name, outcome in result.lesions.tasks.items() if outcome.at_chance}
        pairs.append(t.marked(result.table("pairs"), weak))
    long_tables["pairs"] = t.corrected(t.stacked(pairs, lesioned_places))
    out.table("pairs-all", long_tables["pairs"])
    out.table("pairs-mean", t.pairs_over_seeds(long_tables["pairs"]))
    out.table("grid", t.grid(long_tables["pairs"]))
    d = t.overall(long_tables["summary"])
    out.table("d", d)
    if SCORING in d:
        out.table(
            "scorings",
            t.scorings(
                d, [result.sets for result in results], [result.scores.sizes["layer"] for result in results]
            ),
        )
    out.table("performance-mean", t.performance_over_seeds(long_tables["performance"]))
    out.table("overlap-mean", t.over_seeds(long_tables["overlap"], ["A", "B"], ["overlap"]))
    out.table("layers-mean", t.over_seeds(long_tables["layers"], ["layer", "task"], ["heads"]))
    out.table("sweep-mean", t.over_seeds(long_tables["sweep"], ["fraction"], ["D"]))
    two_texts = {task.name: task.pairs for task in tasks.find()}
    out.table("paradigms", t.paradigms(long_tables["pairs"], two_texts))


def _summary(result: Dissociation) -> pd.DataFrame:
    return result.table("summary").reset_index().assign(permutation_p=result.permutation.p)


def _performance(result: Dissociation) -> pd.DataFrame:
    performance = result.lesions.performance[list(result.tasks)] * 100
    return performance.reset_index().melt("lesion", var_name="task")


def _overlap(result: Dissociation) -> pd.DataFrame:
    return result.table("overlap").reset_index().melt("B", var_name="A", value_name="overlap")


def _layers(result: Dissociation) -> pd.DataFrame:
    layers = result.table("layers").drop(columns=["mean", "sigma"])
    return layers.reset_index().melt("layer", var_name="task", value_name="heads")


def _sweep(result: Dissociation) -> pd.DataFrame:
    return result.table("sweep")


# by name, the tables of one dissociation in long form
LONG: dict[str, Callable[[Dissociation], pd.DataFrame]] = {
    "summary": _summary,
    "performance": _performance,
    "overlap": _overlap,
    "layers": _layers,
    "sweep": _sweep,
}
