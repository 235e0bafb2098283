"""The stem-cell study (He & Choi 2021): its recipe, the cells a recipe asks for, and the figures of a run."""

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any, Literal, get_args

from pydantic import Field

from headwise import engine
from headwise.studies._sections.stemcells import section
from headwise.studies._stemcells_steps import (
    PAPER,
    ClaimConfig,
    Data,
    Gates,
    Name,
    ProbeConfig,
    TrainConfig,
    Training,
    analyse,
    learn_claims,
    probe,
    train,
)

# A small encoder has more to learn: a higher rate for it, and a little weight decay.
SMALL: dict[str, Any] = PAPER | {
    "epochs": 20,
    "learning_rate": 2e-4,
    "weight_decay": 0.01,
    "max_length": 256,
    "evaluate": "epoch",
    "early_stopping": 20,
}


class StemCellRecipe(engine.Recipe):
    """`fraction` of all heads is k, the number every task may claim; `gates` are the ways to learn claims, the first being the one that
    the hypothesis is tested with."""

    kind: Literal["stem-cells"]
    model: engine.ModelName
    data: Data = Data()
    tasks: tuple[Name, ...] = ("pos", "ner", "dep", "con", "srl")
    runs: int = Field(3, ge=2)
    pairs: bool = True
    fraction: float = Field(0.3, gt=0, lt=1)
    gates: tuple[Gates, ...] = Field(("subset", "l0"), min_length=1)
    gate_steps: int = Field(300, ge=1)
    gate_examples: int | None = Field(10_000, ge=16)
    control: bool = True
    important_heads: bool = True
    probe_examples: int | None = Field(None, ge=16)
    training: Training = Training()


def cells(recipe: StemCellRecipe) -> Iterator[engine.Cell]:
    """Trainings first, then claims and probes on them, then the analysis."""
    shared: dict[str, Any] = {
        "model": recipe.model,
        "data": recipe.data,
        "training": recipe.training,
        "fraction": recipe.fraction,
    }

    def training(tasks: Iterable[str], run: int, group: str, **more: Any) -> engine.Cell:
        names = tuple(tasks)
        config = TrainConfig(tasks=names, **shared, **more)  # type: ignore[arg-type]
        return engine.Cell(train, config, {"group": group, "tasks": "+".join(names), "run": run}, seed=run, megabytes=200)

    def probing(tasks: Iterable[str], stage: str, run: int, trained: engine.Cell | None, baselines: bool = False) -> engine.Cell:
        config = ProbeConfig(
            model=recipe.model,
            data=recipe.data,
            tasks=tuple(tasks),  # type: ignore[arg-type]
            examples=recipe.probe_examples,
            max_length=recipe.training.max_length,
            baselines=baselines,
        )
        inputs = {} if trained is None else {"trained": trained}
        return engine.Cell(probe, config, {"stage": stage, "tasks": "+".join(tasks), "run": run}, inputs)

    def claiming(task: Name, gates: Gates, run: int, trained: engine.Cell, name: str) -> engine.Cell:
        config = ClaimConfig(
            data=recipe.data,
            tasks=(task,),
            gates=gates,
            fraction=recipe.fraction,
            steps=recipe.gate_steps,
            examples=recipe.gate_examples,
            max_length=recipe.training.max_length,
        )
        return engine.Cell(learn_claims, config, {"gates": name, "task": task, "run": run}, {"trained": trained}, seed=run)

    alone = {(task, run): training([task], run, "single") for run in range(recipe.runs) for task in recipe.tasks}
    together = [training(recipe.tasks, run, "all") for run in range(recipe.runs)]
    yield from (*alone.values(), *together)
    if recipe.pairs:
        yield from (training(pair, run, "pair") for run in range(recipe.runs) for pair in combinations(recipe.tasks, 2))
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
    probes = {
        "single": [probing([task], "single", run, trained) for (task, run), trained in alone.items()],
        "multi": [probing(recipe.tasks, "multi", run, trained) for run, trained in enumerate(together)],
    }
    if recipe.important_heads:
        spared = [training(recipe.tasks, run, "iat", method="iat") for run in range(recipe.runs)]
        probes["iat"] = [probing(recipe.tasks, "iat", run, trained) for run, trained in enumerate(spared)]
    untrained = probing(recipe.tasks, "untrained", 0, None, baselines=True)
    yield untrained
    places = [{"task": task, "run": run} for task, run in alone]
    settings = {
        "tasks": list(recipe.tasks),
        "fraction": recipe.fraction,
        "claims": dict.fromkeys(claims, places),
        "probes": {stage: [cell.coords["run"] for cell in found] for stage, found in probes.items()},
    }
    inputs: dict[str, Any] = {"untrained": untrained, **probes, **{f"claims-{method}": found for method, found in claims.items()}}
    yield engine.Cell(analyse, settings, {}, inputs)


def check(recipe: StemCellRecipe) -> Iterable[str]:
    """What a recipe can have wrong beyond its types."""
    if len(set(recipe.tasks)) < 2:
        yield f"tasks: at least two different tasks of {', '.join(get_args(Name))} are needed, given {list(recipe.tasks)}"
    if len(set(recipe.tasks)) < len(recipe.tasks):
        yield f"tasks: a task is given twice: {list(recipe.tasks)}"


study = engine.Study(StemCellRecipe, cells, check, section)

# What `headwise stemcells` runs without a recipe: about an hour on two cores, a few minutes on a GPU.
SMALL_RECIPE: dict[str, Any] = {
    "kind": "stem-cells",
    "title": "Stem cells, small",
    "pairs": False,
    "gates": ["subset"],
    "gate_steps": 60,
    "gate_examples": 500,
    "probe_examples": 300,
    "training": {"epochs": 4, "learning_rate": 2e-4, "gated_learning_rate": 1e-4, "weight_decay": 0.01, "max_length": 256},
}
