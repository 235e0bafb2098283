"""`headwise probe`: what every head of a model knows."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headwise._base.places import EMBEDDED
from headwise.cli.common import Resumable, Trust, emit, print_table, run_recipe
from headwise.errors import HeadwiseError, did_you_mean

SHOWN = {
    "last": "last layer",
    "best": "best layer",
    "top": "top heads",
    "best gain %": "best over last, %",
    "top gain %": "top over last, %",
}


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("probe", cls=Resumable)(probe)


def probe(
    model: Annotated[
        list[str] | None, typer.Option("--model", help="Folders or hub ids; NAME=FOLDER gives a name for tables.")
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(help="senteval, treebank or grammar for the ten probing tasks; or presets such as sst2."),
    ] = None,
    path: Annotated[Path | None, typer.Option(help="Folder with the tasks (SentEval's files, a treebank, or data sets).")] = None,
    tasks_file: Annotated[Path | None, typer.Option(help="TOML file that defines tasks.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only these of the ten tasks, e.g. Depth BigramShift.")] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="One metric for all tasks; default: the one the model was trained with, else the task's own."),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens per text; default: as in the model's training, else the tokenizer's limit.")
    ] = None,
    pooling: Annotated[str | None, typer.Option(help="cls, last or mean; default: by the kind of model.")] = None,
    folds: Annotated[
        int | None,
        typer.Option(help="Choose by so many folds of train and validation; default: by validation, without one by 5."),
    ] = None,
    top: Annotated[int | None, typer.Option(help="Heads in the top-n embedding; default: heads per layer.")] = None,
    sweep: Annotated[list[int] | None, typer.Option(help="Further numbers of heads; -1: 1, 2, 4, … up to all.")] = None,
    controls: Annotated[list[str] | None, typer.Option(help="labels, encoder, or none. Default: labels.")] = None,
    pairs: Annotated[str, typer.Option(help="compare: [|u-v|; u*v] of both texts; together: the model reads both.")] = "compare",
    examples: Annotated[int | None, typer.Option(help="At most this many examples of each split.")] = None,
    size: Annotated[int, typer.Option(help="Sentences of the grammar.")] = 6000,
    seed: Annotated[int, typer.Option(help="Of samples, folds and controls.")] = 0,
    figures: Annotated[bool, typer.Option(help="Also draw heat maps, sweep and scatter.")] = True,
    out: Annotated[Path, typer.Option(help="The run's folder; the same command again goes on with it.")] = Path("runs/probe"),
    jobs: Annotated[int | None, typer.Option(help="Tasks at once; 0: in this process.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    trust_remote_code: Trust = False,
) -> None:
    """Fits a probe to every head and every layer, and compares last layer, best layer and top-n heads (Tables 3 and 5, Figs. 3, 5-7).

    headwise probe --model bert-base-uncased --tasks senteval --path DIR --out runs/probe
    """
    names = tasks or ["senteval"]
    sources = ("senteval", "treebank", "grammar")
    ten = names[0] in sources
    if not ten and (meant := did_you_mean(names[0], sources)):
        raise HeadwiseError(
            f"--tasks {names[0]}: no such source{meant} (or name tasks of your own: presets, tables of --tasks-file)"
        )
    if ten and len(names) > 1:
        raise HeadwiseError(f"--tasks {' '.join(names)}: {names[0]} stands alone; choose among its tasks with --only")
    source: dict[str, Any] = {"source": names[0] if ten else "tasks", "names": only or [] if ten else names, "size": size}
    source |= {name: str(given.absolute()) for name, given in (("data", path), ("file", tasks_file)) if given is not None}
    given: dict[str, Any] = {
        "pooling": pooling,
        "folds": folds,
        "top": top,
        "examples": examples,
        "sweep": sweep or [],
        "max_length": max_length,
    }
    if metric is not None:
        source["metric"] = metric
    chosen = [name for name in controls if name != "none"] if controls else ["labels"]
    recipe = {
        "kind": "probing",
        "models": _models(model),
        "tasks": source,
        "probing": {"pairs": pairs, "controls": chosen, **{name: value for name, value in given.items() if value is not None}},
        "seed": seed,
    }
    from headwise.report import write_figures
    from headwise.studies._probing_study import study, table_of

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
    shares = {"majority", "best head", "last", "best", "top"}
    rows = [
        [f"{100 * row[c]:.1f}" if c in shares else f"{row[c]:+.1f}" if "%" in c else row[c] for c in columns]
        for row in table.to_dict("records")
    ]
    print_table(
        "test scores in percent, everything chosen on validation (where a task has none, by five folds of train)",
        [SHOWN.get(c, c) for c in columns],
        rows,
        f"tables {'and figures ' if figures else ''}in {out}",
    )


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
