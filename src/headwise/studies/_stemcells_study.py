"""The stem-cell study (He & Choi 2021): its recipe, its steps, and the cells a recipe asks for."""

from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd
import xarray as xr

from headwise import engine
from headwise.settings import operation
from headwise.studies._sections.stemcells import section
from headwise.studies._stemcells_settings import PAPER, Gates, Name, StemCells, Training
from headwise.studies._training import APART, not_of_recipes
from headwise.training import Train


class StemCellRecipe(StemCells, engine.Recipe):
    """`model` is the encoder that every training starts from; `training` holds for all of them, and its defaults are the paper's."""

    kind: Literal["stem-cells"] = "stem-cells"
    model: engine.ModelName
    training: Training = Training(**PAPER)


class _Asked(engine.Settings):
    data: engine.DataPath | None
    skip_bad: bool
    size: int
    tasks: tuple[Name, ...]

    def open(self) -> list[Any]:
        from headwise import grammar
        from headwise.tasks import structured

        if self.data is None:
            return grammar.tasks(list(self.tasks), self.size)
        return structured(self.data, list(self.tasks), skip_bad=self.skip_bad)


class TrainConfig(_Asked):
    model: engine.ModelName
    training: Training
    method: Literal["multi-task", "iat", "gated"] = "multi-task"
    random_weights: bool = False
    fraction: float = 0.3

    def decides(self) -> dict[str, Any]:
        """Gated trainings of before the price of gates left the loss are not shown again."""
        return super().decides() | ({"price": "without value"} if self.method == "gated" else {})


class ClaimConfig(_Asked):
    gates: Gates
    fraction: float
    steps: int
    examples: int | None
    max_length: int


class ProbeConfig(_Asked):
    model: engine.ModelName
    examples: int | None
    max_length: int
    baselines: bool = False


@engine.step()
def train(config: TrainConfig, inputs: dict[str, Any], out: engine.Out) -> None:
    """One training; keeps the model, every metric on test, and the counts of every sentence."""
    from headwise.scoring import CLAIMED_GATE
    from headwise.training import examine, make_method, train as run

    tasks = config.open()
    chosen = config.training.part(Train) | {"seed": out.seed, "quiet": True}
    chosen["random_weights"] |= config.random_weights
    options: dict[str, Any] = {"iat": {"alpha": config.fraction}, "gated": {"fraction": config.fraction}}.get(
        config.method, {}
    )
    method: Any = make_method(config.method, **options)
    if config.method == "gated":
        chosen["learning_rate"] = config.training.gated_learning_rate
    result = run(config.model, tasks, method, **chosen)
    scores, sentences = examine(result.model, tasks, "test", quiet=True)
    out.table(
        "scores",
        scores.assign(synthetic=scores["task"].isin([task.name for task in tasks if task.synthetic])),
    )
    out.table("sentences", sentences)
    if config.method == "gated":
        out.json("open", {"expected": method.expected, "at_test": int((method.gates > CLAIMED_GATE).sum())})
        values = method.log_a.detach().cpu().numpy()[None]
        out.array(
            "gates",
            xr.DataArray(values, dims=("task", "layer", "head"), coords={"task": ["+".join(config.tasks)]}),
        )
    else:
        out.model("model", result.model)


@engine.step()
def learn_claims(config: ClaimConfig, inputs: dict[str, Any], out: engine.Out) -> None:
    """Static pruning: what a frozen, trained model's tasks hold on to; scores (task, layer, head), the higher the more."""
    from headwise.models import open_model
    from headwise.scoring import score

    model = open_model(inputs["trained"].model("model"), device="auto")
    options: dict[str, Any] = {
        "examples": config.examples,
        "max_length": config.max_length,
        "seed": out.seed,
        "quiet": True,
    }
    if config.gates != "gate-gradient":
        options["steps"] = config.steps
    if config.gates in ("subset", "l0"):
        options["fraction"] = config.fraction
    found = [score(model, task, method=config.gates, **options) for task in config.open()]
    plain = [
        scores.drop_vars([name for name in scores.coords if name not in scores.dims]).drop_attrs()
        for scores in found
    ]
    out.array("gates", xr.concat(plain, pd.Index(config.tasks, name="task")))


@engine.step()
def probe(config: ProbeConfig, inputs: dict[str, Any], out: engine.Out) -> None:
    """Parameter-free probes of a trained model, or of the model as it comes."""
    from headwise.probing import BASELINES, profile

    model = inputs["trained"].model("model") if "trained" in inputs else config.model
    options: dict[str, Any] = {"examples": config.examples, "max_length": config.max_length, "quiet": True}
    found = profile(model, config.open(), baselines=BASELINES if config.baselines else (), **options)
    out.array("probe", found.heads)
    out.table("labels", found.labels)
    out.table("probe-summary", found.summary)


class AnalyseConfig(engine.Settings):
    """`claims` says of each way to learn them which task and run every result is of, `probes` of each stage which run, `trained` which
    groups of trainings there are."""

    model: engine.ModelName
    tasks: tuple[Name, ...]
    fraction: float
    claims: dict[str, list[dict[str, Any]]]
    trained: tuple[str, ...]
    probes: dict[str, list[int]]


@engine.step(version=3)
def analyse(config: AnalyseConfig, inputs: dict[str, Any], out: engine.Out) -> None:
    """Agreement, stem cells and the tests, for every way to learn claims; the tests leave out tasks that were not learnt."""
    from headwise.heads import Heads, tied_layers
    from headwise.models import open_model
    from headwise.scoring import count_for
    from headwise.studies import _stemcells as stemcells, _stemcells_effects as measured

    arrays = {
        stage: xr.combine_by_coords(
            [
                result.array("probe").expand_dims(run=[run]).rename("probe")
                for result, run in zip(inputs[stage], places, strict=True)
            ]
        )["probe"].transpose(*stemcells.DIMS)
        for stage, places in config.probes.items()
    }
    untrained = inputs["untrained"].array("probe")
    tied = tied_layers(Heads(open_model(str(config.model.folder()), need="encoder").encoder))
    weak = {
        group: stemcells.not_learnt([result.table("scores") for result in inputs[f"trained-{group}"]])
        for group in config.trained
    }
    tests, effects = [], []
    for method, places in config.claims.items():
        parts = []
        for result, place in zip(inputs[f"claims-{method}"], places, strict=True):
            parts.append(
                result.array("gates")
                .assign_coords(task=[place["task"]])
                .expand_dims(run=[place["run"]])
                .rename("gates")
            )
        gates = xr.combine_by_coords(parts)["gates"].transpose(*stemcells.DIMS).sel(task=list(config.tasks))
        k = count_for(config.fraction, int(gates.isel(run=0, task=0).notnull().sum()))
        claims = stemcells.claim(gates, k)
        label = method.replace(" ", "-")
        out.array(f"gates-{label}", gates)
        out.array(f"claims-{label}", claims.astype(float))
        out.table(f"agreement-{label}", stemcells.claim_agreement(claims, gates))
        out.table(f"layers-{label}", stemcells.per_layer(claims))
        valid = gates.isel(run=0, task=0).notnull().to_numpy()
        source = (
            () if "random" in method else ("gated" if method == "dynamic" else "single",)
        )  # controls need not have learnt
        learnt, lost = stemcells.learnt_in(claims, weak, *source)
        enough = len(learnt.task) >= stemcells.LEAST
        test = stemcells.stem_cell_test(learnt, valid=valid, tied=tied) if enough else stemcells.UNTESTED
        tests.append({"gates": method, "k": k, **test, "at chance": lost})
        if "random" in method:
            continue
        stages = {"untrained": untrained, **arrays}
        out.table(f"changes-{label}", measured.changes(claims, stages))
        found: dict[str, tuple[measured.Effect, str]] = {}
        for stage in ("multi", "iat") if "iat" in arrays else ("multi",):
            learnt, lost = stemcells.learnt_in(claims, weak, *source, "single", stage)
            change = learnt, arrays["single"], arrays[stage]
            found[f"single to {stage}, stem − alone"] = measured.stem_cell_effect(*change), lost
            found[f"single to {stage}, stem − others of their layers"] = (
                measured.stem_cell_effect(*change, against="layer"),
                lost,
            )
        if "iat" in arrays:
            learnt, lost = stemcells.learnt_in(claims, weak, *source, "multi", "iat")
            found["iat − multi, stem"] = measured.sparing(learnt, arrays["multi"], arrays["iat"]), lost
        for name, (effect, lost) in found.items():
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


def cells(recipe: StemCellRecipe) -> Iterator[engine.Cell]:
    """Trainings first, then claims and probes on them, then the analysis."""
    sentences: dict[str, Any] = {name: getattr(recipe, name) for name in ("data", "skip_bad", "size")}
    shared = {**sentences, "model": recipe.model, "training": recipe.training, "fraction": recipe.fraction}

    def training(tasks: Iterable[str], run: int, group: str, **more: Any) -> engine.Cell:
        names = tuple(tasks)
        config = TrainConfig(tasks=names, **shared, **more)  # type: ignore[arg-type]
        return engine.Cell(
            train, config, {"group": group, "tasks": "+".join(names), "run": run}, seed=run, megabytes=200
        )

    def probing(
        tasks: Iterable[str], stage: str, run: int, trained: engine.Cell | None, baselines: bool = False
    ) -> engine.Cell:
        config = ProbeConfig(
            model=recipe.model,
            **sentences,
            tasks=tuple(tasks),  # type: ignore[arg-type]
            examples=recipe.probe_examples,
            max_length=recipe.training.max_length,
            baselines=baselines,
        )
        inputs = {} if trained is None else {"trained": trained}
        return engine.Cell(probe, config, {"stage": stage, "tasks": "+".join(tasks), "run": run}, inputs)

    def claiming(task: Name, gates: Gates, run: int, trained: engine.Cell, name: str) -> engine.Cell:
        config = ClaimConfig(
            **sentences,
            tasks=(task,),
            gates=gates,
            fraction=recipe.fraction,
            steps=recipe.gate_steps,
            examples=recipe.gate_examples,
            max_length=recipe.training.max_length,
        )
        return engine.Cell(
            learn_claims, config, {"gates": name, "task": task, "run": run}, {"trained": trained}, seed=run
        )

    alone = {
        (task, run): training([task], run, "single") for run in range(recipe.runs) for task in recipe.tasks
    }
    together = [training(recipe.tasks, run, "all") for run in range(recipe.runs)]
    yield from (*alone.values(), *together)
    if recipe.pairs:
        yield from (
            training(pair, run, "pair")
            for run in range(recipe.runs)
            for pair in combinations(recipe.tasks, 2)
        )
    claims: dict[str, list[engine.Cell]] = {}
    for gates in recipe.gates:
        for (task, run), trained in alone.items():
            if gates == "dynamic":
                cell = training([task], run, "gated", method="gated")
            else:
                cell = claiming(task, gates, run, trained, gates)
            claims.setdefault(gates, []).append(cell)
    if recipe.control:
        method: Gates = next((gates for gates in recipe.gates if gates != "dynamic"), "subset")
        for task, run in alone:
            trained = training([task], run, "random", random_weights=True)
            claims.setdefault(f"{method} random weights", []).append(
                claiming(task, method, run, trained, f"{method} random weights")
            )
    trainings = {"single": list(alone.values()), "multi": together}
    if "dynamic" in claims:
        trainings["gated"] = claims["dynamic"]
    probes = {
        "single": [probing([task], "single", run, trained) for (task, run), trained in alone.items()],
        "multi": [probing(recipe.tasks, "multi", run, trained) for run, trained in enumerate(together)],
    }
    if recipe.important_heads:
        spared = [training(recipe.tasks, run, "iat", method="iat") for run in range(recipe.runs)]
        trainings["iat"] = spared
        probes["iat"] = [probing(recipe.tasks, "iat", run, trained) for run, trained in enumerate(spared)]
    untrained = probing(recipe.tasks, "untrained", 0, None, baselines=True)
    yield untrained
    places = [{"task": task, "run": run} for task, run in alone]
    settings = AnalyseConfig(
        model=recipe.model,
        tasks=recipe.tasks,
        fraction=recipe.fraction,
        claims=dict.fromkeys(claims, places),
        trained=tuple(trainings),
        probes={stage: [int(cell.coords["run"]) for cell in found] for stage, found in probes.items()},
    )
    inputs: dict[str, Any] = {
        "untrained": untrained,
        **probes,
        **{f"claims-{method}": found for method, found in claims.items()},
    }
    inputs |= {f"trained-{group}": found for group, found in trainings.items()}
    yield engine.Cell(analyse, settings, {}, inputs)


def check(recipe: StemCellRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types."""
    if len(set(recipe.tasks)) < 2:
        yield f"tasks: at least two different tasks of {', '.join(get_args(Name))} are needed, given {list(recipe.tasks)}"
    if len(set(recipe.tasks)) < len(recipe.tasks):
        yield f"tasks: a task is given twice: {list(recipe.tasks)}"
    yield from not_of_recipes(recipe.training, APART - set(PAPER))


stemcells_study = engine.Study(StemCellRecipe, cells, check, section)


@operation(StemCells)
def stem_cell_study(model: str | Path, out: str | Path, settings: StemCells) -> engine.Run:
    """Do different kinds of tasks claim the same heads, and does training them together harm those heads? The study of this kind.

    Args:
        model: the encoder, a folder or hub id.
        out: the run's folder; the same call again resumes it.

    Returns:
        the run: `table("stem-cells")`, `table("effects")`, `table("scores")`, ...
    """
    return engine.run_recipe(
        stemcells_study, {"kind": "stem-cells", "model": str(model), **settings.to_table()}, out, quiet=True
    )
