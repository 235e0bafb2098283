"""What is said of scores by patching and attribution patching."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from headwise._base.sentences import NO_INTERVAL, number
from headwise.figures import heatmaps
from headwise.scoring._scores import values
from headwise.sections import Chart, HeadMaps, Section, Table

METHODS = ("patching", "attribution-patching")
LISTED = 10  # heads of each task, at either end
ENDS = (
    "Percent, of the heads that carry the most and of those that work against it; 100 % is the whole logit "
    "difference."
)
LARGE = 0.1  # of the difference, that are counted
FLOW = {
    "denoise": "the clean prompts' outputs are patched into the corrupted prompts",
    "noise": "the corrupted prompts' outputs are patched into the clean prompts",
}


def section(scores: xr.DataArray) -> Section:
    """The section of patching scores, (task, layer, head)."""
    facts = scores.attrs
    table = listed(scores)
    top = {str(name): _top_heads(table, str(name)) for name in scores["task"].values}
    framed = f"Framed: the {LISTED} heads that carry the most."
    return Section(
        title="What each head carries of an answer",
        findings=findings(scores),
        blocks=[
            Chart(
                "patching-maps",
                "Share of the logit difference, every head",
                partial(heatmaps, scores, signed=True, chosen=top),
                framed,
            ),
            HeadMaps("patching", "One head at a time", "share of the logit difference", scores, top, framed),
            Table("patching-heads", "What heads carry of the logit difference", table, ENDS),
        ],
        methods=_methods(facts),
        settings=dict(facts),
        notes=[*facts.get("at_chance", {}).values(), *facts.get("notes", [])],
        values=values(scores),
    )


def _methods(facts: Mapping[str, Any]) -> str:
    first = facts["method"] == "attribution-patching"
    tokens = "all tokens" if facts["tokens"] == "all" else "the last token"
    return (
        f"{'Attribution patching' if first else 'Activation patching'}: {FLOW[facts['direction']]}, at "
        f"{tokens}, one head at a time{', to first order by one backward pass' if first else ''}. A head's "
        "share is the change of the mean logit difference between the two answers, over its whole difference "
        "between the two prompts: 1 is a head that carries all of it by itself, a negative share works "
        "against it. Shares of heads need not sum to 1. No test was made."
    )


def findings(scores: xr.DataArray) -> list[str]:
    """The head that carries the most of each task, how many carry much, and the one that works against it the
    most."""
    sentences = []
    for name in scores["task"].values:
        values = scores.sel(task=name).transpose("layer", "head").to_numpy()
        most, least = (np.unravel_index(pick(values), values.shape) for pick in (np.nanargmax, np.nanargmin))
        large = int((values >= LARGE).sum())
        against = ""
        if values[least] < 0:
            against = (
                f"; head {least[0]}.{least[1]} works against it the most, {number(100 * values[least])} %"
            )
        sentences.append(
            f"{name}: head {most[0]}.{most[1]} carries {number(100 * values[most])} % of the logit "
            f"difference by itself, the most of {int(np.isfinite(values).sum())} heads; {large} "
            f"carr{'ies' if large == 1 else 'y'} at least {100 * LARGE:g} %{against}."
        )
    return [*sentences, f"Shares are means over the examples; {NO_INTERVAL}."]


def listed(scores: xr.DataArray) -> pd.DataFrame:
    """The strongest heads of each task at either end, in percent, largest first."""
    rows = scores.to_series().dropna().rename("share (%)").reset_index()
    rows = rows.sort_values(["task", "share (%)"], ascending=[True, False], kind="stable")
    rows["head"] = [f"{layer}.{head}" for layer, head in rows[["layer", "head"]].to_numpy()]
    rows["share (%)"] *= 100
    tables = []
    for _, of_task in rows.groupby("task", sort=False):
        against = of_task[of_task["share (%)"] < 0].tail(LISTED)
        ends = pd.concat([of_task.head(LISTED), against])
        tables.append(ends[~ends.index.duplicated()])
    return pd.concat(tables)[["task", "head", "share (%)"]].reset_index(drop=True)


def _top_heads(table: pd.DataFrame, task: str) -> list[tuple[int, ...]]:
    heads = table.loc[table["task"] == task, "head"].head(LISTED)
    return [tuple(map(int, head.split("."))) for head in heads]
