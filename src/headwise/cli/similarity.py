"""`headwise similarity`: how alike tasks are, and whether similar tasks specialise less."""

from pathlib import Path
from typing import Annotated

import typer

from headwise._base.least import EXPLAINED
from headwise.cli.common import Figures, Jobs, Json, Out, Trust, check_drawing, emit, print_table, run_recipe
from headwise.errors import HeadwiseError
from headwise.similarity._settings import Similarity
from headwise.tasks._source import TaskSource


def similarity(
    source: TaskSource,
    settings: Similarity,
    models: Annotated[
        list[str], typer.Option("--models", help="Models trained on one task each, as TASK=FOLDER, or a single-task run.")
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
    recipe = {"kind": "similarity", "models": _models(models), "tasks": source.to_table(), **settings.to_table()}
    from headwise.report import write_figures
    from headwise.studies._similarity_study import study

    run = run_recipe(study, recipe, out, jobs, as_json)
    table = run.table("similarity-pairs")
    metrics = [name for name in ("DSE", "CRA", "CNM", "AHP", "heads") if name in table]
    if figures:
        write_figures([out], out / "figures", tables=False)
    tests = run.table("similarity-link") if settings.dissociation is not None else None
    if emit({"pairs": table.to_dict("records"), "link": [] if tests is None else tests.to_dict("records")}, as_json):
        return
    columns = ["task", "other", *metrics, *(["dissociation"] if tests is not None else [])]
    print_table(
        "similarity of task pairs",
        columns,
        table[columns].to_numpy().tolist(),
        f"tables {'and figures ' if figures else ''}in {out}",
    )
    if tests is not None:
        columns = [
            name for name in ("similarity", "kind", "correlation", "p", "partial_correlation", "partial_p") if name in tests
        ]
        names = [name for name in ("note", "partial_note") if name in tests]
        why = dict.fromkeys(str(note) for note in tests[names].to_numpy().ravel() if note)
        caption = "; ".join(("p by relabelling tasks, the unit; not corrected for the number of similarities", *why))
        print_table("correlation with dissociation over pairs (Mantel)", columns, tests[columns].to_numpy().tolist(), caption)
        typer.echo(EXPLAINED)


def _models(given: list[str]) -> dict[str, str]:
    """Model folders by task: TASK=FOLDER as it stands; a single-task run by the tasks it was trained on."""
    from headwise.studies._trained import single_task_models

    found: dict[str, str] = {}
    for text in given:
        task, equals, folder = text.partition("=")
        if equals and not (task and folder):
            raise HeadwiseError(f"--models takes TASK=FOLDER or the folder of a single-task training, got {text!r}")
        found |= {task: folder} if equals else {name: str(place) for name, place in single_task_models(text).items()}
    return found
