"""Fine-tuning from the last layer, the best layer and the top-n heads (Table 4), and what it does to the heat
maps (Fig. 4)."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from headwise import engine
from headwise.heads import HeadSet
from headwise.probing import Probe, Probes, ProbingTasks, ranked_heads
from headwise.store import load
from headwise.studies._probing_study import open_tasks, probing_cell, task_names
from headwise.studies._sections.grids import of_finetuning
from headwise.studies._training import APART, not_of_recipes, wrong
from headwise.tasks import KINDS, Task, metrics
from headwise.training import Train


class FineTuningRecipe(engine.Recipe):
    """Every model × task × embedding × seed. `after` probes the heads again after fine-tuning, for the first
    seed.

    The defaults of `training` are the paper's (A.4)."""

    kind: Literal["head-finetuning"]
    models: dict[str, engine.ModelName] = Field(min_length=1)
    tasks: ProbingTasks
    embeddings: tuple[Literal["last", "best", "top"], ...] = ("last", "best", "top")
    seeds: int = Field(5, ge=1)
    after: bool = True
    probing: Probe = Probe(pairs="together")
    training: Train = Train(epochs=3, max_length=128)


def source_of(probes: Probes, task: str, embedding: str) -> HeadSet | int:
    """Where a model is fine-tuned from: the last layer, the best layer or the top heads, as validation chose
    them."""
    task_scores = probes.data.sel(task=task)
    if embedding == "last":
        return int(task_scores.sizes["layer"]) - 1
    if embedding == "best":
        return int(np.argmax(task_scores["layer_validation"].values))
    return HeadSet(ranked_heads(task_scores["validation"].values)[: int(probes.data.attrs["n_top"])])


@engine.step(version=2)
def fine_tune(
    out: engine.Out,
    *,
    probed: engine.Result,
    model: engine.ModelName,
    task: str,
    tasks: ProbingTasks,
    embedding: str,
    probing: Probe,
    training: Train,
    after: bool,
) -> None:
    """One fine-tuning; keeps every prediction, and the probes of the tuned model if asked for."""
    from headwise.models import open_model
    from headwise.probing import EmbeddedModel, probe, three_splits
    from headwise.training import TrainingRun, evaluate

    (source_task,) = open_tasks(tasks, [task])
    splits = three_splits(source_task, probing.examples, probing.seed)
    tuned = Task.from_examples(
        source_task.name, splits, metric=source_task.metric, synthetic=source_task.synthetic
    )
    before: Probes = load(probed.model("probes"))
    source = source_of(before, tuned.name, embedding)
    opened = open_model(str(model), need="encoder")
    embedded = EmbeddedModel(opened.encoder, opened.tokenizer, [tuned], source, before.data.attrs["pooling"])
    TrainingRun(embedded, [tuned], settings=training.with_changes(seed=out.seed)).train()
    result = evaluate(embedded, tuned, split="test", max_length=training.max_length)
    scores = {
        name: metrics.score(name, tuned.kind, result.predictions, splits["test"].labels)
        for name in KINDS[tuned.kind].metrics
    }
    where = {
        "source": source.to_json() if isinstance(source, HeadSet) else str(source),
        "synthetic": tuned.synthetic,
    }
    out.table(
        "scores", pd.DataFrame([{"metric": name, "score": score, **where} for name, score in scores.items()])
    )
    out.table("predictions", pd.DataFrame({"prediction": result.predictions, "label": splits["test"].labels}))
    if after:
        changes: dict[str, Any] = {"controls": (), "sweep": (), "tokenizer": opened.tokenizer}
        probes = probe(embedded.encoder, source_task, **probing.given() | changes)
        out.array("after", probes.scores.squeeze("task", drop=True))
        out.model("probes", probes)


@engine.step()
def compare(
    out: engine.Out,
    *,
    tuned: list[engine.Result],
    places: list[dict[str, Any]],
    probed: list[engine.Result],
    probed_places: list[dict[str, Any]],
) -> None:
    """Medians over seeds (Table 4), and each heat map's shift (Fig. 4); `places` are the coordinates of the
    results, and whether heads were probed after."""
    from headwise.probing import shift

    pairs = list(zip(tuned, places, strict=True))
    scores = pd.concat(
        [result.table("scores").assign(**coords) for result, coords in pairs], ignore_index=True
    )
    by = ["model", "task", "metric", "embedding"]
    table = scores.groupby(by, sort=False)["score"].agg(["median", "mean", "std", "count"]).reset_index()
    out.table("fine-tuning", table)
    before = {
        (coords["model"], coords["task"]): load(result.model("probes"))
        for result, coords in zip(probed, probed_places, strict=True)
    }
    rows = []
    for result, coords in pairs:
        if coords["after"]:
            moved = shift(before[coords["model"], coords["task"]], load(result.model("probes"))).table
            rows.append(moved.assign(model=coords["model"], embedding=coords["embedding"]))
    if rows:
        out.table("shift", pd.concat(rows, ignore_index=True))


def cells(recipe: FineTuningRecipe) -> Iterator[engine.Cell]:
    """Probes first, then one cell per fine-tuning, then the tables."""
    tuned, tuned_coords, probed = [], [], []
    for (label, model), name in product(recipe.models.items(), task_names(recipe.tasks)):
        first = probing_cell(label, model, name, recipe.tasks, recipe.probing)
        probed.append(first)
        for embedding, seed in product(recipe.embeddings, range(recipe.seeds)):
            after = recipe.after and seed == 0
            arguments = {
                **first.settings,
                "probed": first,
                "embedding": embedding,
                "training": recipe.training,
                "after": after,
            }
            coords = {"model": label, "task": name, "embedding": embedding, "seed": seed}
            tuned.append(engine.Cell(fine_tune, arguments, coords, seed=seed))
            tuned_coords.append({**coords, "after": after})
    yield from probed
    yield from tuned
    arguments = {
        "tuned": tuned,
        "places": tuned_coords,
        "probed": probed,
        "probed_places": [dict(cell.coords) for cell in probed],
    }
    yield engine.Cell(compare, arguments)


def check(recipe: FineTuningRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types."""
    yield from wrong("tasks", task_names, recipe.tasks)
    yield from not_of_recipes(recipe.training, {*APART, "pooling", "random_weights", "decoder_options"})


study = engine.Study(FineTuningRecipe, cells, check, of_finetuning)
