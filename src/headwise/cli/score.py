"""`headwise score`: how much each head of a model matters to each task."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.cli.common import Trust, Verb, emit, own_bars, print_table


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command("score", cls=Verb)(score)


def score(
    model: Annotated[str, typer.Option("--model", "-m", help="A folder of `headwise train`, or a plain transformers model.")],
    tasks: Annotated[list[str] | None, typer.Option(help="Presets (sst2), grammar:topic, names in --tasks-file.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder that holds the presets' data sets; default: the hub.")] = None,
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
    max_length: Annotated[int, typer.Option(help="Tokens per text or pair.")] = 256,
    batch_size: Annotated[int | None, typer.Option(help="Examples at a time; the result does not depend on it.")] = None,
    size: Annotated[int, typer.Option(help="Training examples of a grammar task.")] = 2000,
    seed: Annotated[int, typer.Option(help="Of the sample, and of methods that draw.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...; default: a GPU if there is one.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save the scores as netCDF (xarray) here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    trust_remote_code: Trust = False,
) -> None:
    """Scores every head for every task and prints each task's top heads, layer by layer.

    headwise score --model runs/glue --tasks sst2 mrpc --data DIR --method gate-gradient
    """
    from headwise.lesions.dissociation import heads_per_layer
    from headwise.scoring import score as score_heads
    from headwise.scoring import top_heads
    from headwise.scoring.saving import save_scores

    answering, found = open_for_tasks(model, tasks, data, tasks_file, size=size, seed=seed, device=device)
    options: dict[str, Any] = {"split": split, "max_length": max_length, "seed": seed, "batch_size": batch_size, "quiet": as_json}
    if examples is not None:
        options["examples"] = examples
    scores = score_heads(answering, found, method, iterative=iterative, variant=variant, **options)
    if out is not None:
        save_scores(scores, out)
    sets = {task.name: top_heads(scores.sel(task=task.name), fraction) for task in found}
    record = {
        "settings": scores.attrs,
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
    how = f"{method} ({variant})" if variant else method
    caption = f"{how}; the {len(next(iter(sets.values())))} highest of {int(scores.isel(task=0).notnull().sum())} heads"
    print_table("Top heads of each task", ["layer", *sets, "σ of counts"], rows, caption)
    if out is not None:
        typer.echo(f"scores in {out}")


def _heads_of(chosen: Any, layer: int) -> str:
    return " ".join(str(head) for at, head in chosen if at == layer) or "-"


def open_for_tasks(
    model: str, names: list[str] | None, data: Path | None, file: Path | None, *, size: int, seed: int, device: str | None
) -> tuple[Any, list[Any]]:
    """The model and the tasks a verb names; without names, the tasks the model was trained on."""
    import torch

    from headwise import manifest
    from headwise.scoring.subject import as_subject_model
    from headwise.tasks.naming import find_tasks

    own_bars()
    if not names and file is None and (Path(model) / manifest.NAME).is_file():
        names = [task["name"] for task in manifest.read(model).get("tasks", [])]
    found = find_tasks(names or [], data, file, size=size, seed=seed)
    answering = as_subject_model(model, found)
    return answering.to(device or ("cuda" if torch.cuda.is_available() else "cpu")), found
