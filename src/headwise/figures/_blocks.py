"""What a report is made of: sections with findings, head maps, charts and tables. Knows neither HTML nor files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """A figure that `draw` makes: the same on the page and in a paper."""

    name: str
    title: str
    draw: "Callable[[], Figure]"
    caption: str = ""


@dataclass(frozen=True)
class Effect:
    """What a lesion leaves of a task, in percent, with its interval (NaN where there is none)."""

    lesion: str
    value: float
    low: float = float("nan")
    high: float = float("nan")


@dataclass(frozen=True)
class HeadMaps:
    """One value per task and head, to be explored: (task, layer, head), NaN where a layer has no such head.

    `chosen` marks each task's selected heads, (layer, head) pairs; `measure` says what the values are. `effects` are shown beside each
    task's map, and `effect` says what they are percent of.
    """

    name: str
    title: str
    measure: str
    values: xr.DataArray
    chosen: Mapping[str, Iterable[Sequence[int]]] = field(default_factory=dict)
    caption: str = ""
    effects: Mapping[str, Sequence[Effect]] = field(default_factory=dict)
    effect: str = ""

    def draw(self) -> "Figure":
        """The maps for a paper; the page has its own, which answer to the mouse."""
        from headwise.figures._probing import heatmaps

        values = self.values.transpose("task", "layer", "head")
        return heatmaps(values, chosen=self.chosen, legend=self.measure, effects=self.effects, effect=self.effect)


@dataclass(frozen=True)
class Section:
    """One study in a report.

    Attributes:
        title: a line.
        findings: plain sentences with numbers and intervals; the first one is the section's headline.
        blocks: figures and tables in order; a figure that comes first is shown with the headline.
        methods: how it was done, for the methods paragraph.
        settings, provenance: as tables at the end; of a study's section the report fills them in.
        reproduce: the command or call that makes it again; the report fills it in.
    """

    title: str
    findings: Sequence[str]
    blocks: Sequence[Table | Chart | HeadMaps]
    methods: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    reproduce: str = ""


def number(value: Any, digits: int = 1, sign: bool = False) -> str:
    """A number for a sentence; a dash where there is none."""
    value = round(float(value), digits) + 0.0  # 0.0 turns -0.0 into 0.0
    return "–" if np.isnan(value) else f"{value:{'+' if sign else ''}.{digits}f}"


def between(low: Any, high: Any, digits: int = 1, level: float = 0.95) -> str:
    """An interval for a sentence; empty where there is none (over one unit it would be infinite)."""
    bounded = np.isfinite(float(low)) and np.isfinite(float(high))
    return f" ({100 * level:g} % interval {number(low, digits)} to {number(high, digits)})" if bounded else ""


def spread(mean: Any, sd: Any) -> str:
    """A mean with its standard deviation, for a cell; alone where one run has none."""
    return number(mean) + ("" if np.isnan(float(sd)) else f" ± {number(sd)}")


def sign(low: Any, high: Any) -> int:
    """What an interval of a difference carries: 1 above zero, −1 below, 0 where it holds zero or is missing."""
    low, high = float(low), float(high)
    return 1 if low > 0 else -1 if high < 0 else 0


NOT_SHOWN = "no difference could be shown"


NO_INTERVAL = "there is no interval, so nothing is said beyond these examples"


def no_interval(why: str, units: str = "examples") -> str:
    """What a sentence says where there is no interval: nothing beyond what was seen, and why; `why` may be a table's note."""
    reason = f" ({why.removeprefix('no interval: ')})" if why else ""
    return f"there is no interval{reason}, so nothing is said beyond these {units}"


def synthetic_text(tasks: Iterable[str]) -> str:
    """A sentence that names the tasks whose text was generated; empty where there is none."""
    names = list(tasks)
    return f" The text of {', '.join(names)} is synthetic." if names else ""


def synthetic_rows(cells: pd.DataFrame) -> str:
    """The same for the tasks of a table's rows that are marked in its column "synthetic", which older results lack."""
    marked = cells.loc[cells["synthetic"].eq(True), "task"] if "synthetic" in cells else ()
    return synthetic_text(str(task) for task in dict.fromkeys(marked))


def without_empty_notes(frame: pd.DataFrame) -> pd.DataFrame:
    """A table without its column of notes where no row has one."""
    return frame if "note" not in frame or frame["note"].astype(bool).any() else frame.drop(columns="note")
