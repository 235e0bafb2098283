"""`headwise stemcells`: the study of heads that many tasks claim, and its probes on any model."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headwise import engine, probing, studies
from headwise._base.places import EMBEDDED
from headwise.cli.common import (
    Figures,
    Group,
    Jobs,
    Json,
    Out,
    Sets,
    Trust,
    check_drawing,
    model_option,
    show,
    show_run,
)
from headwise.cli.verbs import verb, with_options
from headwise.probing import Profiling
from headwise.studies import StemCells
from headwise.tasks import TaskSource

Model = Annotated[str, model_option("A folder or hub id; 'demo' is the embedded MiniLM.")]


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    group = typer.Typer(
        cls=Group,
        rich_markup_mode=None,
        help="Do different kinds of tasks claim the same heads, and does training them together harm those "
        "heads?\n\n"
        "headwise stemcells --recipe recipes/stemcells-small.toml --out runs/stemcells --figures",
        no_args_is_help=False,
    )
    group.callback(invoke_without_command=True)(with_options(whole_study))
    verb(group, "probe", probe)
    app.add_typer(group, name="stemcells")


def whole_study(
    context: typer.Context,
    settings: StemCells,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="A recipe (TOML) of kind stem-cells.")
    ] = None,
    out: Out = Path("runs/stemcells"),
    model: Model = "",
    sets: Sets = None,
    jobs: Jobs = None,
    figures: Figures = False,
    json: Json = False,
    trust_remote_code: Trust = False,
) -> None:
    """Runs the study: trainings alone, in pairs and together, the heads each task claims, probes, and the
    tests over all of them.

    Without a recipe: five tasks, three runs, small settings, on the sentences at --data or, without it, on
    the embedded grammar.
    """
    if context.invoked_subcommand is not None:
        return
    if figures:
        check_drawing()
    data: dict[str, Any] = {**studies.SMALL_RECIPE, "model": EMBEDDED}
    base = Path()
    if recipe is not None:
        data, base = engine.read_recipe_file(recipe), recipe.parent
    if model:
        data["model"] = model
    data |= settings.to_table()
    engine.apply_overrides(data, sets or [])
    checked, _ = engine.validate(studies.stemcells_study, data, base, out)
    board = engine.run_study(studies.stemcells_study, checked, out, jobs=jobs, quiet=json)
    if board.failed:
        raise typer.Exit(1)
    show_run(engine.open(out), json, figures)


def probe(
    source: TaskSource,
    settings: Profiling,
    model: Model = EMBEDDED,
    labels: Annotated[bool, typer.Option("--labels", help="Also show the best head of every label.")] = False,
    as_json: Json = False,
) -> None:
    """Probes every head of a model without any training: centroids from train, best head chosen on
    validation, scores on test.

    headwise stemcells probe --model bert-base-uncased --data DIR/ewt --tasks treebank:pos treebank:dep
    --labels
    """
    prefix = "grammar" if source.data is None else "treebank"
    five = [f"{prefix}:{layer}" for layer in StemCells().tasks]
    tasks = source.with_changes(size=source.size or StemCells().size).find(
        source.names or (() if source.file else five)
    )
    profiles = probing.profile(model, tasks, **settings.given() | {"quiet": settings.quiet or as_json})
    show(profiles.section(labels), as_json)
