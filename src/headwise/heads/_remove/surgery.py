"""Cutting heads out of a live model: what to cut, as JSON-ready values, and the one function that does it.

A removed model and a reloaded one are made by the same `operate`, so what was verified once is what comes
back.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn

from headwise.heads._remove.cutting import (
    cut_parameters,
    narrow_arguments,
    set_attributes,
    set_configs,
    share_biases,
)
from headwise.heads._remove.headless import take_heads


@dataclass
class Surgery:
    """What is cut out of a model, and how its attention code learns of it. Names and paths are those of the
    model.

    Attributes:
        removed: (layer, head) pairs, by the sites of the model before.
        slices: {parameter: (axis, [(start, stop), ...])}, the entries that stay.
        attributes: {module: {attribute: value}}, where the module keeps numbers of heads and widths.
        config: {module: {name: value}}, the same where it reads them from the model's configuration.
        arguments: {module: {argument: (axis, heads, heads that stay)}}, for position biases made elsewhere
            for all heads.
        tables: {module: (embedding or "", position, heads, heads that stay)}, for a position bias that the
            module makes for all layers (of zeros if no embedding is named) and returns at `position`.
        headless: {module: (output projection or "", container, what is in it)}, for attention with no head
            left (see `Headless`).
    """

    removed: list[tuple[int, int]] = field(default_factory=list)
    slices: dict[str, tuple[int, list[tuple[int, int]]]] = field(default_factory=dict)
    attributes: dict[str, dict[str, int]] = field(default_factory=dict)
    config: dict[str, dict[str, int]] = field(default_factory=dict)
    arguments: dict[str, dict[str, tuple[int, int, list[int]]]] = field(default_factory=dict)
    tables: dict[str, tuple[str, int, int, list[int]]] = field(default_factory=dict)
    headless: dict[str, tuple[str, str, list[str]]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Values for a manifest; `Surgery(**values)` reads them back."""
        return asdict(self)


def operate(model: nn.Module, surgery: Surgery) -> None:
    """Cuts in place."""
    cut_parameters(model, surgery.slices)
    set_numbers(model, surgery)
    narrow_arguments(model, surgery.arguments)
    share_biases(model, surgery.tables)
    take_heads(model, surgery.headless)


def set_numbers(model: nn.Module, surgery: Surgery) -> None:
    """Tells attention modules how many heads they have now."""
    set_attributes(model, surgery.attributes)
    set_configs(model, surgery.config)
