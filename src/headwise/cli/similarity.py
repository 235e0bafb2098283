"""`headwise similarity`: how alike tasks are, and whether similar tasks specialise less."""

from pathlib import Path
from typing import Annotated

import typer

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
    """Task similarity by DSE, CRA, CNM, AHP and heads, and its link with dissociation (Li et al. 2023, Figs. 3, 5-7).

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
    from headwise.studies import SIMILARITY

    show_run(run_recipe(SIMILARITY, recipe, out, jobs, as_json), as_json, figures)


def _models(given: list[str]) -> dict[str, str]:
    """Model folders by task: TASK=FOLDER as it stands; a single-task run by the tasks it was trained on."""
    from headwise.studies import single_task_models

    found: dict[str, str] = {}
    for text in given:
        task, equals, folder = text.partition("=")
        if equals and not (task and folder):
            raise HeadwiseError(
                f"--models takes TASK=FOLDER or the folder of a single-task training, got {text!r}"
            )
        found |= (
            {task: folder}
            if equals
            else {name: str(place) for name, place in single_task_models(text).items()}
        )
    return found
