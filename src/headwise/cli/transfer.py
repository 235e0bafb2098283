"""`headwise transfer`: how well trained models learn a new task from a few examples."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli.common import Jobs, Resumable, Trust, emit, print_table, run_recipe
from headwise.cli.subjects import said


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("transfer", cls=Resumable)(transfer)


def transfer(
    sources: Annotated[
        list[str], typer.Option("--from", help="Folders of trained models, as METHOD=FOLDER, or runs of `headwise train`.")
    ],
    to: Annotated[list[str], typer.Option("--to", help="New tasks: presets, grammar:topic, or names in --tasks-file.")],
    shots: Annotated[list[int] | None, typer.Option(min=1, help="Training examples in all. Default: 4 16 32 100.")] = None,
    seeds: Annotated[int, typer.Option(help="Fine-tunings per model, task and number of shots.")] = 30,
    data: Annotated[Path | None, typer.Option(help="Folder with the presets' data sets.")] = None,
    tasks_file: Annotated[Path | None, typer.Option(help="TOML file that defines tasks.")] = None,
    metric: Annotated[str | None, typer.Option(help="One metric for all new tasks; default: each task's own.")] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens per text or pair; default: as in the models' training, else 256.")
    ] = None,
    tuning: Annotated[str, typer.Option(help="full, lora or decoder.")] = "full",
    epochs: Annotated[int, typer.Option(help="Passes over the few examples.")] = 20,
    learning_rate: Annotated[float, typer.Option(help="Peak learning rate.")] = 2e-5,
    evaluate: Annotated[int | None, typer.Option(help="Evaluate on so many held-out examples; default: all.")] = None,
    baseline: Annotated[str, typer.Option(help="Method the others are compared with; default: the first.")] = "",
    out: Annotated[Path, typer.Option(help="The run's folder; the same command again goes on with it.")] = Path("runs/transfer"),
    jobs: Jobs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    trust_remote_code: Trust = False,
) -> None:
    """Fine-tunes trained models on a few examples of new tasks (Tables 6 and 8), and tests which learn more.

    headwise transfer --from runs/glue --to sick imdb --shots 4 16 --seeds 30 --data DIR --out runs/transfer
    """
    recipe: dict[str, Any] = {
        "kind": "transfer",
        "sources": find_sources(sources),
        "tasks": {"names": to},
        "shots": shots or [4, 16, 32, 100],
        "seeds": seeds,
        "baseline": baseline,
        "fewshot": {"tuning": tuning, "epochs": epochs, "learning_rate": learning_rate},
    }
    if metric is not None:
        recipe["tasks"]["metric"] = metric
    if max_length is not None:
        recipe["fewshot"]["max_length"] = max_length
    if data is not None:
        recipe["tasks"]["data"] = str(data)
    if tasks_file is not None:
        recipe["tasks"]["file"] = str(tasks_file)
    if evaluate is not None:
        recipe["evaluate"] = evaluate
    from headwise.figures._blocks import spread
    from headwise.studies._transfer_study import study

    run = run_recipe(study, recipe, out, jobs, as_json)
    table = run.table("transfer")
    tests = run.table("transfer-tests") if len(recipe["sources"]) > 1 else None
    cells = run.table("few-shot")
    notes = [note for note in cells["note"].unique() if note]
    judged = said(*({task: part[name].iloc[0] for task, part in cells.groupby("task")} for name in ("metric", "max_length")))
    found = {
        "scores": table.to_dict("records"),
        "tests": [] if tests is None else tests.to_dict("records"),
        "notes": notes,
        "judged": judged,
    }
    if emit(found, as_json):
        return
    wide = table.assign(cell=[spread(m, s) for m, s in zip(table["mean"], table["sd"], strict=True)])
    grid = wide.pivot(index=["task", "method"], columns="shots", values="cell").reset_index()
    print_table(
        f"few-shot transfer, {seeds} seeds",
        [str(c) for c in grid.columns],
        grid.to_numpy().tolist(),
        f"{judged}; tables in {out}",
    )
    if tests is not None:
        columns = ["task", "shots", "method", "baseline", "difference", "low", "high", "p", "q", "sources"]
        title = "differences in points, 95 % intervals; the unit is the source model"
        print_table(
            title, columns, tests[columns].to_numpy().tolist(), "; ".join(why for why in dict.fromkeys(tests["note"]) if why)
        )
    for note in notes:
        typer.echo(f"note: {note}")


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
