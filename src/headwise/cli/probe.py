"""`headwise probe`: what every head of a model knows."""

from pathlib import Path
from typing import Annotated

from headwise import studies
from headwise._base.places import EMBEDDED
from headwise.cli.common import Figures, Jobs, Json, Out, check_drawing, model_option, run_recipe, show_run
from headwise.errors import HeadwiseError
from headwise.probing import Probe, ProbingTasks


def probe(
    source: ProbingTasks,
    settings: Probe,
    model: Annotated[
        list[str] | None,
        model_option("Model folders or hub ids; NAME=FOLDER sets the name shown in tables."),
    ] = None,
    figures: Figures = True,
    out: Out = Path("runs/probe"),
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Fits a probe to every head and every layer, and compares last layer, best layer and top-n heads (Jo &
    Myaeng 2020).

    headwise probe --model bert-base-uncased --source senteval --data DIR --out runs/probe
    """
    if figures:
        check_drawing()
    recipe = {
        "kind": "probing",
        "models": _models(model),
        "tasks": source.to_table(),
        "probing": settings.to_table(),
    }
    show_run(run_recipe(studies.probing_study, recipe, out, jobs, as_json), as_json, figures)


def _models(options: list[str] | None) -> dict[str, str]:
    """Models by their names in tables; without any, the embedded one."""
    if not options:
        return {"MiniLM": EMBEDDED}
    models: dict[str, str] = {}
    for option in options:
        name, equals, model = option.partition("=")
        if not equals:
            name, model = Path(option).name, option
        if name in models:
            raise HeadwiseError(f"two models are called {name!r}: name them with --model NAME=FOLDER")
        models[name] = str(Path(model).absolute()) if Path(model).is_dir() else model
    return models
