"""`headwise similarity`: how alike tasks are, and whether similar tasks specialise less."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli.common import Jobs, Resumable, Trust, emit, print_table, run_recipe
from headwise.errors import HeadwiseError


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("similarity", cls=Resumable)(similarity)


def similarity(
    models: Annotated[
        list[str], typer.Option("--models", help="The model trained on each task alone, as TASK=FOLDER; or a single-task run.")
    ],
    sentences: Annotated[Path | None, typer.Option(help="Sentences for DSE and CRA: text, csv or parquet.")] = None,
    brain: Annotated[Path | None, typer.Option(help="Brain responses for CNM (Pereira et al. 2018).")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the presets' data sets, for AHP and head scores.")] = None,
    tasks_file: Annotated[Path | None, typer.Option(help="TOML file that defines tasks.")] = None,
    ahp: Annotated[bool, typer.Option("--ahp", help="Transfer every model to every task (AHP).")] = False,
    shots: Annotated[int, typer.Option(min=1, help="Training examples of each AHP transfer.")] = 1000,
    multitask: Annotated[Path | None, typer.Option(help="A multi-task model: compares tasks by their head scores.")] = None,
    dissociation: Annotated[
        Path | None, typer.Option(help="Correlate with this folder (or table of pairs) of `headwise dissociate`.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The run's folder; the same command again goes on with it.")] = Path(
        "runs/similarity"
    ),
    jobs: Jobs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    trust_remote_code: Trust = False,
) -> None:
    """Task similarity by DSE, CRA, CNM, AHP and heads, and its link with dissociation (Figures 3, 5, 6, 7).

    headwise similarity --models runs/single --multitask runs/five --dissociation runs/five-dissociation
    """
    recipe: dict[str, Any] = {"kind": "similarity", "models": _models(models)}
    given = {"sentences": sentences, "brain": brain, "data": data, "tasks_file": tasks_file}
    given |= {"multitask": multitask, "dissociation": dissociation}
    recipe |= {name: str(path) for name, path in given.items() if path is not None}
    if ahp:
        recipe["transfers"] = {"shots": shots}
    from headwise.report import write_figures
    from headwise.studies._similarity_study import study

    run = run_recipe(study, recipe, out, jobs, as_json)
    table = run.table("similarity-pairs")
    metrics = [name for name in ("DSE", "CRA", "CNM", "AHP", "heads") if name in table]
    write_figures([out], out / "figures", tables=False)
    tests = run.table("similarity-link") if dissociation is not None else None
    if emit({"pairs": table.to_dict("records"), "link": [] if tests is None else tests.to_dict("records")}, as_json):
        return
    columns = ["task", "other", *metrics, *(["dissociation"] if tests is not None else [])]
    print_table("similarity of task pairs", columns, table[columns].to_numpy().tolist(), f"figures in {out / 'figures'}")
    if tests is not None:
        columns = [
            name for name in ("similarity", "kind", "correlation", "p", "partial_correlation", "partial_p") if name in tests
        ]
        print_table("correlation with dissociation over pairs (Mantel)", columns, tests[columns].to_numpy().tolist())


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
