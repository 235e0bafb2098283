"""`headwise score`: how much each head of a model matters to each task."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli.common import Trust, Verb, emit, print_table
from headwise.cli.subjects import MaxLength, Metric, Size, judged, open_for_tasks


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("score", cls=Verb)(score)


def score(
    model: Annotated[str, typer.Option("--model", "-m", help="A folder of `headwise train`, or a plain transformers model.")],
    tasks: Annotated[list[str] | None, typer.Option(help="Presets (sst2), grammar:topic, names in --tasks-file.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder that holds the presets' data sets; default: the model's, else the hub.")
    ] = None,
    tasks_file: Annotated[Path | None, typer.Option(help="TOML file that defines tasks.")] = None,
    method: Annotated[
        str, typer.Option(help="gate-gradient, ablation, integrated-gradients, shapley, l0, subset, ...")
    ] = "gate-gradient",
    variant: Annotated[
        str | None, typer.Option(help="Of gate-gradient: eq4, michel, iap, iat, bertology, super-tickets.")
    ] = None,
    fraction: Annotated[float, typer.Option(help="Share of heads shown as top, 0-1.")] = 0.3,
    iterative: Annotated[float | None, typer.Option(help="Silence this share of heads, score again, and so on.")] = None,
    examples: Annotated[int | None, typer.Option(help="Most training examples; default: the method's own.")] = None,
    split: Annotated[str, typer.Option(help="The split to score on.")] = "train",
    max_length: MaxLength = None,
    metric: Metric = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples at a time; the result does not depend on it.")] = None,
    size: Size = None,
    seed: Annotated[int, typer.Option(help="Of the sample, and of methods that draw.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...; default: a GPU if there is one.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save the scores as netCDF (xarray) here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    trust_remote_code: Trust = False,
) -> None:
    """Scores every head for every task and prints each task's top heads, layer by layer.

    headwise score --model runs/glue --tasks sst2 mrpc --method gate-gradient
    """
    from headwise.lesions.dissociation import heads_per_layer
    from headwise.scoring import score as score_heads
    from headwise.scoring import top_heads
    from headwise.scoring.saving import save_scores

    answering, found = open_for_tasks(model, tasks, data, tasks_file, size=size, metric=metric, device=device)
    options: dict[str, Any] = {"split": split, "max_length": max_length, "seed": seed, "batch_size": batch_size, "quiet": as_json}
    if examples is not None:
        options["examples"] = examples
    scores = score_heads(answering, found, method, iterative=iterative, variant=variant, **options)
    how = judged(answering, found, max_length)
    scores.attrs["judged"] = how
    if out is not None:
        save_scores(scores, out)
    sets = {task.name: top_heads(scores.sel(task=task.name), fraction) for task in found}
    record = {
        "settings": scores.attrs,
        "judged": how,
        "scores": {task.name: scores.sel(task=task.name).to_numpy().tolist() for task in found},
        "top": {name: [list(head) for head in chosen] for name, chosen in sets.items()},
        "out": str(out) if out else None,
    }
    if emit(record, as_json):
        return
    layers = heads_per_layer(sets, scores.sizes["layer"])
    rows = [
        [int(layer), *(_heads_of(chosen, int(layer)) for chosen in sets.values()), float(layers["sigma"].iloc[int(layer)])]
        for layer in layers.index
    ]
    named = f"{method} ({variant})" if variant else method
    caption = f"{named}; the {len(next(iter(sets.values())))} highest of {int(scores.isel(task=0).notnull().sum())} heads; {how}"
    print_table("Top heads of each task", ["layer", *sets, "σ of counts"], rows, caption)
    if out is not None:
        typer.echo(f"scores in {out}")


def _heads_of(chosen: Any, layer: int) -> str:
    return " ".join(str(head) for at, head in chosen if at == layer) or "-"
