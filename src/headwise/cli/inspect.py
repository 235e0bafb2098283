"""`headwise inspect`: the anatomy of a model."""

from typing import Annotated, Any

import typer

from headwise.cli.common import Json, Trust, emit, own_bars, print_table


def inspect(
    model: Annotated[str, typer.Argument(help="A model folder, a hub id, or 'demo' for the embedded MiniLM.")],
    partial: Annotated[bool, typer.Option("--partial", help="Allow attention layers that headwise cannot reach.")] = False,
    as_json: Json = False,
    trust_remote_code: Trust = False,
) -> None:
    """Finds every attention layer of a model and prints what it is made of.

    headwise inspect bert-base-uncased
    """
    from headwise.heads._find.anatomy import anatomy
    from headwise.heads._heads import Heads
    from headwise.models import open_model

    own_bars()
    found = {**anatomy(Heads(open_model(model, need="heads"), partial=partial)), "model": model}
    if not emit(found, as_json):
        show(found)


def show(found: dict[str, Any]) -> None:
    """Prints an anatomy as a table."""
    rows = [
        (
            site["layer"],
            site["kind"],
            site["path"] + (f" (call {site['call'] + 1} of {site['n_calls']})" if site["n_calls"] > 1 else ""),
            site["heads"],
            site["head_dim"],
            _grouping(site["heads"], site["groups"]),
            "–" if site["parameters_per_head"] is None else f"{site['parameters_per_head']:,}",
        )
        for site in found["sites"]
    ]
    missed = "".join(f"\nout of reach: {path} ({reason})" for path, reason in found["missed"].items())
    caption = f"{found['total_heads']} heads in {len(rows)} layers; {found['parameters']:,} parameters{missed}"
    columns = ("layer", "kind", "output projection", "heads", "head size", "keys and values", "parameters per head")
    print_table(f"{found['model']}: {found['class']}", columns, rows, caption)


def _grouping(heads: int, groups: int) -> str:
    if groups == heads:
        return "one per head"
    return f"{groups} shared by {heads // groups} heads each" if groups > 1 else "one shared by all heads"
