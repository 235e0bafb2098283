"""The specialization study: models × groups of tasks × methods × seeds, trained, lesioned and dissociated.

Functional specialization: the dual-task grid with its frozen control (Fig. 2, Table 9), five tasks (Tables 3,
10, 11, Fig. 4), input paradigms (Table 4), what important-head training does to D (Fig. 8), its δ and α
(Figs. 9, 10), and the ablation (Table 7).
"""

from collections.abc import Iterable, Iterator
from itertools import combinations, product
from typing import Any, Literal

from pydantic import Field

from headwise import engine
from headwise.lesions import Dissociate
from headwise.scoring import check_options
from headwise.studies._method_settings import megabytes_of, of_methods, warn_of_replaced
from headwise.studies._sections.grids import of_specialization
from headwise.studies._specialization_steps import (
    SCORING,
    dissociation,
    tables,
)
from headwise.studies._training import (
    MethodName,
    alpha_and_delta,
    model_name,
    not_of_recipes,
    train_methods,
    wrong,
)
from headwise.tasks import TaskSource
from headwise.training import Sampling, Train, grid_entries
from headwise.training.methods import METHODS, make_method, option_names

SCORING_SETTINGS = {"method", "variant", "score_examples", "options"}


class SpecializationRecipe(engine.Recipe):
    """What is trained, and how it is lesioned.

    `groups` is "pairs" (every pair of the tasks is trained together, one model each), "together" (all at
    once), or a list of lists of names. `frozen` names models that are also trained with a frozen encoder, as
    a control. `scorings` dissociates every trained model once for each way to score heads, a name with
    settings that replace those of `lesions`: method, variant, score_examples, options.
    """

    kind: Literal["specialization"]
    models: dict[str, engine.ModelName] = Field(min_length=1)
    tasks: TaskSource
    groups: Literal["pairs", "together"] | tuple[tuple[str, ...], ...] = "together"
    methods: tuple[MethodName, ...] = ("multi-task",)
    frozen: tuple[str, ...] = ()
    alphas: tuple[float, ...] = (0.3,)
    deltas: tuple[float, ...] = (0.1,)
    sampling: Sampling = "proportional"
    seeds: int = Field(3, ge=1)
    dissociate: bool = True
    keep_models: bool = True
    method_options: dict[MethodName, dict[str, Any]] = Field(default_factory=dict)
    lesions: Dissociate = Dissociate()
    scorings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    training: Train = Train()


def groups_of(recipe: SpecializationRecipe) -> list[tuple[str, ...]]:
    """The groups of tasks that are trained together."""
    if recipe.groups == "pairs":
        return list(combinations(recipe.tasks.listed(), 2))
    if recipe.groups == "together":
        return [recipe.tasks.listed()]
    return [tuple(group) for group in recipe.groups]


def cells(recipe: SpecializationRecipe) -> Iterator[engine.Cell]:
    """Trainings, the dissociation of each trained model, and the tables over all."""
    training = recipe.training.with_changes(sampling=recipe.sampling)
    trained: list[engine.Cell] = []
    lesioned: list[engine.Cell] = []
    for label, group, seed in product(recipe.models, groups_of(recipe), range(recipe.seeds)):
        names = recipe.tasks.with_changes(names=group)
        for methods in _method_groups(recipe, label):
            training_coords: dict[str, Any] = {"model": label, "group": "+".join(group), "seed": seed}
            optional = set[str]().union(*(option_names(method) for method in methods))
            sweep = {"alpha": recipe.alphas, "delta": recipe.deltas}
            swept = {name: values for name, values in sweep.items() if name in optional}
            keep_models = recipe.keep_models or recipe.dissociate
            arguments = {
                "model": recipe.models[label],
                "tasks": names,
                "methods": methods,
                "sweep": swept,
                "method_options": recipe.method_options,
                "keep_models": keep_models,
                "training": of_methods(training, methods),
            }
            entries = grid_entries(methods, swept) if keep_models else {}
            needed = megabytes_of(recipe.models[label], len(entries))
            coords = {**training_coords, "methods": "+".join(methods)}
            cell = engine.Cell(train_methods, arguments, coords, seed=seed, megabytes=needed)
            trained.append(cell)
            yield cell
            if not recipe.dissociate:
                continue
            scorings = recipe.scorings or {"": {}}
            for (name, (method, options)), (scoring, changes) in product(entries.items(), scorings.items()):
                lesions = recipe.lesions.with_changes(
                    max_length=recipe.lesions.max_length or training.max_length, **changes
                )
                arguments = {"trained": cell, "model": model_name(name), "tasks": names, "lesions": lesions}
                where = {**training_coords, **alpha_and_delta(options), "method": method}
                if scoring:
                    where[SCORING] = scoring
                lesioned.append(engine.Cell(dissociation, arguments, where, seed=seed, megabytes=20))
    yield from lesioned
    trained_coords = []
    for cell in trained:
        trained_coords.append({name: value for name, value in cell.coords.items() if name != "methods"})
    arguments = {
        "tasks": recipe.tasks,
        "trained": trained,
        "trained_places": trained_coords,
        "lesioned": lesioned,
        "lesioned_places": [dict(cell.coords) for cell in lesioned],
    }
    yield engine.Cell(tables, arguments)


def _method_groups(recipe: SpecializationRecipe, label: str) -> list[tuple[str, ...]]:
    """Methods trained in one cell, with all their α and δ: those that share their first steps."""
    branching = tuple(method for method in recipe.methods if METHODS[method].shared_beginning)
    alone = [method for method in recipe.methods if method not in branching]
    if label in recipe.frozen and "frozen" not in alone:
        alone.append("frozen")
    groups: list[tuple[str, ...]] = [(method,) for method in alone]
    return [branching, *groups] if branching else groups


def _scored(lesions: Dissociate, changes: dict[str, Any]) -> None:
    """Raises where a scoring has unknown settings."""
    changed = lesions.with_changes(**changes)
    check_options(changed.method, changed.own)


def check(recipe: SpecializationRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types."""
    warn_of_replaced(recipe.training, recipe.methods, recipe.method_options)
    for method, options in recipe.method_options.items():
        yield from wrong(f"method_options.{method}", make_method, method, **options)
    yield from not_of_recipes(recipe.training)
    if recipe.dissociate and "single-task" in recipe.methods:
        yield (
            "methods: single-task training makes one model per task, which cannot be dissociated; set "
            "dissociate = false"
        )
    if "distil" in recipe.methods:
        yield 'methods: distil needs a teacher, which a training recipe names (kind = "training", [teachers])'
    yield from wrong("lesions", check_options, recipe.lesions.method, recipe.lesions.own)
    for name, changes in recipe.scorings.items():
        if foreign := sorted(set(changes) - SCORING_SETTINGS):
            shared = [key for key in foreign if key in Dissociate.model_fields]
            hint = ""
            if shared:
                hint = f"; all scorings share {', '.join(shared)}: set it under [lesions]"
            yield (
                f"scorings.{name}: {', '.join(foreign)} cannot be set here; a scoring has "
                f"{', '.join(sorted(SCORING_SETTINGS))}{hint}"
            )
        else:
            yield from wrong(f"scorings.{name}", _scored, recipe.lesions, changes)
    for name in {"seed", "scores", "out"} & recipe.lesions.model_fields_set:
        yield f"lesions.{name}: the study sets it for each model; remove it"
    for label in recipe.frozen:
        if label not in recipe.models:
            yield f"frozen: {label!r} is not among the models: {', '.join(recipe.models)}"
    problems = list(wrong("tasks", recipe.tasks.check))
    if problems:
        yield from problems
        return
    names = recipe.tasks.listed()
    for group in groups_of(recipe):
        unknown = [name for name in group if name not in names]
        if unknown:
            yield f"groups: {unknown[0]!r} is not among the tasks: {', '.join(names)}"
        if recipe.dissociate and len(group) < 2:
            yield f"groups: {list(group)} is one task; a dissociation compares two or more"


study = engine.Study(SpecializationRecipe, cells, check, of_specialization)
