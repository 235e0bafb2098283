"""Low-rank adapters (LoRA) on the projections of heads: which entries may learn when only some heads do.

An update is B·A. Of queries, keys and values, a head has its rows of B, and all heads share A; of the output
projection it has its columns of A, and all share B. A factor that heads share moves every one of them, so it
learns only if all of them do.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn

from headwise.errors import HeadwiseError
from headwise.heads._freeze.ownership import Owned, adapted_layers, ownership

if TYPE_CHECKING:
    from headwise.heads._heads import Heads

FACTORS = ("lora_A", "lora_B"), ("lora_embedding_A", "lora_embedding_B")  # of projections, and of tables


def learning_parameters(heads: "Heads") -> list[Owned]:
    """What belongs to heads, with the factors of the low-rank updates of their projections.

    Raises:
        HeadwiseError: a projection of heads has an adapter whose update is not B·A.
    """
    layers = adapted_layers(heads.model)
    if not layers:
        return list(ownership(heads))
    _check_sites(heads, layers)
    parameters: list[Owned] = []
    for owned in ownership(heads):
        paths = [path for path in layers if owned.name.startswith(f"{path}.")]
        if not paths:
            parameters.append(owned)
        elif ".lora_" not in owned.name:  # factors follow from the weight they are added to
            parameters.append(replace(owned, jointly=True))
            for path in paths:
                _check_product(path, layers[path])
                if owned.name.removeprefix(path).replace(".base_layer", "") == ".weight":
                    parameters += _factors(path, layers[path], owned)
    return parameters


def check_adapters(heads: "Heads") -> None:
    """Raises a HeadwiseError if heads have adapters that cannot be trained head by head."""
    if adapted_layers(heads.model):
        learning_parameters(heads)


def adapter_names(model: nn.Module) -> tuple[tuple[str, ...], ...]:
    """Each adapted layer's path and the names of its low-rank updates: what a plan of frozen parameters was
    made for."""
    names = []
    for path, layer in adapted_layers(model).items():
        names.append((path, *getattr(layer, "lora_A", ()), *getattr(layer, "lora_embedding_A", ())))
    return tuple(names)


def _factors(path: str, layer: Any, weight: Owned) -> Iterator[Owned]:
    """The factors of all adapters of a layer, in use or not."""
    # (heads,) that the projection serves, by site
    served_heads = {site: marks.any(0) for site, marks in weight.owners.items()}
    for down, up in FACTORS:
        headed, shared, dim = (down, up, 1) if weight.output else (up, down, 0)
        for adapter in getattr(layer, down, ()):
            ending = ".weight" if down == "lora_A" else ""
            yield replace(weight, name=f"{path}.{headed}.{adapter}{ending}", dim=dim, jointly=True)
            if headed == "lora_B" and layer.lora_B[adapter].bias is not None:
                yield replace(weight, name=f"{path}.lora_B.{adapter}.bias", dim=0, jointly=True)
            name = f"{shared}.{adapter}{ending}"
            entries = len(layer.get_parameter(name))
            owners = {site: served.expand(entries, -1) for site, served in served_heads.items()}
            yield replace(weight, name=f"{path}.{name}", dim=0, owners=owners, jointly=True)


def _check_sites(heads: "Heads", layers: dict[str, Any]) -> None:
    """Looks at the output projections by themselves: an adapter that changes their input hides their weights
    from the search."""
    for site in heads.sites:
        for path, layer in layers.items():
            if f"{site.path}.".startswith(f"{path}."):
                _check_product(path, layer)


def _check_product(path: str, layer: Any) -> None:
    """Raises a HeadwiseError that names the adapter if its update is not B·A."""
    *_, tuner, _ = type(layer).__module__.split(".")
    variants = {type(variant).__name__ for variant in getattr(layer, "lora_variant", {}).values()}
    if tuner != "lora":
        name = tuner
    elif any(getattr(layer, "use_dora", {}).values()):
        name = "DoRA"
    elif variants:
        name = min(variants)
    elif type(layer).__name__ in ("MultiheadAttention", "ParamWrapper"):
        name = f"LoRA {type(layer).__name__}"
    else:
        return
    raise HeadwiseError(
        f"{path} has an adapter of type {name}, of which heads cannot be trained one by one: its update is "
        "not a product B·A with rows or columns for each head. Train heads with plain LoRA, or merge the "
        "adapter first (model = model.merge_and_unload())"
    )
