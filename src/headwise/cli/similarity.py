"""`headwise similarity`: how alike tasks are, and whether similar tasks specialise less."""

from pathlib import Path
from typing import Annotated

import typer

from headwise import studies
from headwise.cli.common import Figures, Jobs, Json, Out, Trust, check_drawing, run_recipe, show_run
from headwise.errors import HeadwiseError
from headwise.similarity import Similarity
from headwise.tasks import TaskSource


def similarity(
    source: TaskSource,
    settings: Similarity,
    models: Annotated[
        list[str],
        typer.Option(
            "--models", help="Models trained on one task each, as TASK=FOLDER, or a single-task run."
        ),
    ],
    out: Out = Path("runs/similarity"),
    figures: Figures = True,
    jobs: Jobs = None,
    as_json: Json = False,
    trust_remote_code: Trust = False,
) -> None:
    """Task similarity by DSE, CRA, CNM, AHP and heads, and its link with dissociation (Li et al. 2023, Figs.
    3, 5-7).

    headwise similarity --models runs/single --multitask runs/five --dissociation runs/five-dissociation
    """
    if figures:
        check_drawing()
    recipe = {
        "kind": "similarity",
        "models": _models(models),
        "tasks": source.to_table(),
        **settings.to_table(),
    }
    show_run(run_recipe(studies.SIMILARITY, recipe, out, jobs, as_json), as_json, figures)


def _models(options: list[str]) -> dict[str, str]:
    """Model folders by task: TASK=FOLDER as it stands; a single-task run by the tasks it was trained on."""
    models: dict[str, str] = {}
    for option in options:
        task, equals, folder = option.partition("=")
        if not equals:
            models |= {name: str(path) for name, path in studies.single_task_models(option).items()}
        elif task and folder:
            models[task] = folder
        else:
            raise HeadwiseError(
                f"--models takes TASK=FOLDER or the folder of a single-task training, got {option!r}"
            )
    return models
