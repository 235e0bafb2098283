"""`headwise stemcells`: the study of heads that many tasks claim, one of its trainings, and its probes on any model."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headwise._base.places import EMBEDDED
from headwise.cli.common import Group, Jobs, Trust, Verb, emit, own_bars, print_table

Model = Annotated[str, typer.Option("--model", "-m", help="A folder or hub id; 'demo' is the embedded MiniLM.")]
DataFolder = Annotated[
    Path | None, typer.Option("--path", help="Annotated sentences: a folder with train, validation and test, or a file.")
]
Tasks = Annotated[
    list[str] | None, typer.Option("--task", help="pos, xpos, ner, dep, con, srl; may be repeated. Default: all five.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip and count malformed sentences.")]
SHOWN = ["stem-cells", "effects"]


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    verb = typer.Typer(
        cls=Group,
        rich_markup_mode=None,
        help="Do tasks of different nature claim the same heads, and does training them together spoil those heads?\n\n"
        "headwise stemcells --recipe recipes/stemcells-small.toml --out runs/stemcells --figures",
        no_args_is_help=False,
    )
    verb.callback(invoke_without_command=True)(whole_study)
    verb.command("probe", cls=Verb)(probe)
    verb.command("train", cls=Verb)(train)
    app.add_typer(verb, name="stemcells")


def whole_study(
    context: typer.Context,
    recipe: Annotated[Path | None, typer.Option("--recipe", help="A recipe (TOML) of kind stem-cells.")] = None,
    out: Annotated[Path, typer.Option("--out", help="The run's folder; the same command goes on with it.")] = Path(
        "runs/stemcells"
    ),
    model: Model = "",
    path: DataFolder = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Override a key: --set training.epochs=3")] = None,
    jobs: Jobs = None,
    figures: Annotated[bool, typer.Option("--figures", help="Also draw the figures, into OUT/figures.")] = False,
    json: Json = False,
    trust_remote_code: Trust = False,
) -> None:
    """Runs the study: trainings alone, in pairs and together, the heads each task claims, probes, and the tests over all of them.

    Without a recipe: five tasks, three runs, small settings, on the sentences at --path or, without it, on the embedded grammar.
    """
    if context.invoked_subcommand is not None:
        return
    from headwise import engine
    from headwise.engine._recipe import override, read_toml
    from headwise.studies._stemcells_study import SMALL_RECIPE, study

    data: dict[str, Any] = read_toml(recipe) if recipe is not None else dict(SMALL_RECIPE)
    base = recipe.parent if recipe is not None else Path()
    if recipe is None or model:
        data["model"] = model or EMBEDDED
    if path is not None:
        data["data"] = {**data.get("data", {}), "path": str(path.absolute())}
    override(data, sets or [])
    checked, _ = engine.validate(study, data, base, out)
    if jobs == 0:
        own_bars()
    board = engine.run_study(study, checked, out, jobs=jobs, quiet=json)
    found = engine.open(out)
    if board.failed:
        raise typer.Exit(1)
    drawn = []
    if figures:
        from headwise.report import write_figures

        drawn = [str(file) for file in write_figures([out], out / "figures", tables=False)]
    tables = {name: found.table(name) for name in (*SHOWN, "scores")}
    if emit({"out": str(out), "figures": drawn, **{name: table.to_dict("records") for name, table in tables.items()}}, json):
        return
    scores = tables.pop("scores").groupby(["group", "tasks", "task", "metric"], sort=False)["score"].agg(["mean", "std"]) * 100
    columns = ["group", "trained on", "task", "metric", "mean", "sd"]
    print_table("Scores on test, %", columns, scores.reset_index().values.tolist())
    for name, table in tables.items():
        print_table(name, list(table.columns), table.values.tolist())


def probe(
    model: Model = EMBEDDED,
    path: DataFolder = None,
    task: Tasks = None,
    examples: Annotated[int | None, typer.Option("--examples", min=1, help="At most so many sentences of each split.")] = None,
    baselines: Annotated[bool, typer.Option(help="Also random weights, permuted labels, and fixed offsets.")] = True,
    labels: Annotated[bool, typer.Option("--labels", help="Also the best head of every label.")] = False,
    skip_bad: SkipBad = False,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    json: Json = False,
    trust_remote_code: Trust = False,
) -> None:
    """Parameter-free probes of every head of a model, as it comes: centroids from train, best head chosen on validation, figures on test.

    headwise stemcells probe --model bert-base-uncased --path DIR/ewt --task pos --task dep --labels
    """
    from headwise.models import open_model
    from headwise.probing import profile
    from headwise.probing._profiles import BASELINES

    own_bars()
    opened = open_model(model, need="encoder")
    tasks = _tasks(path, task, skip_bad)
    found = profile(
        opened.encoder.eval(),
        opened.tokenizer,
        tasks,
        baselines=BASELINES if baselines else (),
        examples=examples,
        seed=seed,
        quiet=json,
    )
    best = found.labels[found.labels["subject"] == "model"].drop(columns="subject")
    if emit({"summary": found.summary.to_dict("records"), "labels": found.labels.to_dict("records")}, json):
        return
    percent = found.summary.assign(**{name: 100 * found.summary[name] for name in ("precision", "recall", "f1")})
    rows = percent[["task", "subject", "precision", "recall", "f1", "labels"]].sort_values("task", kind="stable").values.tolist()
    print_table(
        f"Best head per label of {model}, means over labels on test, %",
        ["task", "subject", "precision", "recall", "F1", "labels"],
        rows,
        "heads chosen on validation; baselines choose theirs in the same way",
    )
    if labels:
        best = best.assign(**{name: 100 * best[name] for name in ("precision", "recall", "f1") if name in best})
        print_table("Best head of every label, %", list(best.columns), best.values.tolist())


def train(
    model: Model = EMBEDDED,
    path: DataFolder = None,
    task: Tasks = None,
    out: Annotated[Path | None, typer.Option("--out", help="Save the model here.")] = None,
    epochs: Annotated[int, typer.Option("--epochs", min=1)] = 20,
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Of the encoder.")] = 2e-4,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1)] = 32,
    max_examples: Annotated[int | None, typer.Option("--max-examples", min=1, help="At most so many training sentences.")] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Keep off a GPU.")] = False,
    skip_bad: SkipBad = False,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    json: Json = False,
    trust_remote_code: Trust = False,
) -> None:
    """Trains one encoder on one, some or all of the five tasks and prints their scores on test.

    headwise stemcells train --path DIR/ewt --task dep --epochs 12 --out models/dep
    """
    from headwise.studies._stemcells_study import SMALL
    from headwise.training import examine
    from headwise.training import train as run

    settings = SMALL | {
        "epochs": epochs,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "max_examples": max_examples,
        "device": "cpu" if cpu else None,
        "early_stopping": epochs,
        "seed": seed,
        "progress": not json,
    }
    own_bars()
    tasks = _tasks(path, task, skip_bad)
    result = run(model, tasks, "multi-task", out=out, **settings)
    scores, _ = examine(result.model, tasks, "test", progress=not json)
    if emit({"settings": settings, "scores": scores.to_dict("records")}, json):
        return
    percent = scores.assign(score=100 * scores["score"])
    print_table("Scores on test, %", ["task", "metric", "score", "sentences"], percent.values.tolist())


def _tasks(path: Path | None, names: list[str] | None, skip_bad: bool) -> list[Any]:
    from headwise.tasks import grammar, structured

    layers = names or ["pos", "ner", "dep", "con", "srl"]
    return grammar.tasks(layers, 600) if path is None else structured(path, layers, skip_bad=skip_bad)
