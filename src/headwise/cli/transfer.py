"""`headwise transfer`: how well trained models learn a new task from a few examples."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headwise import studies
from headwise.cli.common import Jobs, Json, Out, Trust, run_recipe, show_run
from headwise.cli.verbs import help_of
from headwise.tasks import TaskSource
from headwise.training import FewShot, Shots, Transfer


def transfer(
    source: TaskSource,
    settings: Transfer,
    sources: Annotated[
        list[str],
        typer.Option("--from", help="Trained models, as METHOD=FOLDER, or runs of `headwise train`."),
    ],
    tasks: Annotated[list[str], typer.Option("--to", "--tasks", help=help_of(TaskSource, "names"))],
    baseline: Annotated[
        str, typer.Option(help="Method to compare the others with; default: the first.")
    ] = "",
    out: Out = Path("runs/transfer"),
    jobs: Jobs = None,
    as_json: Json = False,
    trust_remote_code: Trust = False,
) -> None:
    """Fine-tunes trained models on a few examples of new tasks (Li et al. 2023, Tables 6 and 8), and tests
    which learn more.

    headwise transfer --from runs/glue --to sick imdb --shots 4 16 --seeds 30 --data DIR --out runs/transfer
    """
    options = settings.given()
    recipe: dict[str, Any] = {
        "kind": "transfer",
        "sources": find_sources(sources),
        "tasks": source.given() | {"names": tasks},
        "baseline": baseline,
        "fewshot": {name: value for name, value in options.items() if name in FewShot.model_fields},
        **{name: value for name, value in options.items() if name in Shots.model_fields},
    }
    show_run(run_recipe(studies.transfer_study, recipe, out, jobs, settings.quiet or as_json), as_json)


def find_sources(options: list[str]) -> dict[str, list[str]]:
    """The model folders by method: METHOD=FOLDER as it stands; a training run by what its models say of
    themselves."""
    sources: dict[str, list[str]] = {}
    for option in options:
        method, equals, folder = option.partition("=")
        models = {method: [Path(folder)]} if equals else studies.trained_models(option)
        for name, folders in models.items():
            sources.setdefault(name, []).extend(str(path.absolute()) for path in folders)
    return sources
