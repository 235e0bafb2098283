"""The anatomy of a model as plain values, for people and machines."""

from typing import Any

from headwise.heads._errors import UnsupportedModel
from headwise.heads._freeze.ownership import parameters_per_head
from headwise.heads._heads import Heads
from headwise.heads._inputs import root_of


def anatomy(heads: Heads) -> dict[str, Any]:
    """Every site of a model: layer, kind, path, heads, head size, groups, and the parameters one head works
    with.

    `parameters_per_head` counts rows of W_Q, W_K, W_V with biases and columns of W_O, shared keys and values
    in full; it is None where the parameters of one head cannot be separated (quantized weights).
    """
    root: Any = root_of(heads.model)
    try:
        counts: list[int | None] = list(parameters_per_head(heads))
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
