"""`headwise steer`: steers a language model towards one kind of statement."""

from typing import Annotated, Any

import typer

from headwise._base.least import EXPLAINED
from headwise.cli.common import Json, emit, of_model, own_bars, print_table
from headwise.steering._settings import Steer
from headwise.tasks._source import TaskSource

SHOWN = ("strength", "effect", "effect_low", "effect_high", "change", "change_low", "change_high", "accuracy", "kl")


def steer(
    source: TaskSource,
    settings: Steer,
    model: Annotated[str, of_model("A left-to-right language model: a folder, hub id or GGUF file.")],
    as_json: Json = False,
) -> None:
    """Finds the heads that tell statements apart and steers them: a table of strength against effect, and a steered model.

    headwise steer --model gpt2 --tasks-file truth.toml --tasks statements pairs --target true --out runs/truth
    """
    from headwise.steering import steer as run

    own_bars()
    result = run(model, source.find(), **settings.given() | {"quiet": settings.quiet or as_json})
    record: dict[str, Any] = {
        "strength": result.strength,
        "table": result.table.to_dict("records"),
        "heads": result.heads.to_dict("records"),
        "notes": result.notes,
        "settings": result.settings,
        "out": str(settings.out) if settings.out else None,
    }
    if emit(record, as_json):
        return
    heads = result.heads.head(10)
    more = len(result.heads) - len(heads)
    caption = "accuracy of a head's probe; sigma: standard deviation of its output along the direction"
    print_table("Steered heads", list(heads.columns), heads.to_numpy().tolist(), caption + (f"; {more} more" if more else ""))
    level = f"{100 * result.settings['level']:.3g} % intervals over examples"
    said = "log p(good) − log p(bad)" if result.settings["pairs"] else f"log p per token, {result.settings['target']} − others"
    for split, title in (("validation", "Strengths (validation, which chose)"), ("test", "Strengths (test, reported)")):
        table = result.table[result.table["split"] == split]
        columns = [name for name in SHOWN if name in table]
        caption = f"effect: {said}; change: from the intact model; kl: nats per token; {level}; chosen: {result.strength:g}"
        print_table(title, columns, table[columns].to_numpy().tolist(), caption)
    notes = [f"{split}: {note}" for split, note in result.table[["split", "note"]].drop_duplicates().to_numpy() if note]
    for note in (*notes, *result.notes):
        typer.echo(f"note: {note}")
    typer.echo(EXPLAINED)
    if settings.out is not None:
        typer.echo(f"tables and directions in {settings.out}")
