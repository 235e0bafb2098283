"""One self-contained HTML file from sections: figures, data, style and script inside, nothing from outside."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwise import __version__
from headwise._base.places import model_label
from headwise.errors import MissingExtra
from headwise.figures import svg
from headwise.sections import Chart, HeadMaps, Section, Table, shown_columns, shown_rows

HERE = Path(__file__).parent


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
    for place, section in enumerate(sections, 1):
        blocks = [
            _block(block, f"figure-{place}-{number}", maps) for number, block in enumerate(section.blocks, 1)
        ]
        pairs = {"settings": _pairs(section.settings), "provenance": _pairs(section.provenance)}
        fields = ("title", "findings", "notes", "methods", "reproduce")
        lead = (
            1 if blocks and blocks[0]["kind"] != "table" else 0
        )  # the figure that is shown with the headline
        shown.append(
            {"blocks": blocks, "lead": lead, **pairs, **{name: getattr(section, name) for name in fields}}
        )
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
    common = {"title": block.title, "caption": block.caption}
    if isinstance(block, Chart):
        return {"kind": "chart", "svg": svg(block.draw(), name), **common}
    if isinstance(block, HeadMaps):
        values = block.values.transpose("task", "layer", "head")
        maps.append(
            {
                "id": f"map-{len(maps)}",
                "title": block.title,
                "measure": block.measure,
                "tasks": [str(task) for task in values["task"].values],
                "values": [[[_short(v) for v in row] for row in task] for task in values.to_numpy()],
                "effect": block.effect,
                "effects": {
                    task: [[e.lesion, *(_short(v) for v in (e.value, e.low, e.high))] for e in effects]
                    for task, effects in block.effects.items()
                },
                "chosen": {
                    task: [f"{layer}.{head}" for layer, head in heads] for task, heads in block.chosen.items()
                },
            }
        )
        return {
            "kind": "maps",
            "id": maps[-1]["id"],
            "measure": block.measure,
            "single": values.sizes["task"] == 1,
            **common,
        }
    shown = shown_columns(block)
    words = [place for place, column in enumerate(shown) if column.words]
    return {
        "kind": "table",
        "columns": [column.heading for column in shown],
        "rows": shown_rows(shown),
        "words": words,
        **common,
    }


def _short(value: Any) -> float | None:
    return float(f"{float(value):.5g}") if math.isfinite(value) else None


def _json(value: Any) -> str:
    # "<" cannot end the script element early when it is written as an escape
    return (
        json.dumps(value, separators=(",", ":"), allow_nan=False)
        .replace("<", "\\u003c")
        .replace("&", "\\u0026")
    )


def _pairs(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            found += _pairs(value, f"{prefix}{key}.")
        else:
            found.append(
                (
                    f"{prefix}{key}",
                    model_label(str(value)) if key == "model" or prefix == "models." else str(value),
                )
            )
    return found
