"""What a report shows of each kind of result: findings in sentences, figures, tables."""

from typing import Any

import pandas as pd


def optional_table(run: Any, name: str) -> pd.DataFrame:
    """A table of a run; one without rows or columns where the run has none of this name."""
    if f"{name}.parquet" in run.files:
        table: pd.DataFrame = run.table(name)
        return table
    return pd.DataFrame()
