"""`headwise score`: how much each head of a model matters to each task."""

from typing import Annotated, Any

import typer

from headwise.cli.common import Json, emit, of_model, own_bars, print_table
from headwise.cli.subjects import intact, made_up, said
from headwise.errors import HeadwiseError
from headwise.scoring._settings import Score
from headwise.settings import Settings, option
from headwise.tasks._source import TaskSource


class Shown(Settings):
    """What is printed of the scores."""

    fraction: float = option(0.3, "Fraction of heads to list as top heads.", gt=0, lt=1)
    card: bool = option(False, "Also write a model card with the head map, README.md, into the folder of --out.")


def score(
    source: TaskSource,
    settings: Score,
    shown: Shown,
    model: Annotated[str, of_model("A folder that `headwise train` wrote, or a plain transformers model.")],
    as_json: Json = False,
) -> None:
    """Scores every head for every task and prints each task's top heads, layer by layer.

    headwise score --model runs/glue --tasks sst2 mrpc --method gate-gradient
    """
    from headwise.lesions._dissociation import heads_per_layer
    from headwise.models._memory import remembered_tasks
    from headwise.scoring import score as score_heads, top_heads
    from headwise.studies._sections import patching
    from headwise.tasks._metrics import label

    if shown.card and settings.out is None:
        raise HeadwiseError("--card writes into the folder of the scores: give --out FOLDER")
    own_bars()
    found = remembered_tasks(model, source)
    scores = score_heads(model, found, **settings.given() | {"quiet": settings.quiet or as_json})
    how, out = said(scores.attrs["metrics"], scores.attrs["max_length"]), settings.out
    if shown.card and out is not None:
        from headwise.sharing import card

        card(out).write(out)
    sets = {task.name: top_heads(scores.sel(task=task.name), shown.fraction) for task in found}
    record = {
        "settings": scores.attrs,
        "judged": how,
        "scores": {task.name: scores.sel(task=task.name).to_numpy().tolist() for task in found},
        "top": {name: [list(head) for head in chosen] for name, chosen in sets.items()},
        "out": str(out) if out else None,
    }
    if emit(record, as_json):
        return
    total = int(scores.isel(task=0).notnull().sum())
    synthetic = made_up(task.name for task in found if task.synthetic)
    ending = "; ".join(filter(None, (how, intact(scores.attrs, [task.name for task in found]), synthetic)))
    if settings.method in patching.METHODS:
        table = patching.listed(scores)
        caption = (
            f"{settings.method}, {scores.attrs['direction']}; of {total} heads; 100 % is the whole logit difference; {ending}"
        )
        print_table("What heads carry of the logit difference", list(table.columns), table.round(1).to_numpy().tolist(), caption)
    else:
        layers = heads_per_layer(sets, scores.sizes["layer"])
        rows = [
            [int(layer), *(_heads_of(chosen, int(layer)) for chosen in sets.values()), float(layers["sigma"].iloc[int(layer)])]
            for layer in layers.index
        ]
        named = f"{settings.method} ({settings.variant})" if settings.variant else settings.method
        first = "of the largest size (scores are signed)" if scores.attrs.get("sense") == "signed" else "highest"
        caption = f"{named}; the {len(next(iter(sets.values())))} {first} of {total} heads; {ending}"
        spread = ["σ of counts"] if len(sets) > 1 else []
        caption += "; σ of counts: how much the number of top heads in a layer differs between tasks" if spread else ""
        rows = [row[: 1 + len(sets) + len(spread)] for row in rows]
        print_table("Top heads of each task", ["layer", *sets, *spread], rows, caption)
    performance = {name: found for name, found in scores.attrs.get("performance", {}).items() if "perplexity" in found}
    if performance:
        names = list(dict.fromkeys(name for one in performance.values() for name in one))
        rows = [[task, *(f"{one[name]:.4g}" if name in one else "-" for name in names)] for task, one in performance.items()]
        print_table(
            "Language modelling", ["task", *map(label, names)], rows, "of the intact model, on the examples that were scored"
        )
    for note in scores.attrs.get("notes", []):
        typer.echo(f"note: {note}")
    if out is not None:
        typer.echo(f"scores in {out}")


def _heads_of(chosen: Any, layer: int) -> str:
    return " ".join(str(head) for at, head in chosen if at == layer) or "-"
