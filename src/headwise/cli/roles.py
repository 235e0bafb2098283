"""`headwise roles`: what every head of a model does."""

from typing import Annotated, Any

import typer

from headwise.behaviour._settings import Roles
from headwise.cli.common import Json, emit, of_model, own_bars, print_table
from headwise.settings import Settings, option


class Shown(Settings):
    """What is printed of the roles."""

    top: int = option(3, "Heads shown for each role.", ge=1)


def roles(
    settings: Roles,
    shown: Shown,
    model: Annotated[str, of_model("A transformers model, by folder or hub id, or a folder of `headwise train`.")],
    as_json: Json = False,
) -> None:
    """Scores every head for every role and prints each role's strongest heads, next to the chance level.

    headwise roles --model gpt2 --roles induction previous-token --texts wiki.txt --out runs/gpt2-roles
    """
    from headwise.behaviour import roles as find_roles
    from headwise.behaviour._tables import strongest

    own_bars()
    found = find_roles(model, None, **settings.given() | {"quiet": settings.quiet or as_json})
    table = strongest(found, shown.top)
    record: dict[str, Any] = {
        "settings": found.attrs,
        "roles": {str(role): found.sel(role=role).to_numpy().tolist() for role in found["role"].values},
        "chance": {str(role): found["chance"].sel(role=role).to_numpy().tolist() for role in found["role"].values},
        "top": table.to_dict("records"),
        "out": str(settings.out) if settings.out else None,
    }
    if emit(record, as_json):
        return
    read = found.attrs.get("texts", {})
    caption = "layer.head and its score, -: none above 0; chance: attention spread evenly, 0 for eigenvalues and effects"
    caption += "; text is synthetic: give --texts FILE for your own" if read.get("synthetic") else ""
    print_table("What heads do", list(table.columns), table.round({"chance": 3}).to_numpy().tolist(), caption)
    for role, note in found.attrs["notes"].items():
        typer.echo(f"note: {role}: {note}")
    for note in found.attrs.get("stale", []):
        typer.echo(f"note: {note}")
    if settings.out is not None:
        typer.echo(f"roles in {settings.out}")
