"""What a report is made of: sections with findings, head maps, charts and tables. Knows neither HTML nor files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Table:
    """A table; numbers are shown with `digits` decimals. `name` is its file name among the figures for papers."""

    name: str
    title: str
    frame: pd.DataFrame
    caption: str = ""
    digits: int = 1


@dataclass(frozen=True)
class Chart:
    """A figure, twice: as plotly's data and layout for the page, and drawn by matplotlib for papers."""

    name: str
    title: str
    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]
    draw: "Callable[[], Figure]"
    caption: str = ""


@dataclass(frozen=True)
class HeadMaps:
    """One value per task and head, to be explored: (task, layer, head), NaN where a layer has no such head.

    `chosen` marks each task's selected heads, (layer, head) pairs; `measure` says what the values are.
    """

    name: str
    title: str
    measure: str
    values: xr.DataArray
    draw: "Callable[[], Figure]"
    chosen: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """One study in a report.

    Attributes:
        title: a line.
        findings: plain sentences with numbers and intervals; the report starts with these.
        blocks: figures and tables in order.
        methods: how it was done, for the methods paragraph.
        settings, provenance: as tables at the end.
        reproduce: the command or call that makes it again; `reading` fills it in, as `again` finds it.
    """

    title: str
    findings: Sequence[str]
    blocks: Sequence[Table | Chart | HeadMaps]
    methods: str
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    reproduce: str = ""


def text(value: Any) -> str:
    """A label for plotly, which reads a little HTML: what comes from data stays what it is."""
    return escape(str(value), quote=False)


def number(value: Any, digits: int = 1, sign: bool = False) -> str:
    """A number for a sentence; a dash where there is none."""
    value = float(value)
    return "–" if np.isnan(value) else f"{value:{'+' if sign else ''}.{digits}f}"


def between(low: Any, high: Any, digits: int = 1) -> str:
    """An interval for a sentence."""
    return (
        ""
        if np.isnan(float(low)) or np.isnan(float(high))
        else f" (95 % interval {number(low, digits)} to {number(high, digits)})"
    )


def sign(low: Any, high: Any) -> int:
    """What an interval of a difference carries: 1 above zero, −1 below, 0 where it holds zero or is missing."""
    low, high = float(low), float(high)
    return 1 if low > 0 else -1 if high < 0 else 0


NOT_SHOWN = "no difference could be shown"


def matrix_chart(
    name: str, title: str, table: pd.DataFrame, draw: "Callable[[], Figure]", *, unit: str, caption: str = "", digits: int = 1
) -> Chart:
    """A heat map of a table with its values written in."""
    values = table.to_numpy(dtype=float)
    shown = [["" if np.isnan(v) else f"{v:.{digits}f}" for v in row] for row in values]
    data = {
        "type": "heatmap",
        "z": [[None if np.isnan(v) else float(v) for v in row] for row in values],
        "x": [text(c) for c in table.columns],
        "y": [text(i) for i in table.index],
        "text": shown,
        "texttemplate": "%{text}",
        "colorscale": "Cividis",
        "hovertemplate": f"%{{y}}, %{{x}}: %{{z:.{digits + 1}f}} {text(unit)}<extra></extra>",
        "colorbar": {"title": {"text": text(unit), "side": "right"}},
    }
    height = 130 + 34 * len(table)
    return Chart(
        name, title, [data], {"height": height, "yaxis": {"autorange": "reversed"}, "xaxis": {"side": "bottom"}}, draw, caption
    )
