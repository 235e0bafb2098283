"""`headwise dissociate`: do tasks need different heads?"""

from typing import Annotated

import typer

from headwise import figures as drawing, lesions, models
from headwise.cli.common import Figures, Json, check_drawing, model_option, show
from headwise.lesions import Dissociate
from headwise.tasks import TaskSource


def dissociate(
    source: TaskSource,
    settings: Dissociate,
    model: Annotated[str, model_option("A folder that `headwise train` wrote.")],
    figures: Figures = True,
    as_json: Json = False,
) -> None:
    """Silences each task's most important heads and measures what every task loses: dissociation score D,
    verdicts, tests.

    headwise dissociate --model runs/five --fraction 0.3 --test-draws 199 --out runs/five-dissociation
    """
    out = settings.out
    if out is not None and figures:
        check_drawing()
    tasks = models.remembered_tasks(model, source)
    finished = out is not None and out.exists()
    if (settings.test_draws or settings.matched_draws) and not as_json and not finished:
        typer.echo(_cost(settings, len(tasks)), err=True)
    result = lesions.dissociate(model, tasks, **settings.given() | {"quiet": settings.quiet or as_json})
    if out is not None and figures and not (out / "figures").is_dir():
        for kind in result.figures:
            drawing.save_figure(result.plot(kind), out / "figures" / kind)
    show(result.section(), as_json, out)


def _cost(settings: Dissociate, tasks: int) -> str:
    """How much work the tests are, beside the lesions."""
    passes = tasks * (tasks + 1 + settings.random_draws)
    tests = 2 * settings.test_draws * tasks * (tasks - 1) + settings.matched_draws * tasks**2
    return f"the tests of D add at most {tests} evaluations of a task to the {passes} of the lesions"
