"""What fine-tuning does to what heads know: heat maps before and after, their difference, and whether the
pattern stays (§6.1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
import xarray as xr
from scipy import stats

from headwise import figures
from headwise.errors import HeadwiseError
from headwise.probing._results import Probes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Shift:
    """Probes of one model before and after.

    Attributes:
        before, after: test scores (task, layer, head) of the tasks in both.
        table: one row per task: mean change over heads, share of heads that rose, Pearson and Spearman
            correlation of the two maps.
    """

    before: xr.DataArray
    after: xr.DataArray
    table: pd.DataFrame

    @property
    def change(self) -> xr.DataArray:
        """After minus before (task, layer, head)."""
        return (self.after - self.before).rename("change")

    def plot(self, sort: bool = False) -> "Figure":
        """Heat maps before and after, side by side in one colour range per task (Fig. 4)."""
        return figures.before_and_after(self.before, {"after": self.after}, sort=sort)


def shift(before: Probes, after: Probes) -> Shift:
    """Compares the probes of the same model, before and after it was trained.

    Raises:
        HeadwiseError: no task was probed in both, or the models differ in shape.
    """
    common = [task for task in before.tasks if task in after.tasks]
    if not common:
        raise HeadwiseError(
            f"no task was probed in both: {', '.join(before.tasks)} and {', '.join(after.tasks)}"
        )
    first, second = before.scores.sel(task=common), after.scores.sel(task=common)
    if first.shape != second.shape:
        raise HeadwiseError(
            f"the models have {first.shape[1:]} and {second.shape[1:]} layers and heads: compare one model "
            "with itself"
        )
    rows = []
    for task in common:
        x, y = first.sel(task=task).values.ravel(), second.sel(task=task).values.ravel()
        present = ~(pd.isna(x) | pd.isna(y))
        x, y = x[present], y[present]
        row: Mapping[str, object] = {
            "task": task,
            "before": float(x.mean()),
            "after": float(y.mean()),
            "change": float((y - x).mean()),
            "rose": float((y > x).mean()),
            "pearson": float(stats.pearsonr(x, y).statistic),
            "spearman": float(stats.spearmanr(x, y).statistic),
        }
        rows.append(row)
    return Shift(first, second, pd.DataFrame(rows))
