"""The steps of the stem-cell study: one training, one learning of claims, one probing, and the analysis over all."""

from typing import Any, Literal

import pandas as pd
import xarray as xr
from pydantic import Field

from headwise import engine

Name = Literal["pos", "xpos", "ner", "dep", "con", "srl"]
Gates = Literal["subset", "l0", "causal-gating", "gate-gradient", "dynamic"]
# Encoder 5e-5 (1e-5 with gates), decoders 1e-3, warm-up 10 %, clip 1, p ∝ batches^0.8, losses balanced over 5 steps.
PAPER: dict[str, Any] = {
    "epochs": 30,
    "learning_rate": 5e-5,
    "decoder_learning_rate": 1e-3,
    "gate_learning_rate": 1e-3,
    "warmup": 0.1,
    "clip": 1.0,
    "sampling": "power",
    "power": 0.8,
    "balance": 5,
    "max_length": 512,
}


class Data(engine.Settings):
    """Where the sentences come from: a file or folder of annotated sentences, or, without a path, the embedded grammar."""

    path: engine.DataPath | None = None
    skip_bad: bool = False
    size: int = Field(600, ge=64)


class Training(engine.Settings):
    """Settings of all trainings; the defaults are the paper's."""

    epochs: int = Field(PAPER["epochs"], ge=1)
    batch_size: int = Field(32, ge=1)
    learning_rate: float = Field(PAPER["learning_rate"], gt=0)
    gated_learning_rate: float = Field(1e-5, gt=0)
    decoder_learning_rate: float = Field(PAPER["decoder_learning_rate"], gt=0)
    gate_learning_rate: float = Field(PAPER["gate_learning_rate"], gt=0)
    weight_decay: float = Field(0.0, ge=0)
    max_length: int = Field(PAPER["max_length"], ge=16)
    max_examples: int | None = Field(None, ge=16)
    precision: Literal["no", "bf16", "fp16"] = "no"


class _Asked(engine.Settings):
    data: Data
    tasks: tuple[Name, ...]

    def open(self) -> list[Any]:
        from headwise.tasks import grammar, structured

        if self.data.path is None:
            return grammar.tasks(list(self.tasks), self.data.size)
        return structured(self.data.path, list(self.tasks), skip_bad=self.data.skip_bad)


class TrainConfig(_Asked):
    model: engine.ModelName
    training: Training
    method: Literal["multi-task", "iat", "gated"] = "multi-task"
    random_weights: bool = False
    fraction: float = 0.3


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
    from headwise.scoring._concrete import CLAIMED
    from headwise.training import examine, make_method
    from headwise.training import train as run

    tasks = config.open()
    chosen = PAPER | config.training.model_dump(exclude={"gated_learning_rate"})
    options: dict[str, Any] = {"iat": {"alpha": config.fraction}, "gated": {"fraction": config.fraction}}.get(config.method, {})
    method: Any = make_method(config.method, **options)
    if config.method == "gated":
        chosen["learning_rate"] = config.training.gated_learning_rate
    result = run(config.model, tasks, method, **chosen, seed=out.seed, random_weights=config.random_weights, progress=False)
    scores, sentences = examine(result.model, tasks, "test", progress=False)
    out.table("scores", scores)
    out.table("sentences", sentences)
    if config.method == "gated":
        out.json("open", {"expected": method.expected, "at_test": int((method.gates > CLAIMED).sum())})
        values = method.log_a.detach().cpu().numpy()[None]
        out.array("gates", xr.DataArray(values, dims=("task", "layer", "head"), coords={"task": ["+".join(config.tasks)]}))
    else:
        out.model("model", result.model)


@engine.step()
def learn_claims(config: ClaimConfig, inputs: dict[str, Any], out: engine.Out) -> None:
    """Static pruning: what a frozen, trained model's tasks hold on to; scores (task, layer, head), the higher the more."""
    import headwise
    from headwise.scoring import score

    model = headwise.load(inputs["trained"].model("model"))
    options: dict[str, Any] = {"examples": config.examples, "max_length": config.max_length, "seed": out.seed, "quiet": True}
    if config.gates != "gate-gradient":
        options["steps"] = config.steps
    if config.gates in ("subset", "l0"):
        options["fraction"] = config.fraction
    found = [score(model, task, method=config.gates, **options) for task in config.open()]
    plain = [scores.drop_vars([name for name in scores.coords if name not in scores.dims]).drop_attrs() for scores in found]
    out.array("gates", xr.concat(plain, pd.Index(config.tasks, name="task")))


@engine.step()
def probe(config: ProbeConfig, inputs: dict[str, Any], out: engine.Out) -> None:
    """Parameter-free probes of a trained model, or of the model as it comes."""
    from headwise.models import open_model
    from headwise.probing import profile
    from headwise.probing._profiles import BASELINES

    model = open_model(inputs["trained"].model("model") if "trained" in inputs else config.model, need="encoder")
    reading: dict[str, Any] = {"examples": config.examples, "max_length": config.max_length, "quiet": True}
    baselines = BASELINES if config.baselines else ()
    found = profile(model.encoder.eval(), model.tokenizer, config.open(), baselines=baselines, **reading)
    out.array("probe", found.heads)
    out.table("labels", found.labels)
    out.table("probe-summary", found.summary)


@engine.step()
def analyse(config: dict[str, Any], inputs: dict[str, Any], out: engine.Out) -> None:
    """Agreement, stem cells and the tests, for every way to learn claims."""
    from headwise.scoring._selection import count_for
    from headwise.studies import _stemcells as stemcells

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
