"""Averages over tasks that may stand beside one another: every method's over the same tasks."""

import pandas as pd


def common_columns(table: pd.DataFrame, level: str | list[str] = "method") -> list[str]:
    """The columns (tasks) in which every group of rows has a value.

    Args:
        table: rows by `level` and whatever else (seeds); NaN where a score is missing.
        level: of the rows' index, what is compared.
    """
    there = table.notna().groupby(level=level, sort=False).any().all()
    return [str(column) for column in table.columns[there]]


def common_average(table: pd.DataFrame, level: str | list[str] = "method") -> pd.Series:
    """Each row's mean over the columns that every group has: a method without a hard task would else look
    better than the others.

    NaN in a row that lacks one of these columns, and everywhere if the groups have no column in common.
    """
    return table[common_columns(table, level)].mean(axis=1, skipna=False)
