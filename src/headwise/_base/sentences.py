"""Numbers, intervals and what may be said of them, as every sentence of a result words them."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

NOT_SHOWN = "no difference could be shown"
NO_INTERVAL = "there is no interval, so nothing is said beyond these examples"


def number(value: Any, digits: int = 1, sign: bool = False) -> str:
    """A number for a sentence; a dash where there is none."""
    value = round(float(value), digits) + 0.0  # 0.0 turns -0.0 into 0.0
    if math.isnan(value):
        return "–"
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def between(low: Any, high: Any, digits: int = 1, level: float = 0.95) -> str:
    """An interval for a sentence; empty where there is none (over one unit it would be infinite)."""
    if not (math.isfinite(float(low)) and math.isfinite(float(high))):
        return ""
    return f" ({100 * level:g} % interval {number(low, digits)} to {number(high, digits)})"


def spread(mean: Any, sd: Any) -> str:
    """A mean with its standard deviation, for a cell; alone where one run has none."""
    if math.isnan(float(sd)):
        return number(mean)
    return f"{number(mean)} ± {number(sd)}"


def sign(low: Any, high: Any) -> int:
    """What an interval of a difference carries: 1 above zero, −1 below, 0 where it holds zero or is
    missing."""
    return int(float(low) > 0) - int(float(high) < 0)


def counted(count: int, noun: str) -> str:
    """A number of things: "1 task", "3 tasks"."""
    return f"{count} {noun}{'s' * (count != 1)}"


def no_interval(why: str, units: str = "examples") -> str:
    """What a sentence says where there is no interval: nothing beyond what was seen, and why; `why` may be a
    table's note."""
    reason = f" ({why.removeprefix('no interval: ')})" * bool(why)
    return f"there is no interval{reason}, so nothing is said beyond these {units}"


def synthetic_text(tasks: Iterable[str]) -> str:
    """A sentence that names the tasks whose text was generated; empty where there is none."""
    names = list(tasks)
    return f" The text of {', '.join(names)} is synthetic." if names else ""


def synthetic_rows(cells: "pd.DataFrame") -> str:
    """The same for the tasks of a table's rows that are marked in its column "synthetic"."""
    if "synthetic" not in cells:
        return ""
    marked = cells.loc[cells["synthetic"].eq(True), "task"]
    return synthetic_text(str(task) for task in dict.fromkeys(marked))
