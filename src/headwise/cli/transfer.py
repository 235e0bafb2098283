"""`headwise transfer`: how well trained models learn a new task from a few examples."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headwise._base.least import EXPLAINED
from headwise.cli.common import Jobs, Json, Out, Trust, emit, print_table, run_recipe
from headwise.cli.subjects import made_up, said
from headwise.cli.verbs import help_of
from headwise.tasks._source import TaskSource
from headwise.training._settings import FewShot, Shots, Transfer


def transfer(
    source: TaskSource,
    settings: Transfer,
    sources: Annotated[list[str], typer.Option("--from", help="Trained models, as METHOD=FOLDER, or runs of `headwise train`.")],
    tasks: Annotated[list[str], typer.Option("--to", "--tasks", help=help_of(TaskSource, "names"))],
    baseline: Annotated[str, typer.Option(help="Method to compare the others with; default: the first.")] = "",
    out: Out = Path("runs/transfer"),
    jobs: Jobs = None,
    as_json: Json = False,
    trust_remote_code: Trust = False,
) -> None:
    """Fine-tunes trained models on a few examples of new tasks (Li et al. 2023, Tables 6 and 8), and tests which learn more.

    headwise transfer --from runs/glue --to sick imdb --shots 4 16 --seeds 30 --data DIR --out runs/transfer
    """
    given = settings.given()
    recipe: dict[str, Any] = {
        "kind": "transfer",
        "sources": find_sources(sources),
        "tasks": source.given() | {"names": tasks},
        "baseline": baseline,
        "fewshot": {name: value for name, value in given.items() if name in FewShot.model_fields},
        **{name: value for name, value in given.items() if name in Shots.model_fields},
    }
    from headwise.figures._blocks import spread
    from headwise.studies._transfer_study import study

    run = run_recipe(study, recipe, out, jobs, settings.quiet or as_json)
    table = run.table("transfer")
    tests = run.table("transfer-tests") if len(recipe["sources"]) > 1 else None
    cells = run.table("few-shot")
    notes = [note for note in cells["note"].unique() if note]
    judged = said(*({task: part[name].iloc[0] for task, part in cells.groupby("task")} for name in ("metric", "max_length")))
    synthetic = [str(task) for task, part in cells.groupby("task", sort=False) if part["synthetic"].any()]
    found = {
        "scores": table.to_dict("records"),
        "tests": [] if tests is None else tests.to_dict("records"),
        "notes": notes,
        "judged": judged,
        "synthetic": synthetic,
    }
    if emit(found, as_json):
        return
    wide = table.assign(cell=[spread(m, s) for m, s in zip(table["mean"], table["sd"], strict=True)])
    grid = wide.pivot(index=["task", "method"], columns="shots", values="cell").reset_index()
    if "chance" in cells:  # older runs have none
        grid.insert(1, "chance", (100 * grid["task"].map(cells.groupby("task")["chance"].mean())).round(1))
    print_table(
        f"few-shot transfer, {settings.seeds} seeds",
        [str(c) for c in grid.columns],
        grid.to_numpy().tolist(),
        "; ".join(filter(None, (f"percent, {_runs(table)}", judged, made_up(synthetic), f"tables in {out}"))),
    )
    if tests is not None:
        columns = ["task", "shots", "method", "baseline", "difference", "low", "high", "p", "q", "sources"]
        spans = ", 95 % intervals" if tests["low"].notna().any() else ""
        why = dict.fromkeys(part for note in tests["note"] for part in str(note).split("; ") if part)
        title = f"differences in points{spans}; the unit is the source model"
        print_table(title, columns, tests[columns].to_numpy().tolist(), "; ".join(why))
    for note in notes:
        typer.echo(f"note: {note}")
    if tests is not None:
        typer.echo(EXPLAINED)


def _runs(table: Any) -> str:
    """What "±" is over."""
    runs, sources = int(table["runs"].max()), int(table["sources"].max())
    models = f"{sources} source model{'s' * (sources > 1)}"
    return f"mean ± sd over {runs} runs ({models} × few-shot seeds)" if runs > 1 else "one run"


def find_sources(given: list[str]) -> dict[str, list[str]]:
    """The model folders by method: METHOD=FOLDER as it stands; a training run by what its models say of themselves."""
    from headwise.studies._trained import trained_models

    found: dict[str, list[str]] = {}
    for text in given:
        method, equals, folder = text.partition("=")
        models = {method: [Path(folder)]} if equals else trained_models(text)
        for name, folders in models.items():
            found.setdefault(name, []).extend(str(one.absolute()) for one in folders)
    return found
