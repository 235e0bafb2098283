"""The stem-cell study (He & Choi 2021): its recipe, its steps, and the cells a recipe asks for."""

from collections.abc import Iterable, Iterator
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd
import xarray as xr

from headwise import engine
from headwise.settings import operation
from headwise.studies._sections.stemcells import section
from headwise.studies._stemcells import DIMS
from headwise.studies._stemcells_settings import PAPER, Gates, Name, StemCells, Training
from headwise.studies._training import APART, not_of_recipes
from headwise.training import Train


class StemCellRecipe(StemCells, engine.Recipe):
    """`model` is the encoder that every training starts from; `training` holds for all of them, and its
    defaults are the paper's."""

    kind: Literal["stem-cells"] = "stem-cells"
    model: engine.ModelName
    training: Training = Training(**PAPER)


def annotated(data: Path | None, skip_bad: bool, size: int, tasks: tuple[Name, ...]) -> list[Any]:
    """The tasks of a recipe, on its sentences."""
    from headwise import grammar
    from headwise.tasks import structured

    if data is None:
        return grammar.tasks(list(tasks), size)
    return structured(data, list(tasks), skip_bad=skip_bad)


@engine.step()
def train(
    out: engine.Out,
    *,
    data: engine.DataPath | None,
    skip_bad: bool,
    size: int,
    tasks: tuple[Name, ...],
    model: engine.ModelName,
    training: Training,
    fraction: float,
    method: Literal["multi-task", "iat", "gated"] = "multi-task",
    random_weights: bool = False,
) -> None:
    """One training; keeps the model, every metric on test, and the counts of every sentence."""
    from headwise.scoring import CLAIMED_GATE
    from headwise.training import examine, make_method, train as run

    opened = annotated(data, skip_bad, size, tasks)
    settings = training.part(Train) | {"seed": out.seed, "quiet": True}
    settings["random_weights"] |= random_weights
    options: dict[str, dict[str, float]] = {"iat": {"alpha": fraction}, "gated": {"fraction": fraction}}
    used: Any = make_method(method, **options.get(method, {}))
    if method == "gated":
        settings["learning_rate"] = training.gated_learning_rate
    result = run(model, opened, used, **settings)
    scores, sentences = examine(result.model, opened, "test", quiet=True)
    generated = [task.name for task in opened if task.synthetic]
    out.table("scores", scores.assign(synthetic=scores["task"].isin(generated)))
    out.table("sentences", sentences)
    if method == "gated":
        out.json("open", {"expected": used.expected, "at_test": int((used.gates > CLAIMED_GATE).sum())})
        values = used.log_a.detach().cpu().numpy()[None]
        coords = {"task": ["+".join(tasks)]}
        out.array("gates", xr.DataArray(values, dims=("task", "layer", "head"), coords=coords))
    else:
        out.model("model", result.model)


@engine.step()
def learn_claims(
    out: engine.Out,
    *,
    trained: engine.Result,
    data: engine.DataPath | None,
    skip_bad: bool,
    size: int,
    tasks: tuple[Name, ...],
    gates: Gates,
    fraction: float,
    steps: int,
    examples: int | None,
    max_length: int,
) -> None:
    """Static pruning: what a frozen, trained model's tasks hold on to; scores (task, layer, head), the higher
    the more."""
    from headwise.models import open_model
    from headwise.scoring import score

    model = open_model(trained.model("model"), device="auto")
    options: dict[str, Any] = {
        "examples": examples,
        "max_length": max_length,
        "seed": out.seed,
        "quiet": True,
    }
    if gates != "gate-gradient":
        options["steps"] = steps
    if gates in ("subset", "l0"):
        options["fraction"] = fraction
    opened = annotated(data, skip_bad, size, tasks)
    plain = []
    for scores in (score(model, task, method=gates, **options) for task in opened):
        further = [name for name in scores.coords if name not in scores.dims]
        plain.append(scores.drop_vars(further).drop_attrs())
    out.array("gates", xr.concat(plain, pd.Index(tasks, name="task")))


@engine.step()
def probe(
    out: engine.Out,
    *,
    data: engine.DataPath | None,
    skip_bad: bool,
    size: int,
    tasks: tuple[Name, ...],
    model: engine.ModelName,
    examples: int | None,
    max_length: int,
    baselines: bool = False,
    trained: engine.Result | None = None,
) -> None:
    """Parameter-free probes of a trained model, or of the model as it comes."""
    from headwise.probing import BASELINES, profile

    subject = model if trained is None else trained.model("model")
    opened = annotated(data, skip_bad, size, tasks)
    options: dict[str, Any] = {"examples": examples, "max_length": max_length, "quiet": True}
    profiles = profile(subject, opened, baselines=BASELINES if baselines else (), **options)
    out.array("probe", profiles.heads)
    out.table("labels", profiles.labels)
    out.table("probe-summary", profiles.summary)


@engine.step(version=3)
def analyse(
    out: engine.Out,
    *,
    model: engine.ModelName,
    tasks: tuple[Name, ...],
    fraction: float,
    trained: list[engine.Result],
    groups: list[str],
    claimed: list[engine.Result],
    claimed_places: list[dict[str, Any]],
    probed: list[engine.Result],
    probed_places: list[dict[str, Any]],
    untrained: engine.Result,
) -> None:
    """Agreement, stem cells and the tests, for every way to learn claims; the tests leave out tasks that were
    not learnt.

    `groups` says of which trainings each of `trained` is one, `claimed_places` how, on which task and in
    which run heads were claimed, `probed_places` after which stage and in which run they were probed.
    """
    from headwise.heads import Heads
    from headwise.models import open_model
    from headwise.scoring import count_for
    from headwise.studies import _stemcells as stemcells, _stemcells_effects as measured

    stages: dict[str, list[xr.DataArray]] = {}
    for result, coords in zip(probed, probed_places, strict=True):
        array = result.array("probe").expand_dims(run=[coords["run"]])
        stages.setdefault(coords["stage"], []).append(array)
    arrays = {stage: _joined(probes, "probe") for stage, probes in stages.items()}
    methods: dict[str, list[xr.DataArray]] = {}
    for result, coords in zip(claimed, claimed_places, strict=True):
        array = result.array("gates").assign_coords(task=[coords["task"]]).expand_dims(run=[coords["run"]])
        methods.setdefault(coords["gates"], []).append(array)
    tied = Heads(open_model(str(model.folder()), need="encoder").encoder).tied_layers()
    weak = {}
    for group in dict.fromkeys(groups):
        scores = [
            result.table("scores")
            for result, training_group in zip(trained, groups, strict=True)
            if training_group == group
        ]
        weak[group] = stemcells.not_learnt(scores)
    tests, effects = [], []
    for method, claims_of_runs in methods.items():
        gates = _joined(claims_of_runs, "gates").sel(task=list(tasks))
        k = count_for(fraction, int(gates.isel(run=0, task=0).notnull().sum()))
        claims = stemcells.claim(gates, k)
        label = method.replace(" ", "-")
        out.array(f"gates-{label}", gates)
        out.array(f"claims-{label}", claims.astype(float))
        out.table(f"agreement-{label}", stemcells.claim_agreement(claims, gates))
        out.table(f"layers-{label}", stemcells.per_layer(claims))
        valid = gates.isel(run=0, task=0).notnull().to_numpy()
        source = ["gated" if method == "dynamic" else "single"]
        if "random" in method:  # controls need not have learnt
            source = []
        learnt, lost = stemcells.learnt_in(claims, weak, *source)
        enough = len(learnt.task) >= stemcells.LEAST
        test = stemcells.stem_cell_test(learnt, valid=valid, tied=tied) if enough else stemcells.UNTESTED
        tests.append({"gates": method, "k": k, **test, "at chance": lost})
        if "random" in method:
            continue
        every_stage = {"untrained": untrained.array("probe"), **arrays}
        out.table(f"changes-{label}", measured.changes(claims, every_stage))
        method_effects: dict[str, tuple[measured.Effect, str]] = {}
        for stage in ("multi", "iat") if "iat" in arrays else ("multi",):
            learnt, lost = stemcells.learnt_in(claims, weak, *source, "single", stage)
            change = learnt, arrays["single"], arrays[stage]
            method_effects[f"single to {stage}, stem − alone"] = measured.stem_cell_effect(*change), lost
            method_effects[f"single to {stage}, stem − others of their layers"] = (
                measured.stem_cell_effect(*change, against="layer"),
                lost,
            )
        if "iat" in arrays:
            learnt, lost = stemcells.learnt_in(claims, weak, *source, "multi", "iat")
            method_effects["iat − multi, stem"] = (
                measured.sparing(learnt, arrays["multi"], arrays["iat"]),
                lost,
            )
        for name, (effect, lost) in method_effects.items():
            row = {
                "gates": method,
                "effect": name,
                "mean": effect.mean,
                "low": effect.low,
                "high": effect.high,
                "note": effect.note,
            }
            row |= {"runs": str([round(value, 4) for value in effect.runs]), "heads": str(list(effect.heads))}
            effects.append({**row, "at chance": lost})
    out.table("layer-changes", measured.layer_changes(arrays["single"], arrays["multi"]))
    out.table("stem-cells", pd.DataFrame(tests))
    out.table("effects", pd.DataFrame(effects))


def _joined(arrays: list[xr.DataArray], name: str) -> xr.DataArray:
    """Arrays of single runs and tasks as one (run, task, layer, head)."""
    named = [array.rename(name) for array in arrays]
    return xr.combine_by_coords(named)[name].transpose(*DIMS)


def cells(recipe: StemCellRecipe) -> Iterator[engine.Cell]:
    """Trainings first, then claims and probes on them, then the analysis."""
    runs = range(recipe.runs)
    alone = {
        (task, run): _training(recipe, [task], run, "single") for run, task in product(runs, recipe.tasks)
    }
    together = [_training(recipe, recipe.tasks, run, "all") for run in runs]
    yield from (*alone.values(), *together)
    if recipe.pairs:
        for run, pair in product(runs, combinations(recipe.tasks, 2)):
            yield _training(recipe, pair, run, "pair")
    claims: dict[str, list[engine.Cell]] = {}
    for gates, ((task, run), trained) in product(recipe.gates, alone.items()):
        if gates == "dynamic":
            cell = _training(recipe, [task], run, "gated", method="gated")
        else:
            cell = _claiming(recipe, task, gates, run, trained, gates)
        claims.setdefault(gates, []).append(cell)
    if recipe.control:
        method: Gates = next((gates for gates in recipe.gates if gates != "dynamic"), "subset")
        name = f"{method} random weights"
        for task, run in alone:
            trained = _training(recipe, [task], run, "random", random_weights=True)
            claims.setdefault(name, []).append(_claiming(recipe, task, method, run, trained, name))
    trainings = {"single": list(alone.values()), "multi": together}
    if "dynamic" in claims:
        trainings["gated"] = claims["dynamic"]
    probes = [_probing(recipe, [task], "single", run, cell) for (task, run), cell in alone.items()]
    probes += [_probing(recipe, recipe.tasks, "multi", run, cell) for run, cell in enumerate(together)]
    if recipe.important_heads:
        spared = [_training(recipe, recipe.tasks, run, "iat", method="iat") for run in runs]
        trainings["iat"] = spared
        probes += [_probing(recipe, recipe.tasks, "iat", run, cell) for run, cell in enumerate(spared)]
    untrained = _probing(recipe, recipe.tasks, "untrained", 0, None, baselines=True)
    yield untrained
    groups: list[str] = []
    for name, group in trainings.items():
        groups += [name] * len(group)
    claimed_coords = [
        {"gates": gates, "task": task, "run": run} for gates, (task, run) in product(claims, alone)
    ]
    arguments = {
        "model": recipe.model,
        "tasks": recipe.tasks,
        "fraction": recipe.fraction,
        "trained": list(chain.from_iterable(trainings.values())),
        "groups": groups,
        "claimed": list(chain.from_iterable(claims.values())),
        "claimed_places": claimed_coords,
        "probed": probes,
        "probed_places": [{"stage": cell.coords["stage"], "run": cell.coords["run"]} for cell in probes],
        "untrained": untrained,
    }
    yield engine.Cell(analyse, arguments)


def _sentences(recipe: StemCellRecipe, tasks: Iterable[str]) -> dict[str, Any]:
    """What `annotated` takes."""
    return {"data": recipe.data, "skip_bad": recipe.skip_bad, "size": recipe.size, "tasks": tuple(tasks)}


def _training(
    recipe: StemCellRecipe, tasks: Iterable[str], run: int, group: str, **settings: Any
) -> engine.Cell:
    arguments = {
        **_sentences(recipe, tasks),
        "model": recipe.model,
        "training": recipe.training,
        "fraction": recipe.fraction,
        **settings,
    }
    coords = {"group": group, "tasks": "+".join(arguments["tasks"]), "run": run}
    return engine.Cell(train, arguments, coords, seed=run, megabytes=200)


def _claiming(
    recipe: StemCellRecipe, task: Name, gates: Gates, run: int, trained: engine.Cell, name: str
) -> engine.Cell:
    arguments = {
        **_sentences(recipe, [task]),
        "trained": trained,
        "gates": gates,
        "fraction": recipe.fraction,
        "steps": recipe.gate_steps,
        "examples": recipe.gate_examples,
        "max_length": recipe.training.max_length,
    }
    return engine.Cell(learn_claims, arguments, {"gates": name, "task": task, "run": run}, seed=run)


def _probing(
    recipe: StemCellRecipe,
    tasks: Iterable[str],
    stage: str,
    run: int,
    trained: engine.Cell | None,
    baselines: bool = False,
) -> engine.Cell:
    arguments = {
        **_sentences(recipe, tasks),
        "trained": trained,
        "model": recipe.model,
        "examples": recipe.probe_examples,
        "max_length": recipe.training.max_length,
        "baselines": baselines,
    }
    return engine.Cell(probe, arguments, {"stage": stage, "tasks": "+".join(arguments["tasks"]), "run": run})


def check(recipe: StemCellRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types."""
    if len(set(recipe.tasks)) < 2:
        yield (
            f"tasks: at least two different tasks of {', '.join(get_args(Name))} are needed, given "
            f"{list(recipe.tasks)}"
        )
    if len(set(recipe.tasks)) < len(recipe.tasks):
        yield f"tasks: a task is given twice: {list(recipe.tasks)}"
    yield from not_of_recipes(recipe.training, APART - set(PAPER))


stemcells_study = engine.Study(StemCellRecipe, cells, check, section)


@operation(StemCells)
def stem_cell_study(model: str | Path, out: str | Path, settings: StemCells) -> engine.Run:
    """Do different kinds of tasks claim the same heads, and does training them together harm those heads? The
    study of this kind.

    Args:
        model: the encoder, a folder or hub id.
        out: the run's folder; the same call again resumes it.

    Returns:
        the run: `table("stem-cells")`, `table("effects")`, `table("scores")`, ...
    """
    return engine.run_recipe(
        stemcells_study, {"kind": "stem-cells", "model": str(model), **settings.to_table()}, out, quiet=True
    )
