"""`headwise dissociate`: do tasks need different heads?"""

from typing import Annotated

import typer

from headwise.cli.common import Figures, Json, check_drawing, of_model, own_bars, show
from headwise.lesions import Dissociate
from headwise.tasks import TaskSource


def dissociate(
    source: TaskSource,
    settings: Dissociate,
    model: Annotated[str, of_model("A folder that `headwise train` wrote.")],
    figures: Figures = True,
    as_json: Json = False,
) -> None:
    """Silences each task's most important heads and measures what every task loses: dissociation score D, verdicts, tests.

    headwise dissociate --model runs/five --fraction 0.3 --test-draws 199 --out runs/five-dissociation
    """
    from headwise.figures import save_figure
    from headwise.lesions import dissociate as run
    from headwise.models import remembered_tasks

    out = settings.out
    if out is not None and figures:
        check_drawing()
    own_bars()
    tasks = remembered_tasks(model, source)
    if (
        (settings.test_draws or settings.matched_draws)
        and not as_json
        and not (out is not None and out.exists())
    ):
        lesions = len(tasks) * (len(tasks) + 1 + settings.random_draws)
        tests = (
            2 * settings.test_draws * len(tasks) * (len(tasks) - 1) + settings.matched_draws * len(tasks) ** 2
        )
        typer.echo(
            f"the tests of D add at most {tests} evaluations of a task to the {lesions} of the lesions",
            err=True,
        )
    result = run(model, tasks, **settings.given() | {"quiet": settings.quiet or as_json})
    if out is not None and figures and not (out / "figures").is_dir():
        for kind in result.figures:
            save_figure(result.plot(kind), out / "figures" / kind)
    show(result.section(), as_json, out)
