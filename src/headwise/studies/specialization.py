"""The specialization study: models × groups of tasks × methods × seeds, trained, lesioned and dissociated.

Functional specialization: the dual-task grid with its frozen control (Fig. 2, Table 9), five tasks (Tables 3, 10, 11, Fig. 4), input
paradigms (Table 4), what important-head training does to D (Fig. 8), its δ and α (Figs. 9, 10), and the ablation (Table 7).
"""

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any, Literal

from pydantic import Field

from headwise import runs
from headwise.errors import HeadwiseError
from headwise.studies.specialization_steps import DissociationConfig, Lesioning, TablesConfig, dissociation, own_alpha, tables
from headwise.studies.training import CellConfig, MethodName, StudyTasks, TrainingBlock, train_methods
from headwise.training.samplers import SAMPLINGS

BRANCHING = ("multi-task", "iat", "random-heads", "prune")  # plain training up to a point, so that they share it
WITH_HEADS = ("iat", "random-heads", "prune")  # methods that have α and δ


class SpecializationRecipe(runs.Recipe):
    """What is trained, and how it is lesioned.

    `groups` is "pairs" (every pair of `tasks.names` is trained together, one model each), "together" (all at once), or a list of lists
    of names. `frozen` names models that are also trained with a frozen encoder, as a control.
    """

    kind: Literal["specialization"]
    models: dict[str, runs.ModelName] = Field(min_length=1)
    tasks: StudyTasks
    groups: Literal["pairs", "together"] | tuple[tuple[str, ...], ...] = "together"
    methods: tuple[MethodName, ...] = ("multi-task",)
    frozen: tuple[str, ...] = ()
    alphas: tuple[float, ...] = (0.3,)
    deltas: tuple[float, ...] = (0.1,)
    sampling: str = "proportional"
    seeds: int = Field(3, ge=1)
    dissociate: bool = True
    keep_models: bool = True
    lesions: Lesioning = Lesioning()
    training: TrainingBlock = TrainingBlock()


def groups_of(recipe: SpecializationRecipe) -> list[tuple[str, ...]]:
    """The groups of tasks that are trained together."""
    if recipe.groups == "pairs":
        return list(combinations(recipe.tasks.names, 2))
    if recipe.groups == "together":
        return [recipe.tasks.names]
    return [tuple(group) for group in recipe.groups]


def cells(recipe: SpecializationRecipe) -> Iterator[runs.Cell]:
    """Trainings, the dissociation of each trained model, and the tables over all."""
    training: dict[str, Any] = recipe.training.model_dump(mode="json")
    trained: list[runs.Cell] = []
    lesioned: list[runs.Cell] = []
    for label, group, seed, (number, (alpha, delta)) in _grid(recipe):
        names = StudyTasks(**{**recipe.tasks.model_dump(), "names": group})
        for methods in _method_groups(recipe, label, first=number == 0):
            place: dict[str, Any] = {"model": label, "group": "+".join(group), "alpha": alpha, "delta": delta, "seed": seed}
            config = CellConfig(
                model=recipe.models[label],
                tasks=names,
                methods=methods,
                sampling=recipe.sampling,
                alpha=alpha,
                delta=delta,
                predict=(),
                keep_models=recipe.keep_models or recipe.dissociate,
                training=training,
            )
            cell = runs.Cell(train_methods, config, {**place, "methods": "+".join(methods)}, seed=seed, megabytes=500)
            trained.append(cell)
            yield cell
            for method in methods if recipe.dissociate else ():
                own = {**place, **own_alpha(method, place), "method": method}
                settings = DissociationConfig(
                    tasks=names, method=method, lesions=recipe.lesions, max_length=training["max_length"]
                )
                lesioned.append(runs.Cell(dissociation, settings, own, {"trained": cell}, seed=seed, megabytes=20))
    yield from lesioned
    places = TablesConfig(
        tasks=recipe.tasks,
        trained=tuple({k: v for k, v in cell.coords.items() if k != "methods"} for cell in trained),
        lesioned=tuple(dict(cell.coords) for cell in lesioned),
    )
    yield runs.Cell(tables, places, {}, {"trained": trained, "lesioned": lesioned})


def _grid(recipe: SpecializationRecipe) -> Iterator[tuple[str, tuple[str, ...], int, tuple[int, tuple[float, float]]]]:
    settings = [(alpha, delta) for alpha in recipe.alphas for delta in recipe.deltas]
    for label in recipe.models:
        for group in groups_of(recipe):
            for seed in range(recipe.seeds):
                for numbered in enumerate(settings):
                    yield label, group, seed, numbered


def _method_groups(recipe: SpecializationRecipe, label: str, first: bool) -> list[tuple[str, ...]]:
    """Methods trained in one cell; those without α and δ only once, with the first of them."""
    wanted = [method for method in recipe.methods if first or method in WITH_HEADS]
    branching = tuple(method for method in wanted if method in BRANCHING)
    alone: list[str] = [method for method in wanted if method not in BRANCHING]
    if first and label in recipe.frozen and "frozen" not in alone:
        alone.append("frozen")
    return [group for group in (branching, *((method,) for method in alone)) if group]


def check(recipe: SpecializationRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types."""
    from headwise.scoring import METHODS
    from headwise.tasks import find_tasks

    if recipe.sampling not in SAMPLINGS:
        yield f"sampling: {recipe.sampling!r} is unknown; choose from {', '.join(SAMPLINGS)}"
    if recipe.dissociate and "single-task" in recipe.methods:
        yield "methods: single-task training gives one model a task, which cannot be dissociated; set dissociate = false"
    if "distil" in recipe.methods:
        yield 'methods: distil needs a teacher, which a training recipe names (kind = "training", [teachers])'
    if recipe.lesions.method not in METHODS:
        yield f"lesions.method: {recipe.lesions.method!r} is unknown; choose from {', '.join(METHODS)}"
    for label in recipe.frozen:
        if label not in recipe.models:
            yield f"frozen: {label!r} is not among the models: {', '.join(recipe.models)}"
    for group in groups_of(recipe):
        unknown = [name for name in group if name not in recipe.tasks.names]
        if unknown:
            yield f"groups: {unknown[0]!r} is not among tasks.names: {', '.join(recipe.tasks.names)}"
        if recipe.dissociate and len(group) < 2:
            yield f"groups: {list(group)} is one task; a dissociation compares two or more"
    try:
        find_tasks(recipe.tasks.names, recipe.tasks.data, recipe.tasks.file, size=recipe.tasks.size)
    except HeadwiseError as error:
        yield f"tasks: {error}"


study = runs.Study(SpecializationRecipe, cells, check)
