"""The similarity study as cells: sentence vectors, pair-wise transfers and head scores, the matrices from
them, and their link with D."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from pydantic import Field

from headwise import engine
from headwise.errors import HeadwiseError
from headwise.settings import operation
from headwise.similarity import Similarity
from headwise.store import load
from headwise.studies._sections.similarity import section
from headwise.studies._transfer_study import few_shot
from headwise.tasks import TaskSource, read_texts
from headwise.training import FewShot


class SimilarityRecipe(Similarity, engine.Recipe):
    """`models` names, for every task, the folder of the model trained on it alone; `tasks` where their data
    is, if the models do not remember it; `fewshot` how AHP's models are fine-tuned.

    `trained` is the run of a training study (or of `headwise train`): its single-task models and its
    multi-task model are taken where `models` and `multitask` are not given; `where` chooses among several
    (model, sampling, seed).
    """

    kind: Literal["similarity"] = "similarity"
    models: dict[str, engine.ModelName] = Field(default_factory=dict)
    trained: engine.DataPath | None = None
    where: dict[str, str | int] = Field(default_factory=dict)
    tasks: TaskSource = TaskSource()
    fewshot: FewShot = FewShot(epochs=3)


@engine.step()
def vectors(
    out: engine.Out,
    *,
    model: engine.ModelName,
    sentences: engine.DataPath | None,
    count: int,
    brain: engine.DataPath | None,
    pooling: str,
) -> None:
    """One task's vectors of the sentences, and of the brain data's sentences."""
    from headwise.models import open_model
    from headwise.similarity import read_pereira, sentence_vectors

    encoder = open_model(str(model), need="encoder", device="auto")
    texts: dict[str, list[str]] = {}
    if sentences is not None:
        texts["sentence-vectors"] = read_texts(sentences, count)
    if brain is not None:
        texts["brain-vectors"] = list(read_pereira(brain).sentences)
    for name, read in texts.items():
        values = sentence_vectors(encoder, read, pooling=pooling)
        out.array(name, xr.DataArray(values, dims=("sentence", "dim")))


@engine.step()
def head_scores(out: engine.Out, *, model: engine.ModelName, tasks: TaskSource, examples: int) -> None:
    """Gate-gradient scores of every task in the multi-task model, kept as `headwise.score` keeps them."""
    from headwise.models import remembered_tasks
    from headwise.scoring import score

    score(str(model), remembered_tasks(str(model), tasks), examples=examples, out=out.folder)


@engine.step()
def similarities(
    out: engine.Out,
    *,
    tasks: tuple[str, ...],
    pairs: tuple[tuple[str, str], ...],
    brain: engine.DataPath | None,
    dissociation: tuple[tuple[float, ...], ...] | None,
    paradigm: dict[str, str],
    synthetic: tuple[str, ...],
    alternative: Literal["two-sided", "less", "greater"],
    vectors: list[Any] | None = None,
    transfers: list[Any] | None = None,
    scores: engine.Result | None = None,
) -> None:
    """All matrices, their agreement, and their link with dissociation."""
    from headwise import similarity

    made_up = [task in synthetic for task in tasks]
    out.table("similarity-tasks", pd.DataFrame({"task": tasks, "synthetic": made_up}))
    matrices: dict[str, xr.DataArray] = {}
    by_task = dict(zip(tasks, vectors or [], strict=False))
    plain = {
        task: result.array("sentence-vectors").values
        for task, result in by_task.items()
        if "sentence-vectors.nc" in result.names
    }
    if plain:
        matrices |= {"DSE": similarity.dse(plain), "CRA": similarity.cra(plain)}
    if brain is not None:
        data = similarity.read_pereira(brain)
        matrices["CNM"] = similarity.cnm(
            {task: result.array("brain-vectors").values for task, result in by_task.items()}, data
        )
    if transfers:
        losses: dict[str, dict[str, Any]] = {task: {} for task in tasks}
        for (source, target), result in zip(pairs, transfers, strict=True):
            losses[target][source] = result.array("loss").mean("seed").values
        out.array("ahp-transfer", similarity.transfer_affinity(losses))
        matrices["AHP"] = similarity.ahp(losses)
    if scores is not None:
        # a grammar task's own name lacks its prefix
        named = load(scores.folder).assign_coords(task=list(tasks))
        matrices["heads"] = similarity.head_similarity(named)
    for name, matrix in matrices.items():
        out.array(name.lower(), matrix)
    if len(matrices) > 1:
        out.table("agreement", similarity.agreement(matrices))
    if dissociation is not None:
        d = similarity.labelled(np.array(dissociation), list(tasks), "dissociation")
        result = similarity.link(matrices, d, paradigm=paradigm, alternative=alternative)
        out.table("similarity-pairs", result.pairs)
        out.table("similarity-link", result.tests)
        if result.paradigm_means:
            out.json("paradigm-means", dict(result.paradigm_means))
    else:
        rows = []
        for task, partner in combinations(tasks, 2):
            values = {name: float(matrix.sel(task=task, other=partner)) for name, matrix in matrices.items()}
            rows.append({"task": task, "other": partner, **values})
        out.table("similarity-pairs", pd.DataFrame(rows))


def cells(recipe: SimilarityRecipe) -> Iterator[engine.Cell]:
    """Vectors per task, transfers per ordered pair, head scores, and the matrices."""
    recipe = with_models(recipe)
    names = tuple(recipe.models)
    measured: dict[str, Any] = {}
    if recipe.sentences is not None or recipe.brain is not None:
        read = {
            "sentences": recipe.sentences,
            "count": recipe.sentence_count,
            "brain": recipe.brain,
            "pooling": recipe.pooling,
        }
        measured["vectors"] = [
            engine.Cell(vectors, {"model": model, **read}, {"task": task})
            for task, model in recipe.models.items()
        ]
    pairs: list[tuple[str, str]] = []
    if recipe.ahp:
        pairs = list(product(names, names))
        sources = {name: _known_as(recipe, name) for name in names}
        measured["transfers"] = [
            _transfer(recipe, source, target, sources[target]) for source, target in pairs
        ]
    if recipe.multitask is not None:
        arguments = {
            "model": recipe.multitask,
            "tasks": _source(recipe, *names),
            "examples": recipe.score_examples,
        }
        measured["scores"] = engine.Cell(head_scores, arguments)
    for name in ("vectors", "transfers"):
        yield from measured.get(name, [])
    if "scores" in measured:
        yield measured["scores"]
    arguments = {
        **measured,
        "tasks": names,
        "pairs": pairs,
        "brain": recipe.brain,
        "dissociation": _dissociation(recipe),
        "paradigm": _paradigms(recipe) if recipe.dissociation else {},
        "synthetic": _generated(recipe),
        "alternative": recipe.alternative,
    }
    yield engine.Cell(similarities, arguments)


def _transfer(recipe: SimilarityRecipe, source: str, target: str, examples: TaskSource) -> engine.Cell:
    """The fine-tuning of one task's model on few examples of another task."""
    arguments = {
        "source": recipe.models[source],
        "task": examples.names[0],
        "tasks": examples,
        "shots": recipe.shots,
        "seeds": recipe.seeds,
        "fewshot": recipe.fewshot,
        "evaluate": recipe.evaluate,
    }
    return engine.Cell(few_shot, arguments, {"source_task": source, "target_task": target})


def check(recipe: SimilarityRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types; a study without any metric is a mistake."""
    if recipe.tasks.names:
        yield "tasks.names: the tasks are those of the models; remove it"
    try:
        recipe = with_models(recipe)
    except HeadwiseError as error:
        yield f"trained: {error}"
        return
    if len(recipe.models) < 3:
        hint = "name them, or give trained, the run of a training study"
        if recipe.models:
            hint = f"given {', '.join(recipe.models)}"
        yield f"models: three tasks or more are compared, each with a model trained on it alone; {hint}"
        return
    if recipe.sentences is None and recipe.brain is None and not recipe.ahp and recipe.multitask is None:
        yield (
            "the recipe requests no similarity: give sentences (DSE, CRA), brain (CNM), ahp = true (AHP) or "
            "multitask (heads)"
        )
    try:
        _dissociation(recipe)
    except HeadwiseError as error:
        yield f"dissociation: {error}"


def with_models(recipe: SimilarityRecipe) -> SimilarityRecipe:
    """The recipe with the models of the run named `trained`, where it names none itself.

    Raises:
        HeadwiseError: the run is unfinished, lacks them, or has several.
    """
    from headwise.studies._trained import multi_task_model, single_task_models

    if recipe.trained is None:
        return recipe
    models, together = dict(recipe.models), recipe.multitask
    if not models:
        alone = single_task_models(recipe.trained, recipe.where)
        models = {task: engine.ModelName(folder) for task, folder in alone.items()}
    if together is None:
        folder = multi_task_model(recipe.trained, recipe.where)
        if folder is not None:
            together = engine.ModelName(folder)
    return recipe.model_copy(update={"models": models, "multitask": together})


def _dissociation(recipe: SimilarityRecipe) -> tuple[tuple[float, ...], ...] | None:
    """D of every pair, in the order of the models: values, so that a cell's key does not depend on the file
    that they come from."""
    from headwise.studies._mean_d import read_dissociation

    if recipe.dissociation is None:
        return None
    matrix = read_dissociation(recipe.dissociation, recipe.models, recipe.dissociation_model)
    return tuple(tuple(row) for row in matrix.values.tolist())


def _paradigms(recipe: SimilarityRecipe) -> dict[str, str]:
    from headwise.models import remembered_tasks

    model_tasks = {
        name: remembered_tasks(str(model), _source(recipe, name))[0] for name, model in recipe.models.items()
    }
    return {name: "two" if task.pairs else "one" for name, task in model_tasks.items()}


def _generated(recipe: SimilarityRecipe) -> tuple[str, ...]:
    """Tasks whose text was generated, as far as models or the recipe say where it came from: sentences and
    brain data need neither."""
    from headwise.models import remembered_tasks

    generated = []
    for name, model in recipe.models.items():
        with suppress(HeadwiseError):
            generated += [name] * remembered_tasks(str(model), _source(recipe, name))[0].synthetic
    return tuple(generated)


def _source(recipe: SimilarityRecipe, *names: str) -> TaskSource:
    return recipe.tasks.with_changes(names=names)


def _known_as(recipe: SimilarityRecipe, task: str) -> TaskSource:
    """Where a task's examples come from: what the recipe says, else what its model remembers."""
    from headwise.models import remembered_tasks

    (remembered,) = remembered_tasks(str(recipe.models[task]), _source(recipe, task))
    origin: dict[str, Any] = remembered.origin or {}
    settings = {key: origin.get(key) or None for key in ("data", "file", "size", "seed", "held_out")}
    return TaskSource(names=(origin["name"],), **settings)


SIMILARITY = engine.Study(SimilarityRecipe, cells, check, section)


@operation(Similarity)
def similarity_study(models: Mapping[str, str | Path], out: str | Path, settings: Similarity) -> engine.Run:
    """Similarity of tasks by DSE, CRA, CNM, AHP and heads, and its link with dissociation: the study of this
    kind.

    Args:
        models: by task, the folder of the model trained on it alone; at least three.
        out: the run's folder; the same call again resumes it.

    Returns:
        the run: `table("similarity-pairs")`, `array("dse")`, ..., `table("similarity-link")`.
    """
    recipe = {
        "kind": "similarity",
        "models": {task: str(folder) for task, folder in models.items()},
        **settings.to_table(),
    }
    return engine.run_recipe(SIMILARITY, recipe, out, quiet=True)
