"""The league of estimators: whose heads hurt most when they are silenced, whose least, and at what cost.

Models × tasks × seeds. Every estimator scores the heads on training data; its most and its least important
heads are silenced at several fractions and the task evaluated on held-out data, beside random heads. No paper
has this table.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from pydantic import Field, field_validator

from headwise import engine
from headwise.errors import HeadwiseError
from headwise.figures import RANDOM_ESTIMATOR
from headwise.lesions import Lesion, seed_interval
from headwise.scoring import ESTIMATORS, Score, check_options, compare_scores
from headwise.studies._sections.estimators import DRAW, TRAINING, of_estimators, several
from headwise.studies._training import not_of_recipes, train_methods, wrong
from headwise.tasks import TaskSource
from headwise.training import Train

ORDERS = ("most", "least")  # which heads are silenced: the most or the least important ones
NOT_EVERYWHERE = ("patching", "attribution-patching", RANDOM_ESTIMATOR)  # of contrasts only; always there
PLACE = ["model", "task", "estimator", "order"]


class EstimatorsRecipe(engine.Recipe):
    """Which estimators are compared, on which models and tasks.

    `estimators` has a table for each, by its name in the tables; a name that is a method's needs no `method`.
    Without it all methods take part. With `train = false` models are judged as they are (language models,
    folders that headwise saved): there is one model, a seed draws examples and random heads only, and tables
    and sentences count draws of examples, not trainings.
    """

    kind: Literal["estimators"]
    models: dict[str, engine.ModelName] = Field(min_length=1)
    tasks: TaskSource
    train: bool = True
    estimators: dict[str, Score] = Field(
        default_factory=lambda: {
            name: Score(method=name) for name in ESTIMATORS if name not in NOT_EVERYWHERE
        },
        min_length=1,
    )
    fractions: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field(
        (0.05, 0.1, 0.2, 0.3, 0.5), min_length=1
    )
    random_draws: int = Field(10, ge=1)
    seeds: int = Field(3, ge=1)
    lesions: Lesion = Lesion()
    training: Train = Train()

    @field_validator("estimators", mode="before")
    @classmethod
    def _by_name(cls, estimators: Any) -> Any:
        """A table named after a method is of that method."""
        if not isinstance(estimators, dict):
            return estimators
        return {
            name: {"method": name, **settings}
            if isinstance(settings, dict) and name in ESTIMATORS
            else settings
            for name, settings in estimators.items()
        }


@engine.step(name="estimators", version=2)
def judge(
    out: engine.Out,
    *,
    tasks: TaskSource,
    estimators: dict[str, Score],
    fractions: tuple[float, ...],
    random_draws: int,
    lesions: Lesion,
    model: engine.ModelName | None = None,
    trained: engine.Result | None = None,
) -> None:
    """All estimators on one task, in a model as it is or one that was trained: scores, seconds, and what
    silencing their heads does."""
    from headwise.lesions import lesion
    from headwise.models import open_model
    from headwise.scoring import score
    from headwise.tasks import METRICS

    (task,), _ = tasks.find_trained()
    if trained is not None:
        judged: Any = open_model(trained.model("multi-task"), device="auto")
    elif model is not None:
        device = lesions.device or "auto"
        judged = open_model(str(model.folder()), [task], device=device, dtype=lesions.dtype)
    if not METRICS[task.metric].higher_is_better:
        raise HeadwiseError(
            f"{task.name} is judged by {task.metric}, where lower is better: choose another metric; losses "
            "are in the tables too"
        )
    seeds = np.random.default_rng(out.seed).integers(2**31, size=random_draws)
    drawn = [
        score(judged, task, method=RANDOM_ESTIMATOR, seed=int(seed), quiet=True) for seed in seeds
    ]  # first: opening is not timed
    scores: dict[str, xr.DataArray] = {}
    seconds: dict[str, float] = {}
    for name, settings in estimators.items():
        length = settings.max_length or lesions.max_length
        clock = time.perf_counter()
        scores[name] = score(
            judged, task, **settings.with_changes(seed=out.seed, quiet=True, max_length=length).given()
        )
        seconds[name] = time.perf_counter() - clock
    sets = head_sets(scores, drawn, fractions)
    each = list(dict.fromkeys(sets.values()))  # two estimators may choose the same heads
    lesioned = lesion(judged, task, each, **lesions.with_changes(seed=out.seed, quiet=True).given()).tasks[
        task.name
    ]
    at = {head_set: 1 + i for i, head_set in enumerate(each)}  # the intact model comes first
    value, loss = 100 * lesioned.values, lesioned.losses.mean(axis=1)
    rows = [
        (name, order, fraction, len(head_set), value[at[head_set]], loss[at[head_set]])
        for (name, order, fraction, _), head_set in sets.items()
    ]
    named = pd.DataFrame(rows, columns=["estimator", "order", "fraction", "heads", "performance", "loss"])
    curves = (
        named.groupby(["estimator", "order", "fraction"], sort=False).mean().reset_index()
    )  # over the draws of random heads
    out.table("curves", curves)
    intact = {
        "intact": value[0],
        "intact_loss": loss[0],
        "chance": 100 * lesioned.chance,
        "at_chance": lesioned.at_chance,
    }
    intact |= {"metric": lesioned.metric, "examples": lesioned.losses.shape[1], "synthetic": task.synthetic}
    league = areas(curves, value[0], loss[0]).assign(**intact)
    out.table("areas", league.assign(seconds=league["estimator"].map(seconds)))
    senses = {name: array.attrs["sense"] for name, array in scores.items()}
    joined = xr.concat(
        scores.values(),
        pd.Index(list(scores), name="estimator"),
        coords="minimal",
        compat="override",
        combine_attrs="drop",
    )
    out.array("scores", joined.assign_attrs(senses=senses))


def head_sets(
    scores: Mapping[str, xr.DataArray], drawn: Sequence[xr.DataArray], fractions: Sequence[float]
) -> dict[tuple[str, str, float, int], Any]:
    """By (estimator, order, fraction, draw), the heads to silence; random heads, of the scores `drawn`, have
    no order."""
    from headwise.scoring import bottom_heads, top_heads

    ranked = [
        *((name, 0, array) for name, array in scores.items()),
        *((RANDOM_ESTIMATOR, draw, array) for draw, array in enumerate(drawn)),
    ]
    return {
        (name, order, fraction, draw): (
            bottom_heads if order == "least" and name != RANDOM_ESTIMATOR else top_heads
        )(array, fraction)
        for (name, draw, array), order, fraction in product(ranked, ORDERS, fractions)
    }


def areas(curves: pd.DataFrame, intact: float, intact_loss: float) -> pd.DataFrame:
    """One row per estimator and order: the mean drop of the metric (`drop`, in points) and the mean rise of
    the loss (`rise`).

    Both are means over the fraction silenced: areas under straight lines from none to the largest, divided by
    the largest.
    """
    rows = []
    key: Any
    for key, unsorted_curve in curves.groupby(["estimator", "order"], sort=False):
        curve = unsorted_curve.sort_values("fraction")
        share = np.array([0.0, *curve["fraction"]])
        drop = np.array([0.0, *(intact - curve["performance"])])
        rise = np.array([0.0, *(curve["loss"] - intact_loss)])
        mean = {
            name: float(np.trapezoid(y, share) / share[-1]) for name, y in (("drop", drop), ("rise", rise))
        }
        rows.append({"estimator": key[0], "order": key[1], **mean})
    return pd.DataFrame(rows)


@engine.step(name="estimators-tables", version=3)
def tables(out: engine.Out, *, judged: list[engine.Result], places: list[dict[str, Any]], unit: str) -> None:
    """The league: means over trainings or draws of examples, the distance to random heads, and how far the
    estimators agree."""
    frames = [result.table("areas").assign(**coords) for result, coords in zip(judged, places, strict=True)]
    out.table("league", league_of(pd.concat(frames, ignore_index=True), unit))
    agreement = []
    scores_by_task: dict[tuple[str, str], list[xr.DataArray]] = {}
    for result, coords in zip(judged, places, strict=True):
        scores_by_task.setdefault((coords["model"], coords["task"]), []).append(result.array("scores"))
    for (model, task), arrays in scores_by_task.items():
        if arrays[0].sizes["estimator"] > 1:
            both = xr.concat(arrays, "seed", coords="minimal", compat="override")
            senses = arrays[0].attrs["senses"]
            named = {
                name: both.sel(estimator=name).assign_attrs(sense=sense) for name, sense in senses.items()
            }
            table = (
                compare_scores(named)
                .rename(columns={"seeds": "units"})
                .assign(unit=unit, model=model, task=task)
            )
            agreement.append(table.assign(over=table["over"].where(table["over"] == "", several(unit))))
    if agreement:
        out.table("agreement", pd.concat(agreement, ignore_index=True))


def league_of(seed_areas: pd.DataFrame, unit: str = TRAINING) -> pd.DataFrame:
    """One row per model, task, estimator and order, means over `units` seeds, with the difference to random
    heads paired by seed.

    `unit` says what a seed draws: a training, or examples of one model. `better` counts the units in which
    the estimator beats random heads: a larger drop for its most important heads, a smaller one for its least
    important. Intervals by t over units; NaN below eight.
    """
    keys = ["model", "task", "order", "seed"]
    by_chance = seed_areas.loc[seed_areas["estimator"] == RANDOM_ESTIMATOR, [*keys, "drop"]].rename(
        columns={"drop": "by_chance"}
    )
    paired = seed_areas.merge(by_chance, on=keys, validate="many_to_one")
    paired["over_random"] = paired["drop"] - paired["by_chance"]
    rows = []
    for coords, group in paired.groupby(PLACE, sort=False):
        row: dict[str, Any] = dict(zip(PLACE, coords, strict=True))
        for name in ("drop", "over_random"):
            row[name] = group[name].mean()
            row[f"{name}_low"], row[f"{name}_high"] = seed_interval(group[name].to_numpy())
        sign = 1 if row["order"] == "most" else -1
        row |= {"better": int((sign * group["over_random"] > 0).sum()), "units": len(group), "unit": unit}
        row |= {name: group[name].mean() for name in ("rise", "intact", "chance")}
        row |= {
            "seconds": group["seconds"].median(),
            "at_chance": int(group["at_chance"].sum()),
            "examples": int(group["examples"].min()),
        }
        rows.append(row)
    table = pd.DataFrame(rows)
    wished = table["drop"].where(table["order"] == "least", -table["drop"])  # the first has the smallest
    table["rank"] = (
        wished.groupby([table[name] for name in ("model", "task", "order")]).rank(method="min").astype(int)
    )
    return table.sort_values(
        ["model", "task", "order", "rank"],
        ascending=[True, True, False, True],
        kind="stable",
        ignore_index=True,
    )


def cells(recipe: EstimatorsRecipe) -> Iterator[engine.Cell]:
    """A training where models are trained first, one cell for the estimators of each, and the tables over
    all."""
    judged: list[engine.Cell] = []
    lesions = recipe.lesions.with_changes(max_length=recipe.lesions.max_length or recipe.training.max_length)
    shared = {
        "estimators": recipe.estimators,
        "fractions": sorted(recipe.fractions),
        "random_draws": recipe.random_draws,
        "lesions": lesions,
    }
    for label, name, seed in product(recipe.models, recipe.tasks.listed(), range(recipe.seeds)):
        tasks = recipe.tasks.with_changes(names=(name,))
        subject: dict[str, Any] = {"model": recipe.models[label]}
        if recipe.train:
            training = {
                "model": recipe.models[label],
                "tasks": tasks,
                "methods": ["multi-task"],
                "sweep": {},
                "keep_models": True,
                "training": recipe.training,
            }
            training_coords = {"model": label, "group": name, "seed": seed}
            subject = {
                "trained": engine.Cell(train_methods, training, training_coords, seed=seed, megabytes=200)
            }
        coords = {"model": label, "task": name, "seed": seed}
        arguments = {**shared, **subject, "tasks": tasks}
        judged.append(engine.Cell(judge, arguments, coords, seed=seed, megabytes=5))
    yield from judged
    judged_coords = [dict(cell.coords) for cell in judged]
    unit = TRAINING if recipe.train else DRAW
    yield engine.Cell(tables, {"judged": judged, "places": judged_coords, "unit": unit})


def check(recipe: EstimatorsRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types."""
    for name, settings in recipe.estimators.items():
        yield from wrong(f"estimators.{name}", check_options, settings.method, settings.own)
        for field in {"seed", "out", "device", "quiet"} & settings.model_fields_set:
            yield f"estimators.{name}.{field}: the study sets it; remove it"
        if name == RANDOM_ESTIMATOR or settings.method == RANDOM_ESTIMATOR:
            yield f"estimators.{name}: random heads always take part; remove it and set random_draws"
    for field in {"seed", "device", "quiet"} & recipe.lesions.model_fields_set:
        yield f"lesions.{field}: the study sets it; remove it"
    if recipe.train:
        yield from not_of_recipes(recipe.training)
    elif recipe.training.model_fields_set:
        yield "training: the recipe has train = false; remove the table"
    yield from wrong("tasks", recipe.tasks.check)


study = engine.Study(EstimatorsRecipe, cells, check, of_estimators)
