"""The steps of the stem-cell study: one training, one learning of claims, one probing, and the analysis over all."""

from collections.abc import Iterable
from typing import Any, Literal

import pandas as pd
import xarray as xr
from pydantic import Field

from headwise import runs

Name = Literal["pos", "xpos", "ner", "dep", "con", "srl"]
Gates = Literal["subset", "l0", "causal-gating", "gate-gradient", "dynamic"]


class Data(runs.Settings):
    """Where the sentences come from: a file or folder of annotated sentences, or, without a path, the embedded grammar."""

    path: runs.DataPath | None = None
    skip_bad: bool = False
    size: int = Field(600, ge=64)


class Training(runs.Settings):
    """Settings of all trainings; the defaults are the paper's (see `stemcells_training.PAPER`)."""

    epochs: int = Field(30, ge=1)
    batch_size: int = Field(32, ge=1)
    learning_rate: float = Field(5e-5, gt=0)
    gated_learning_rate: float = Field(1e-5, gt=0)
    decoder_learning_rate: float = Field(1e-3, gt=0)
    gate_learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    max_length: int = Field(512, ge=16)
    max_examples: int | None = Field(None, ge=16)
    precision: Literal["no", "bf16", "fp16"] = "no"


class TrainConfig(runs.Settings):
    model: runs.ModelName
    data: Data
    tasks: tuple[Name, ...]
    training: Training
    method: Literal["multi-task", "iat", "gated"] = "multi-task"
    random_weights: bool = False
    fraction: float = 0.3


class ClaimConfig(runs.Settings):
    data: Data
    tasks: tuple[Name, ...]
    gates: Gates
    fraction: float
    steps: int
    examples: int | None
    max_length: int


class ProbeConfig(runs.Settings):
    model: runs.ModelName
    data: Data
    tasks: tuple[Name, ...]
    examples: int | None
    max_length: int
    baselines: bool = False


def _tasks(data: Data, names: Iterable[str]) -> list[Any]:
    from headwise.tasks import grammar, structured

    if data.path is None:
        return grammar.tasks(list(names), data.size)
    return structured(data.path, list(names), skip_bad=data.skip_bad)


@runs.step()
def train(config: TrainConfig, inputs: dict[str, Any], out: runs.Out) -> None:
    """One training; keeps the model, every metric on test, and the counts of every sentence."""
    from headwise.scoring.concrete import CLAIMED
    from headwise.scoring.selection import count_for
    from headwise.studies.stemcells_training import PAPER, GatedTraining, examine, fit
    from headwise.training.methods.base import Method
    from headwise.training.methods.iat import ImportantHeads

    tasks = _tasks(config.data, config.tasks)
    chosen = config.training.model_dump(exclude={"gated_learning_rate"})
    if config.method == "gated":
        chosen["learning_rate"] = config.training.gated_learning_rate
    settings = PAPER.with_changes(**chosen, seed=out.seed, evaluate="end", progress=False)
    method: Method = ImportantHeads(alpha=config.fraction) if config.method == "iat" else Method()
    if config.method == "gated":
        from headwise.decoders import open_model
        from headwise.heads import Heads

        method = GatedTraining(k=count_for(config.fraction, Heads(open_model(config.model, need="encoder").encoder).total))
    run = fit(config.model, tasks, settings, method, random_weights=config.random_weights)
    scores, sentences = examine(run.model, tasks, "test", max_length=config.training.max_length, progress=False)  # type: ignore[arg-type]
    out.table("scores", scores)
    out.table("sentences", sentences)
    if isinstance(method, GatedTraining):
        assert method.log_a is not None
        out.json("open", {"expected": method.expected, "at_test": int((method.gates > CLAIMED).sum())})
        values = method.log_a.detach().cpu().numpy()[None]
        out.array("gates", xr.DataArray(values, dims=("task", "layer", "head"), coords={"task": ["+".join(config.tasks)]}))
    else:
        out.model("model", run.model)


@runs.step()
def learn_claims(config: ClaimConfig, inputs: dict[str, Any], out: runs.Out) -> None:
    """Static pruning: what a frozen, trained model's tasks hold on to; scores (task, layer, head), the higher the more."""
    import headwise
    from headwise.scoring import score

    model = headwise.load(inputs["trained"].model("model"))
    options: dict[str, Any] = {"examples": config.examples, "max_length": config.max_length, "seed": out.seed, "quiet": True}
    if config.gates != "gate-gradient":
        options["steps"] = config.steps
    if config.gates in ("subset", "l0"):
        options["fraction"] = config.fraction
    found = [score(model, task, method=config.gates, **options) for task in _tasks(config.data, config.tasks)]
    plain = [scores.drop_vars([name for name in scores.coords if name not in scores.dims]).drop_attrs() for scores in found]
    out.array("gates", xr.concat(plain, pd.Index(config.tasks, name="task")))


@runs.step()
def probe(config: ProbeConfig, inputs: dict[str, Any], out: runs.Out) -> None:
    """Parameter-free probes of a trained model, or of the model as it comes."""
    from headwise.decoders import open_model
    from headwise.studies.stemcells_probing import BASELINES, profile

    model = open_model(inputs["trained"].model("model") if "trained" in inputs else config.model, need="encoder")
    found = profile(
        model.encoder.eval(),
        model.tokenizer,
        _tasks(config.data, config.tasks),
        baselines=BASELINES if config.baselines else (),
        examples=config.examples,
        max_length=config.max_length,
        quiet=True,
    )
    out.array("probe", found.heads)
    out.table("labels", found.labels)
    out.table("probe-summary", found.summary)


@runs.step()
def analyse(config: dict[str, Any], inputs: dict[str, Any], out: runs.Out) -> None:
    """Agreement, stem cells and the tests, for every way to learn claims."""
    from headwise.scoring.selection import count_for
    from headwise.studies import stemcells

    arrays = {
        stage: xr.combine_by_coords(
            [
                result.array("probe").expand_dims(run=[run]).rename("probe")
                for result, run in zip(inputs[stage], places, strict=True)
            ]
        )["probe"].transpose(*stemcells.DIMS)
        for stage, places in config["probes"].items()
    }
    untrained = inputs["untrained"].array("probe")
    tests, effects = [], []
    for method, places in config["claims"].items():
        parts = []
        for result, place in zip(inputs[f"claims-{method}"], places, strict=True):
            parts.append(
                result.array("gates").assign_coords(task=[place["task"]]).expand_dims(run=[place["run"]]).rename("gates")
            )
        gates = xr.combine_by_coords(parts)["gates"].transpose(*stemcells.DIMS).sel(task=config["tasks"])
        k = count_for(config["fraction"], int(gates.isel(run=0, task=0).notnull().sum()))
        claims = stemcells.claim(gates, k)
        label = method.replace(" ", "-")
        out.array(f"gates-{label}", gates)
        out.array(f"claims-{label}", claims.astype(float))
        out.table(f"agreement-{label}", stemcells.agreement(claims, gates))
        out.table(f"layers-{label}", stemcells.per_layer(claims))
        valid = gates.isel(run=0, task=0).notnull().to_numpy()
        tests.append({"gates": method, "k": k, **stemcells.stem_cell_test(claims, valid=valid)})
        if "random" in method:
            continue
        stages = {"untrained": untrained, **arrays}
        out.table(f"changes-{label}", stemcells.changes(claims, stages))
        found = {"single to multi, stem − alone": stemcells.stem_cell_effect(claims, arrays["single"], arrays["multi"])}
        if "iat" in arrays:
            found["single to iat, stem − alone"] = stemcells.stem_cell_effect(claims, arrays["single"], arrays["iat"])
            found["iat − multi, stem"] = stemcells.sparing(claims, arrays["multi"], arrays["iat"])
        for name, effect in found.items():
            row = {"gates": method, "effect": name, "mean": effect.mean, "low": effect.low, "high": effect.high}
            effects.append({**row, "runs": str([round(value, 4) for value in effect.runs]), "heads": str(list(effect.heads))})
    out.table("stem-cells", pd.DataFrame(tests))
    out.table("effects", pd.DataFrame(effects))
