"""Fine-tuning from the last layer, the best layer and the top-n heads (Table 4), and what it does to the heat maps (Fig. 4)."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from headwise import engine
from headwise.heads import HeadSet
from headwise.probing import Probe, Probes, ProbingTasks, ranked_heads
from headwise.studies._probing_study import ProbeConfig, open_tasks, probe_task, task_names
from headwise.studies._sections.grids import of_finetuning
from headwise.studies._training import APART, not_of_recipes, wrong
from headwise.tasks import KINDS, Task, metrics
from headwise.training import Train


class FineTuningRecipe(engine.Recipe):
    """Every model × task × embedding × seed. `after` probes the heads again after fine-tuning, for the first seed.

    The defaults of `training` are the paper's (A.4)."""

    kind: Literal["head-finetuning"]
    models: dict[str, engine.ModelName] = Field(min_length=1)
    tasks: ProbingTasks
    embeddings: tuple[Literal["last", "best", "top"], ...] = ("last", "best", "top")
    seeds: int = Field(5, ge=1)
    after: bool = True
    probing: Probe = Probe(pairs="together")
    training: Train = Train(epochs=3, max_length=128)


class FineTuneConfig(engine.Settings):
    model: engine.ModelName
    task: str
    tasks: ProbingTasks
    embedding: str
    probing: Probe
    training: Train
    after: bool


def source_of(found: Probes, task: str, embedding: str) -> HeadSet | int:
    """Where a model is fine-tuned from: the last layer, the best layer or the top heads, as validation chose them."""
    part = found.data.sel(task=task)
    if embedding == "last":
        return int(part.sizes["layer"]) - 1
    if embedding == "best":
        return int(np.argmax(part["layer_validation"].values))
    return HeadSet(ranked_heads(part["validation"].values)[: int(found.data.attrs["n_top"])])


@engine.step(version=2)
def fine_tune(config: FineTuneConfig, inputs: dict[str, Any], out: engine.Out) -> None:
    """One fine-tuning; keeps every prediction, and the probes of the tuned model if asked for."""
    from headwise.models import open_model
    from headwise.probing import EmbeddedModel, probe, three_splits
    from headwise.store import load
    from headwise.training import TrainingRun, evaluate

    (given,) = open_tasks(config.tasks, [config.task])
    splits = three_splits(given, config.probing.examples, config.probing.seed)
    task = Task.of(given.name, splits, metric=given.metric, synthetic=given.synthetic)
    before: Probes = load(inputs["probes"].model("probes"))
    source = source_of(before, task.name, config.embedding)
    opened = open_model(str(config.model), need="encoder")
    model = EmbeddedModel(opened.encoder, opened.tokenizer, [task], source, before.data.attrs["pooling"])
    TrainingRun(model, [task], settings=config.training.with_changes(seed=out.seed)).train()
    result = evaluate(model, task, split="test", max_length=config.training.max_length)
    scores = {
        name: metrics.score(name, task.kind, result.predictions, splits["test"].labels)
        for name in KINDS[task.kind].metrics
    }
    where = {
        "source": source.to_json() if isinstance(source, HeadSet) else str(source),
        "synthetic": task.synthetic,
    }
    out.table(
        "scores", pd.DataFrame([{"metric": name, "score": score, **where} for name, score in scores.items()])
    )
    out.table("predictions", pd.DataFrame({"prediction": result.predictions, "label": splits["test"].labels}))
    if config.after:
        changes: dict[str, Any] = {"controls": (), "sweep": (), "tokenizer": opened.tokenizer}
        tuned = probe(model.encoder, given, **config.probing.given() | changes)
        out.array("after", tuned.scores.squeeze("task", drop=True))
        out.model("probes", tuned)


@engine.step()
def compare(config: dict[str, Any], inputs: dict[str, Any], out: engine.Out) -> None:
    """Medians over seeds (Table 4), and each heat map's shift (Fig. 4)."""
    from headwise.probing import shift
    from headwise.store import load

    pairs = list(zip(inputs["tuned"], config["places"], strict=True))
    scores = pd.concat([result.table("scores").assign(**place) for result, place in pairs], ignore_index=True)
    by = ["model", "task", "metric", "embedding"]
    table = scores.groupby(by, sort=False)["score"].agg(["median", "mean", "std", "count"]).reset_index()
    out.table("fine-tuning", table)
    before = {
        (p["model"], p["task"]): load(r.model("probes"))
        for r, p in zip(inputs["probes"], config["probed"], strict=True)
    }
    rows = []
    for result, place in pairs:
        if place["after"]:
            moved = shift(before[place["model"], place["task"]], load(result.model("probes"))).table
            rows.append(moved.assign(model=place["model"], embedding=place["embedding"]))
    if rows:
        out.table("shift", pd.concat(rows, ignore_index=True))


def cells(recipe: FineTuningRecipe) -> Iterator[engine.Cell]:
    """Probes first, then one cell per fine-tuning, then the tables."""
    tuned, places, probed, where = [], [], [], []
    for label, model in recipe.models.items():
        for name in task_names(recipe.tasks):
            shared: dict[str, Any] = {
                "model": model,
                "task": name,
                "tasks": recipe.tasks,
                "probing": recipe.probing,
            }
            first = engine.Cell(
                probe_task,
                ProbeConfig(**shared),
                {"model": label, "task": name},
                seed=recipe.probing.seed,
                megabytes=10,
            )
            probed.append(first)
            where.append({"model": label, "task": name})
            for embedding in recipe.embeddings:
                for seed in range(recipe.seeds):
                    after = recipe.after and seed == 0
                    config = FineTuneConfig(
                        **shared, embedding=embedding, training=recipe.training, after=after
                    )
                    place: dict[str, Any] = {
                        "model": label,
                        "task": name,
                        "embedding": embedding,
                        "seed": seed,
                    }
                    tuned.append(engine.Cell(fine_tune, config, place, {"probes": first}, seed=seed))
                    places.append({**place, "after": after})
    yield from probed
    yield from tuned
    yield engine.Cell(compare, {"places": places, "probed": where}, {}, {"tuned": tuned, "probes": probed})


def check(recipe: FineTuningRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types."""
    yield from wrong("tasks", task_names, recipe.tasks)
    yield from not_of_recipes(recipe.training, {*APART, "pooling", "random_weights", "decoder_options"})


study = engine.Study(FineTuningRecipe, cells, check, of_finetuning)
