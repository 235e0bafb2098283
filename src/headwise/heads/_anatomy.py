"""The anatomy of a model as plain values, and what is said of its heads and of a set of them."""

from typing import TYPE_CHECKING, Any

import pandas as pd

from headwise._base.places import model_label
from headwise._base.sentences import counted
from headwise.heads._errors import UnsupportedModel
from headwise.heads._inputs import root_of
from headwise.sections import Section, Table

if TYPE_CHECKING:
    from headwise.heads._heads import Heads
    from headwise.heads._headset import HeadSet


def anatomy(heads: "Heads") -> dict[str, Any]:
    """Every site of a model: layer, kind, path, heads, head size, groups, and the parameters one head works
    with.

    `parameters_per_head` counts rows of W_Q, W_K, W_V with biases and columns of W_O, shared keys and values
    in full; it is None where the parameters of one head cannot be separated (quantized weights).
    """
    root: Any = root_of(heads.model)
    try:
        counts: list[int | None] = [*heads.parameters_per_head()]
    except UnsupportedModel:
        counts = [None] * len(heads.sites)
    sites = [
        {**site.to_dict(), "parameters_per_head": count}
        for site, count in zip(heads.sites, counts, strict=True)
    ]
    return {
        "model": root.config.name_or_path or type(root).__name__,
        "class": type(root).__name__,
        "model_type": root.config.model_type,
        "parameters": sum(parameter.numel() for parameter in root.parameters()),
        "sites": sites,
        "missed": heads.missed,
        "total_heads": heads.total,
    }


def heads_section(heads: "Heads") -> Section:
    """The section of the heads of a model: every attention layer, and what it is made of."""
    facts = anatomy(heads)
    sites = facts["sites"]
    finding = (
        f"{counted(facts['total_heads'], 'head')} in {counted(len(sites), 'layer')}; "
        f"{facts['parameters']:,} parameters."
    )
    return Section(
        title=f"{model_label(facts['model'])}: {facts['class']}",
        findings=[finding],
        blocks=[Table("layers", "Attention layers", pd.DataFrame([_table_row(site) for site in sites]))],
        notes=[f"out of reach: {path} ({reason})" for path, reason in facts["missed"].items()],
        values=facts,
    )


def _table_row(site: dict[str, Any]) -> dict[str, Any]:
    projection, parameters = site["path"], site["parameters_per_head"]
    if site["n_calls"] > 1:
        projection += f" (call {site['call'] + 1} of {site['n_calls']})"
    return {
        "layer": site["layer"],
        "kind": site["kind"],
        "output projection": projection,
        "heads": site["heads"],
        "head size": site["head_dim"],
        "keys and values": _grouping(site["heads"], site["groups"]),
        "parameters per head": "–" if parameters is None else f"{parameters:,}",
    }


def _grouping(heads: int, groups: int) -> str:
    if groups == heads:
        return "one per head"
    if groups == 1:
        return "one shared by all heads"
    return f"{groups} shared by {heads // groups} heads each"


def head_set_section(head_set: "HeadSet") -> Section:
    """The section of a set of heads, layer by layer."""
    rows = [(layer, " ".join(map(str, heads))) for layer, heads in head_set.layers().items()]
    table = Table("heads", "Heads of each layer, both from 0", pd.DataFrame(rows, columns=["layer", "heads"]))
    return Section("A set of heads", [f"{head_set}."], [table])
