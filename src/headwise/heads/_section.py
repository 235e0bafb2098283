"""What is said of a model's heads, and of a set of them."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from headwise._base.places import model_label
from headwise._base.sentences import counted
from headwise.heads._find.anatomy import anatomy
from headwise.sections import Section, Table

if TYPE_CHECKING:
    from headwise.heads._heads import Heads
    from headwise.heads._headset import HeadSet


def of_heads(heads: "Heads") -> Section:
    """The section of the heads of a model: every attention layer, and what it is made of."""
    facts = anatomy(heads)
    return Section(
        title=f"{model_label(facts['model'])}: {facts['class']}",
        findings=[
            f"{counted(facts['total_heads'], 'head')} in {counted(len(facts['sites']), 'layer')}; "
            f"{facts['parameters']:,} parameters."
        ],
        blocks=[Table("layers", "Attention layers", pd.DataFrame([_row(site) for site in facts["sites"]]))],
        notes=[f"out of reach: {path} ({reason})" for path, reason in facts["missed"].items()],
        values=facts,
    )


def _row(site: dict[str, Any]) -> dict[str, Any]:
    call = f" (call {site['call'] + 1} of {site['n_calls']})" if site["n_calls"] > 1 else ""
    parameters = site["parameters_per_head"]
    return {
        "layer": site["layer"],
        "kind": site["kind"],
        "output projection": site["path"] + call,
        "heads": site["heads"],
        "head size": site["head_dim"],
        "keys and values": _grouping(site["heads"], site["groups"]),
        "parameters per head": "–" if parameters is None else f"{parameters:,}",
    }


def _grouping(heads: int, groups: int) -> str:
    if groups == heads:
        return "one per head"
    return f"{groups} shared by {heads // groups} heads each" if groups > 1 else "one shared by all heads"


def of_set(chosen: "HeadSet") -> Section:
    """The section of a set of heads, layer by layer."""
    rows = [{"layer": layer, "heads": " ".join(map(str, heads))} for layer, heads in chosen.layers().items()]
    table = pd.DataFrame(rows, columns=["layer", "heads"])
    return Section(
        "A set of heads", [f"{chosen}."], [Table("heads", "Heads of each layer, both from 0", table)]
    )
