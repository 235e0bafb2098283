"""The transfer study as cells: every source model × new task × number of shots, then the tables and tests
over all of them."""

from collections.abc import Iterable, Iterator
from itertools import chain, product
from typing import Any, Literal

import pandas as pd
from pydantic import Field

from headwise import engine
from headwise.errors import HeadwiseError
from headwise.store import manifest
from headwise.studies._sections.transfer import section
from headwise.studies._training import wrong
from headwise.studies._transfer import compare_transfers, held_out_examples, summary
from headwise.tasks import PRESETS, TaskSource
from headwise.training import FewShot, Shots
from headwise.training.methods import METHODS


class TransferRecipe(engine.Recipe, Shots):
    """`sources` names, for every training method, the folders of its trained models; `trained` a run that
    holds them all. A test needs six models of each method.

    `trained` is the folder of `headwise train` or of a training study; `where` chooses among its models
    (model, sampling, seed).
    """

    kind: Literal["transfer"]
    sources: dict[str, tuple[engine.ModelName, ...]] = Field(default_factory=dict)
    trained: engine.DataPath | None = None
    where: dict[str, str | int] = Field(default_factory=dict)
    tasks: TaskSource
    baseline: str = ""
    fewshot: FewShot = FewShot()


@engine.step()
def few_shot(
    out: engine.Out,
    *,
    source: engine.ModelName,
    task: str,
    tasks: TaskSource,
    shots: int,
    seeds: int,
    fewshot: FewShot,
    evaluate: int | None = None,
) -> None:
    """All seeds of one source model, task and number of shots; keeps every prediction and loss."""
    from headwise.models import open_model
    from headwise.tasks import chance_level
    from headwise.training import few_shot as run

    (target,) = tasks.find([task])
    held_out = held_out_examples(target, evaluate)
    model = open_model(str(source), need="encoder", device="auto", dtype="float32")
    settings = fewshot.with_changes(evaluate_on=held_out)
    result = run(model, target, shots, range(seeds), **settings.given())
    scores = pd.DataFrame({"seed": result["seed"].values, "score": result["score"].values})
    facts = {name: result.attrs[name] for name in ("metric", "max_length", "note")}
    facts |= {
        "chance": chance_level(facts["metric"], target.kind, held_out.labels),
        "tuning": fewshot.tuning,
    }
    out.table("few-shot", scores.assign(examples=len(held_out), synthetic=target.synthetic, **facts))
    out.array("prediction", result["prediction"])
    out.array("loss", result["loss"])


@engine.step()
def compare(
    out: engine.Out, *, tuned: list[engine.Result], places: list[dict[str, Any]], baseline: str
) -> None:
    """The tables over all cells; `places` are their coordinates."""
    frames = [result.table("few-shot").assign(**coords) for result, coords in zip(tuned, places, strict=True)]
    scores = pd.concat(frames, ignore_index=True)
    out.table("transfer", summary(scores))
    if scores["method"].nunique() > 1:
        out.table("transfer-tests", compare_transfers(scores, baseline))


def cells(recipe: TransferRecipe) -> Iterator[engine.Cell]:
    """One cell per source model, task and number of shots, and one over all."""
    tuned: list[engine.Cell] = []
    sources = sources_of(recipe)
    numbered = []
    for method, models in sources.items():
        numbered += [(method, number, model) for number, model in enumerate(models)]
    for (method, number, source), task, shots in product(numbered, recipe.tasks.names, recipe.shots):
        arguments = {
            "source": source,
            "task": task,
            "tasks": recipe.tasks,
            "shots": shots,
            "seeds": recipe.seeds,
            "fewshot": recipe.fewshot,
            "evaluate": recipe.evaluate,
        }
        coords = {"method": method, "source": number, "task": task, "shots": shots}
        tuned.append(engine.Cell(few_shot, arguments, coords))
    yield from tuned
    tuned_coords = [dict(cell.coords) for cell in tuned]
    baseline = recipe.baseline or next(iter(sources))
    yield engine.Cell(compare, {"tuned": tuned, "places": tuned_coords, "baseline": baseline})


def sources_of(recipe: TransferRecipe) -> dict[str, list[engine.ModelName]]:
    """The source models by method: those named, then those of the run named `trained`."""
    from headwise.studies._trained import trained_models

    sources = {method: list(models) for method, models in recipe.sources.items()}
    if recipe.trained is not None:
        for method, folders in trained_models(recipe.trained, recipe.where).items():
            sources.setdefault(method, []).extend(engine.ModelName(folder) for folder in folders)
    return sources


def check(recipe: TransferRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types."""
    try:
        sources = sources_of(recipe)
    except HeadwiseError as error:
        yield f"trained: {error}"
        return
    if not sources:
        yield (
            "sources: there are none; name model folders by method, or give trained, the folder of a "
            "training run"
        )
    if recipe.baseline and recipe.baseline not in sources:
        yield f"baseline: {recipe.baseline!r} is not among the sources: {', '.join(sources)}"
    if not recipe.tasks.names:
        yield "tasks.names: missing; name the new tasks"
    not_presets = [
        name
        for name in recipe.tasks.names
        if not name.startswith("grammar:") and name.lower().replace("-", "_") not in PRESETS
    ]
    if recipe.tasks.file is None:
        for name in not_presets:
            yield f"tasks.names: {name!r} is not a preset; give tasks.file, a TOML file that defines it"
    if recipe.tasks.names and (recipe.tasks.file is not None or not not_presets):
        yield from wrong("tasks", recipe.tasks.check)
    for folder in chain.from_iterable(sources.values()):
        for method in METHODS.keys() & (manifest.read(folder).get("notes") or {}).keys():
            if METHODS[method].stays:
                yield (
                    f"sources: {folder} was trained by {method} and cannot be transferred: "
                    f"{METHODS[method].stays}"
                )
    lengths = {method: len(models) for method, models in sources.items()}
    if len(set(lengths.values())) > 1:
        yield f"sources: a paired comparison needs the same number of models for each method, given {lengths}"


transfer_study = engine.Study(TransferRecipe, cells, check, section)
