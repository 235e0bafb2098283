"""The training study: models × samplings × seeds, each with several methods, and the tables of tasks ×
methods over all of them.

Tables 5, 12 and 13 of the first paper: plain multi-task training and important-head training on GLUE, for
five models.
"""

import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import AfterValidator, Field

from headwise import engine
from headwise.errors import HeadwiseError
from headwise.settings import marks
from headwise.studies._method_settings import megabytes_of, of_methods, warn_of_replaced
from headwise.studies._sections.grids import of_training
from headwise.studies._training_tables import differences_of, table_of
from headwise.tasks import TaskSource
from headwise.training import Sampling, Train
from headwise.training.methods import METHODS, make_method, option_names

SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ,.=_-]*")
APART = {
    "seed",
    "sampling",
    "predict",
    "out",
    "device",
    "trackers",
    "quiet",
    "trust_remote_code",
}  # set by the study, or the command


def _method(name: str) -> str:
    try:
        return METHODS.check(name)
    except HeadwiseError as error:
        raise ValueError(str(error)) from None  # so that the recipe's other mistakes are reported too


MethodName = Annotated[str, AfterValidator(_method)]
"""The name of a method in a recipe, one of `headwise.training.METHODS`."""


class Variant(engine.Settings):
    """A method under a name of its own, with options: `[variants.iat-drift] method = "iat", options = {drift
    = true}`."""

    method: MethodName
    options: dict[str, Any] = Field(default_factory=dict)

    def to_options(self) -> dict[str, Any]:
        """The method and its options, as `headwise.training.compare` takes them."""
        return {"method": self.method, **self.options}


class TrainingRecipe(engine.Recipe):
    """What is trained and compared.

    `further` names methods of some models only. `method_options` has a table for each method whose options
    are other than its defaults; such a method is trained on its own, not from the others' common beginning.
    `variants` are methods trained once more under another name with other options; they share the common
    beginning where their method does. `teachers` names, for a student, the model it is distilled from: the
    teacher is fine-tuned by plain multi-task training, the student distilled under it (method "distil"), and
    the student's other methods start from there; its single-task models are each distilled under a teacher of
    their task alone.
    """

    kind: Literal["training"]
    models: tuple[engine.ModelName, ...] = Field(min_length=1)
    tasks: TaskSource
    methods: tuple[MethodName, ...] = ("multi-task", "iat")
    further: dict[engine.ModelName, tuple[MethodName, ...]] = Field(default_factory=dict)
    method_options: dict[MethodName, dict[str, Any]] = Field(default_factory=dict)
    variants: dict[str, Variant] = Field(default_factory=dict)
    teachers: dict[engine.ModelName, engine.ModelName] = Field(default_factory=dict)
    samplings: tuple[Sampling, ...] = ("proportional",)
    alpha: float = Field(0.3, ge=0, le=1)
    delta: float = Field(0.1, ge=0, le=1)
    seeds: int = Field(3, ge=1)
    predict: tuple[str, ...] = ()
    keep_models: bool = True
    training: Train = Train()


@engine.step(name="training")
def train_methods(
    out: engine.Out,
    *,
    model: engine.ModelName,
    tasks: TaskSource,
    methods: tuple[str, ...],
    sweep: dict[str, tuple[float, ...]],
    keep_models: bool,
    training: Train,
    options: dict[str, Any] | None = None,
    method_options: dict[str, dict[str, Any]] | None = None,
    variants: dict[str, Variant] | None = None,
    teacher: engine.ModelName | None = None,
    taught: engine.Result | None = None,
    student: engine.Result | None = None,
) -> None:
    """All methods of one model, sampling and seed; those that share their beginning share it.

    `student` is the training that distilled the model these methods start from, `taught` the one that made
    the teacher.
    """
    from headwise.training import compare, write_submissions

    trained, untrained = tasks.find_trained()
    options, variants = dict(options or {}), variants or {}
    if taught is not None:
        options["teacher"] = str(taught.model("multi-task"))
    elif teacher is not None:
        options["teacher"] = str(teacher.folder())
    start = student.model("distil") if student is not None else model.folder()
    names = (*methods, *(variant.method for variant in variants.values()))
    work = out.checkpoint().folder / "work"  # outlives a killed process
    result = compare(
        str(start),
        trained,
        methods,
        seeds=[out.seed],
        sweep={name: values for name, values in sweep.items() if name not in options and _has(names, name)},
        method_options=method_options,
        variants={name: variant.to_options() for name, variant in variants.items()},
        **training.with_changes(out=work, also=untrained, options=options).given(),
    )
    shown = {label: label if label in variants else method for label, (method, _) in result.swept.items()}
    for name in ("scores", "predictions"):
        frames = [
            getattr(outcome, name).assign(method=shown[label], **alpha_and_delta(result.swept[label][1]))
            for (label, _), outcome in result.results.items()
        ]
        frame = pd.concat(frames, ignore_index=True)
        out.table(
            name,
            frame.assign(synthetic=frame["task"].isin([task.name for task in trained if task.synthetic])),
        )
    files = []
    if "test" in training.predict:
        files = write_submissions(result, work, "test")
    for (method, _), outcome in result.results.items():
        assert outcome.folder is not None
        folder = outcome.folder
        if keep_models:
            out.model(model_name(method), partial(_copy, folder))
        elif files and (folder / "glue").is_dir():
            out.model(f"glue-{model_name(method)}", partial(_copy, folder / "glue"))


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(
        source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("checkpoint", "tickets", "teacher")
    )


def _has(methods: Iterable[str], option: str) -> bool:
    return any(option in option_names(method) for method in methods)


def model_name(label: str) -> str:
    """The name under which a cell keeps the model of a training: its label, "iat-alpha-0.1" as
    "iat-alpha-0_1"."""
    return label.replace(".", "_")


def alpha_and_delta(settings: Mapping[str, Any]) -> dict[str, float]:
    """α and δ of a training: 1 and 0 for methods without, of which plain training is the limit."""
    return {"alpha": settings.get("alpha", 1.0), "delta": settings.get("delta", 0.0)}


@engine.step(name="training-table", version=2)
def summarise(out: engine.Out, *, trained: list[engine.Result], places: list[dict[str, Any]]) -> None:
    """Mean, standard deviation and number of seeds of every model, sampling, method and task, with the
    average over tasks."""
    frames = [result.table("scores").assign(**coords) for result, coords in zip(trained, places, strict=True)]
    scores = pd.concat(frames, ignore_index=True)
    out.table("training", table_of(scores))
    out.table("differences", differences_of(scores))


def methods_of(recipe: TrainingRecipe, model: str) -> tuple[str, ...]:
    """All methods of one model, each once."""
    return tuple(dict.fromkeys((*recipe.methods, *recipe.further.get(engine.ModelName(model), ()))))


def cells(recipe: TrainingRecipe) -> Iterator[engine.Cell]:
    """One cell per model, sampling and seed for the methods and variants that branch from plain training, one
    more for each other one."""
    trainings, training_coords = [], []
    for model in recipe.models:
        for sampling in recipe.samplings:
            for seed in range(recipe.seeds):
                for group in _groups(recipe, model):
                    trainings.append(_cell(recipe, model, sampling, seed, group))
                    training_coords.append({"model": str(model), "sampling": sampling, "seed": seed})
    yield from trainings
    yield engine.Cell(summarise, {"trained": trainings, "places": training_coords})


def _groups(recipe: TrainingRecipe, model: str) -> list[tuple[str, ...]]:
    """The methods and variants of a model that are trained in one cell."""
    names = (*methods_of(recipe, model), *recipe.variants)
    branching = tuple(
        name
        for name in names
        if METHODS[_method_of(recipe, name)].shared_beginning and name not in recipe.method_options
    )
    groups: list[tuple[str, ...]] = [(name,) for name in names if name not in branching]
    return [branching, *groups] if branching else groups


def _method_of(recipe: TrainingRecipe, name: str) -> str:
    """The method of a variant, or the method itself."""
    return recipe.variants[name].method if name in recipe.variants else name


def _with_own(recipe: TrainingRecipe, variant: Variant) -> Variant:
    """A variant with the options that the recipe gives its method, unless it sets them itself."""
    return Variant(
        method=variant.method, options={**recipe.method_options.get(variant.method, {}), **variant.options}
    )


def _cell(
    recipe: TrainingRecipe, model: engine.ModelName, sampling: str, seed: int, group: tuple[str, ...]
) -> engine.Cell:
    """The training of a model by some methods, with those it needs first: a student its teacher, what starts
    from a student its distillation."""
    teacher = recipe.teachers.get(model)
    before: dict[str, engine.Cell] = {}
    if group == ("distil",):
        assert teacher is not None
        shared = None
        if recipe.keep_models and teacher in recipe.models:  # one training serves both
            shared = next((names for names in _groups(recipe, teacher) if "multi-task" in names), None)
        before = {"taught": _cell(recipe, teacher, sampling, seed, shared or ("multi-task",))}
    elif teacher is not None and group != ("single-task",):
        before = {"student": _cell(recipe, model, sampling, seed, ("distil",))}
    training = of_methods(recipe.training, [_method_of(recipe, name) for name in group])
    keep = recipe.keep_models or _is_needed(recipe, model, group)
    variants = {name: _with_own(recipe, recipe.variants[name]) for name in group if name in recipe.variants}
    arguments = {
        **before,
        "model": model,
        "tasks": recipe.tasks,
        "methods": [name for name in group if name not in recipe.variants],
        "sweep": {"alpha": [recipe.alpha], "delta": [recipe.delta]},
        "keep_models": keep,
        "training": training.with_changes(sampling=sampling, predict=recipe.predict),
        "options": recipe.method_options.get(group[0], {}),
        "variants": variants,
        "teacher": None,
    }
    models = len(group)
    if group == ("single-task",):
        models = len(recipe.tasks.listed())
        arguments["teacher"] = teacher
    coords: dict[str, str | int | float | bool] = {
        "model": str(model),
        "sampling": sampling,
        "seed": seed,
        "group": "+".join(group),
    }
    needed = megabytes_of(model, models if keep else 0)
    return engine.Cell(train_methods, arguments, coords, seed=seed, megabytes=needed)


def _is_needed(recipe: TrainingRecipe, model: str, group: tuple[str, ...]) -> bool:
    """Whether another training starts from this one's model."""
    return group == ("distil",) or (group == ("multi-task",) and model in recipe.teachers.values())


def check(recipe: TrainingRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types."""
    methods = chain.from_iterable(methods_of(recipe, model) for model in recipe.models)
    warn_of_replaced(recipe.training, methods, recipe.method_options)
    for table in ("further", "teachers"):
        for model in getattr(recipe, table):
            if model not in recipe.models:
                yield f"{table}: {model!r} is not among the models: {', '.join(recipe.models)}"
    for method, options in recipe.method_options.items():
        if method == "distil":
            options = {"teacher": "", **options}
        yield from wrong(f"method_options.{method}", make_method, method, **options)
        if not any(method in methods_of(recipe, model) for model in recipe.models):
            yield f"method_options: no model has the method {method!r}"
    for name, variant in recipe.variants.items():
        yield from wrong(f"variants.{name}", make_method, variant.method, **variant.options)
        if not SAFE.fullmatch(name):
            yield (
                f"variants.{name}: begin with a letter or digit, and use letters, digits, spaces and , . = _ "
                "- (it names a folder too)"
            )
        if any(model_name(name) == model_name(rival) for rival in recipe.variants if rival != name):
            yield f"variants.{name}: another one's folder would have the same name; call it something else"
        if name in METHODS:
            yield f"variants.{name}: a method has this name; call the variant something else"
        if variant.method in ("distil", "single-task"):
            yield f"variants.{name}: {variant.method} cannot be a variant"
    for model in recipe.models:
        if "distil" in methods_of(recipe, model) and model not in recipe.teachers:
            yield (
                f"teachers: {model!r} has the method distil and no teacher; name one, or use distil for "
                "students only (further)"
            )
    for student, teacher in recipe.teachers.items():
        if teacher in recipe.teachers:
            yield f"teachers: {teacher!r} teaches {student!r} and is a student itself"
    yield from not_of_recipes(recipe.training)
    yield from wrong("tasks", recipe.tasks.check)


def wrong(key: str, work: Callable[..., Any], /, *args: Any, **options: Any) -> Iterator[str]:
    """The error that `work` raises, with the `key` of the recipe that it speaks of; nothing if it raises
    none."""
    try:
        work(*args, **options)
    except HeadwiseError as error:
        yield f"{key}: {error}"


def not_of_recipes(training: Train, apart: Collection[str] = APART) -> Iterator[str]:
    """What the `[training]` table of a recipe says that is not its to say: the names in `apart`, and options
    of methods."""
    if training.options:
        yield (
            f"training: {', '.join(training.options)} are options of methods, which have their own keys: "
            "method_options, alpha, delta"
        )
    for name, field in Train.model_fields.items():
        if name in training.model_fields_set and (name in apart or marks(field)["live"]):
            yield f"training.{name}: the study sets it, or the command that runs it; leave it out"


study = engine.Study(TrainingRecipe, cells, check, of_training)
