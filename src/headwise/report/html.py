"""One self-contained HTML file from sections: figures, data, style and script inside, nothing from
outside."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise import __version__
from headwise._base.places import model_label
from headwise.errors import MissingExtra
from headwise.figures import svg
from headwise.sections import Chart, HeadMaps, Section, Table, shown_columns, shown_rows

if TYPE_CHECKING:
    import xarray as xr

HERE = Path(__file__).parent
# fields of a section that the template takes as they are
FIELDS = ("title", "findings", "notes", "methods", "reproduce")


def render(sections: Sequence[Section], title: str) -> str:
    """The page as text.

    Args:
        sections: what to show, in order.
        title: heading of the page.
    """
    try:
        from jinja2 import Environment
    except ImportError as error:
        raise MissingExtra(error.name or "jinja2", "report") from error
    maps: list[dict[str, Any]] = []
    shown = []
    for number, section in enumerate(sections, 1):
        blocks = []
        for figure, block in enumerate(section.blocks, 1):
            blocks.append(_block(block, f"figure-{number}-{figure}", maps))
        fields = {name: getattr(section, name) for name in FIELDS}
        fields["blocks"] = blocks
        fields["lead"] = int(bool(blocks) and blocks[0]["kind"] != "table")  # shown with the headline
        fields["settings"], fields["provenance"] = _pairs(section.settings), _pairs(section.provenance)
        shown.append(fields)
    page = Environment(autoescape=True, trim_blocks=True).from_string(
        (HERE / "page.html").read_text(encoding="utf-8")
    )
    return page.render(
        title=title,
        version=__version__,
        sections=shown,
        data=_json({"maps": maps}),
        css=(HERE / "page.css").read_text(encoding="utf-8"),
        js=(HERE / "page.js").read_text(encoding="utf-8"),
    )


def _block(block: Table | Chart | HeadMaps, name: str, maps: list[dict[str, Any]]) -> dict[str, Any]:
    """A block as the page's template takes it; the values of head maps go into `maps`, for the page's
    script."""
    common = {"title": block.title, "caption": block.caption}
    if isinstance(block, Chart):
        return {"kind": "chart", "svg": svg(block.draw(), name), **common}
    if isinstance(block, HeadMaps):
        values = block.values.transpose("task", "layer", "head")
        maps.append(_map(block, values, f"map-{len(maps)}"))
        single = values.sizes["task"] == 1
        return {"kind": "maps", "id": maps[-1]["id"], "measure": block.measure, "single": single, **common}
    columns = shown_columns(block)
    return {
        "kind": "table",
        "columns": [column.heading for column in columns],
        "rows": shown_rows(columns),
        "words": [index for index, column in enumerate(columns) if column.words],
        **common,
    }


def _map(block: HeadMaps, values: "xr.DataArray", identifier: str) -> dict[str, Any]:
    """Head maps as the page's script reads them."""
    effects: dict[str, list[Any]] = {}
    for task, lesions in block.effects.items():
        effects[task] = [
            [effect.lesion, *_short([effect.value, effect.low, effect.high])] for effect in lesions
        ]
    chosen = {}
    for task, heads in block.chosen.items():
        chosen[task] = [f"{layer}.{head}" for layer, head in heads]
    return {
        "id": identifier,
        "title": block.title,
        "measure": block.measure,
        "tasks": [str(task) for task in values["task"].values],
        "values": _short(values.to_numpy()),
        "effect": block.effect,
        "effects": effects,
        "chosen": chosen,
    }


def _short(values: Any) -> Any:
    """Nested sequences of numbers with five digits each, None for those that are not finite."""
    if np.ndim(values):
        return [_short(value) for value in values]
    return float(f"{float(values):.5g}") if math.isfinite(values) else None


def _json(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    # "<" cannot end the script element early when it is written as an escape
    return text.replace("<", "\\u003c").replace("&", "\\u0026")


def _pairs(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """The names and values of nested tables, one below the other."""
    pairs: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            pairs += _pairs(value, f"{prefix}{key}.")
        elif key == "model" or prefix == "models.":
            pairs.append((f"{prefix}{key}", model_label(str(value))))
        else:
            pairs.append((f"{prefix}{key}", str(value)))
    return pairs
