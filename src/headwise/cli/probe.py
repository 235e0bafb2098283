"""`headwise probe`: what every head of a model knows."""

from pathlib import Path
from typing import Annotated

import typer

from headwise._base.least import EXPLAINED
from headwise._base.places import EMBEDDED
from headwise.cli.common import Figures, Jobs, Json, Out, check_drawing, emit, of_model, print_table, run_recipe
from headwise.cli.subjects import made_up
from headwise.errors import HeadwiseError
from headwise.probing._settings import Probe, ProbingTasks

SHOWN = {
    "last": "last layer",
    "best": "best layer",
    "top": "top heads",
    "best gain %": "best over last, %",
    "top gain %": "top over last, %",
}


def probe(
    source: ProbingTasks,
    settings: Probe,
    model: Annotated[
        list[str] | None,
        of_model("Model folders or hub ids; NAME=FOLDER sets the name shown in tables."),
    ] = None,
    figures: Figures = True,
    out: Out = Path("runs/probe"),
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Fits a probe to every head and every layer, and compares last layer, best layer and top-n heads (Jo & Myaeng 2020).

    headwise probe --model bert-base-uncased --source senteval --data DIR --out runs/probe
    """
    if figures:
        check_drawing()
    recipe = {"kind": "probing", "models": _models(model), "tasks": source.to_table(), "probing": settings.to_table()}
    from headwise import engine
    from headwise.report import write_figures
    from headwise.studies._probing_study import study, table_of
    from headwise.studies._sections.probing import top_against

    run_recipe(study, recipe, out, jobs, as_json)
    table = table_of(out)
    drawn = [str(file) for file in write_figures([out], out / "figures", tables=False)] if figures else []
    if emit({"table": table.to_dict("records"), "figures": drawn}, as_json):
        return
    columns = [
        c
        for c in ("model", "task", "metric", "majority", "best head", "last", "best", "top", "best gain %", "top gain %")
        if c in table
    ]
    embeddings = engine.open(out).table("embeddings")
    synthetic = [str(task) for task, part in embeddings.groupby("task", sort=False) if part["synthetic"].any()]
    shares = {"majority", "best head", "last", "best", "top"}
    rows = [
        [f"{100 * row[c]:.1f}" if c in shares else f"{row[c]:+.1f}" if "%" in c else row[c] for c in columns]
        for row in table.to_dict("records")
    ]
    print_table(
        "test scores in percent, everything chosen on validation (where a task has none, by five folds of train)",
        [SHOWN.get(c, c) for c in columns],
        rows,
        "; ".join(filter(None, (made_up(synthetic), f"tables {'and figures ' if figures else ''}in {out}"))),
    )
    for name, part in embeddings.groupby("model", sort=False):
        if sentence := top_against(part, "last"):
            typer.echo(f"{name}: {sentence}")
    typer.echo(EXPLAINED)


def _models(given: list[str] | None) -> dict[str, str]:
    """Models by their names in tables; without any, the embedded one."""
    if not given:
        return {"MiniLM": EMBEDDED}
    found: dict[str, str] = {}
    for text in given:
        name, equals, place = text.partition("=")
        target = place if equals else text
        label = name if equals else Path(text).name
        if label in found:
            raise HeadwiseError(f"two models are called {label!r}: name them with --model NAME=FOLDER")
        found[label] = str(Path(target).absolute()) if Path(target).is_dir() else target
    return found
