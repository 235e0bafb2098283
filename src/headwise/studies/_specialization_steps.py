"""The steps of a specialization study: lesions of one trained model, and the tables over all of them."""

from typing import Any

import pandas as pd

from headwise import engine
from headwise.lesions import Dissociate
from headwise.tasks import TaskSource

SCORING = "scoring"  # the coordinate of dissociations where heads were scored in several ways


class DissociationConfig(engine.Settings):
    tasks: TaskSource
    model: str
    lesions: Dissociate


@engine.step(name="dissociation")
def dissociation(config: DissociationConfig, inputs: dict[str, Any], out: engine.Out) -> None:
    """Scores, lesions and dissociation of one trained model; keeps every prediction."""
    from headwise.lesions import dissociate
    from headwise.models import open_model

    found, _ = config.tasks.find_trained()
    model = open_model(inputs["trained"].model(config.model), device="auto")
    result = dissociate(model, found, **config.lesions.given() | {"seed": out.seed})
    out.model("dissociation", lambda folder: result.save(folder / "result"))
    out.array("scores", result.scores)
    performance = result.lesions.performance[list(result.tasks)] * 100
    out.table("performance", performance.reset_index().melt("lesion", var_name="task"))
    out.table("pairs", result.table("pairs"))
    out.table("summary", result.table("summary").reset_index().assign(permutation_p=result.permutation.p))
    out.table("overlap", result.table("overlap").reset_index().melt("B", var_name="A", value_name="overlap"))
    layers = result.table("layers")
    out.table(
        "layers",
        layers.drop(columns=["mean", "sigma"])
        .reset_index()
        .melt("layer", var_name="task", value_name="heads"),
    )
    out.table("sweep", result.table("sweep"))
    out.json("notes", {"notes": result.notes})


class TablesConfig(engine.Settings):
    tasks: TaskSource
    trained: tuple[dict[str, Any], ...]
    lesioned: tuple[dict[str, Any], ...]


@engine.step(name="specialization-tables", version=2)
def tables(config: TablesConfig, inputs: dict[str, Any], out: engine.Out) -> None:
    """Everything side by side: one row per result and seed, and means over seeds."""
    from headwise.store import load
    from headwise.studies import _specialization_tables as t

    out.table("training", t.averages(_training_scores(config, inputs["trained"])))
    if not inputs["lesioned"]:
        return
    found: dict[str, pd.DataFrame] = {
        name: t.stacked([result.table(name) for result in inputs["lesioned"]], config.lesioned)
        for name in ("summary", "performance", "overlap", "layers", "sweep")
    }
    results = [load(result.model("dissociation") / "result") for result in inputs["lesioned"]]
    weak = [
        {name for name, outcome in result.lesions.tasks.items() if outcome.at_chance} for result in results
    ]
    pairs = [
        t.marked(result.table("pairs"), names) for result, names in zip(inputs["lesioned"], weak, strict=True)
    ]
    found["pairs"] = t.corrected(t.stacked(pairs, config.lesioned))
    out.table("pairs-all", found["pairs"])
    out.table("pairs-mean", t.pairs_over_seeds(found["pairs"]))
    out.table("grid", t.grid(found["pairs"]))
    d = t.overall(found["summary"])
    out.table("d", d)
    if SCORING in d:
        out.table(
            "scorings",
            t.scorings(
                d, [result.sets for result in results], [result.scores.sizes["layer"] for result in results]
            ),
        )
    out.table("performance-mean", t.performance_over_seeds(found["performance"]))
    out.table("overlap-mean", t.over_seeds(found["overlap"], ["A", "B"], ["overlap"]))
    out.table("layers-mean", t.over_seeds(found["layers"], ["layer", "task"], ["heads"]))
    out.table("sweep-mean", t.over_seeds(found["sweep"], ["fraction"], ["D"]))
    two_texts = {task.name: task.pairs for task in config.tasks.find()}
    out.table("paradigms", t.paradigms(found["pairs"], two_texts))


def _training_scores(config: TablesConfig, results: list[Any]) -> pd.DataFrame:
    """Scores of every training with its place."""
    frames = [
        result.table("scores").assign(**place) for result, place in zip(results, config.trained, strict=True)
    ]
    return pd.concat(frames, ignore_index=True)
