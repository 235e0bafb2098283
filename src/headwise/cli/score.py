"""`headwise score`: how much each head of a model matters to each task."""

from typing import Annotated

from headwise import models, scoring, sharing
from headwise.cli.common import Json, model_option, show
from headwise.errors import HeadwiseError
from headwise.scoring import Score
from headwise.settings import Settings, option
from headwise.tasks import TaskSource


class Shown(Settings):
    """What is printed of the scores."""

    fraction: float = option(0.3, "Fraction of heads to list as top heads.", gt=0, lt=1)
    card: bool = option(
        False, "Also write a model card with the head map, README.md, into the folder of --out."
    )


def score(
    source: TaskSource,
    settings: Score,
    shown: Shown,
    model: Annotated[
        str, model_option("A folder that `headwise train` wrote, or a plain transformers model.")
    ],
    as_json: Json = False,
) -> None:
    """Scores every head for every task and prints each task's top heads, layer by layer.

    headwise score --model runs/glue --tasks sst2 mrpc --method gate-gradient
    """
    if shown.card and settings.out is None:
        raise HeadwiseError("--card writes into the folder of the scores: give --out FOLDER")
    tasks = models.remembered_tasks(model, source)
    scores = scoring.score(model, tasks, **settings.given() | {"quiet": settings.quiet or as_json})
    if shown.card and settings.out is not None:
        sharing.card(settings.out).write(settings.out)
    show(scores.section(shown.fraction), as_json, settings.out)
